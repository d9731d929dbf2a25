"""The ends of the micro-batches that a stream reader plans, and the first Arrow batch of a task."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
from support.kafka.encoders import Sample, by_aiokafka
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.source import readers
from minikafka.spark.source.options import Mode, parse
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.readers import StreamReader, joined, read_ranges

TEN = by_aiokafka([Sample(1, b"k", b"v")] * 10)


@pytest.fixture
def brokers():
    """Yield a broker with the topic `lines`, whose two partitions have the end offsets 10 and 0."""
    running = FetchBrokers()
    running.create("lines", 2)[0].append(TEN)
    yield running
    running.close()


@pytest.fixture
def reader(brokers):
    def make(**given: str) -> StreamReader:
        least = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
        return StreamReader(parse({"startingOffsets": "earliest", **least, **given}, Mode.STREAM))

    return make


@pytest.fixture
def clock(monkeypatch):
    """Set the monotonic clock of the reader: the list's last number, in milliseconds."""
    times = [0]
    monkeypatch.setattr(readers, "now_ms", lambda: times[-1])
    return times


def ends(found: dict) -> list[int]:
    return [found["lines"][partition]["offset"] for partition in ("0", "1")]


LIMITS = [ReadMinRows(100), ReadAllAvailable()]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_available_now_reads_all_records_although_they_are_fewer_than_the_minimum(
    brokers, reader, clock, limit: ReadLimit
):
    stream = reader(minOffsetsPerTrigger="100")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, limit)
    assert ends(end) == [10, 0]
    assert ends(stream.latestOffset(end, limit)) == [10, 0]


def test_available_now_ends_at_the_records_that_existed_when_it_began(brokers, reader):
    stream = reader(minOffsetsPerTrigger="1", maxOffsetsPerTrigger="7")
    end = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    for partition in brokers.topics["lines"]:
        partition.append(TEN)
    found = []
    for _ in range(3):
        end = stream.latestOffset(end, stream.getDefaultReadLimit())
        found.append(ends(end))
    assert found == [[7, 0], [10, 0], [10, 0]]
    assert ends(stream.reportLatestOffset()) == [10, 0]


def test_stream_waits_for_the_minimum_of_offsets_or_the_maximum_delay(brokers, reader, clock):
    stream = reader(minOffsetsPerTrigger="15", maxTriggerDelay="2s")
    limit = stream.getDefaultReadLimit()
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert ends(first) == [10, 0]
    brokers.topics["lines"][1].append(TEN)
    clock.append(1_999)
    assert stream.latestOffset(first, limit) == first
    assert ends(stream.reportLatestOffset()) == [10, 10]
    brokers.topics["lines"][1].append(TEN)
    second = stream.latestOffset(first, limit)
    assert ends(second) == [10, 20]
    brokers.topics["lines"][1].append(TEN)
    clock.append(3_998)
    assert stream.latestOffset(second, limit) == second
    clock.append(3_999)
    assert ends(stream.latestOffset(second, limit)) == [10, 30]


def test_stream_with_minimum_and_maximum_waits_and_then_reads_at_most_the_maximum(
    brokers, reader, clock
):
    stream = reader(minOffsetsPerTrigger="11", maxOffsetsPerTrigger="12")
    limit = stream.getDefaultReadLimit()
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert ends(first) == [10, 0]
    brokers.topics["lines"][1].append(TEN)
    assert stream.latestOffset(first, limit) == first
    for partition in brokers.topics["lines"]:
        partition.append(TEN)
    assert ends(stream.latestOffset(first, limit)) == [14, 8]


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
    ],
)
def test_read_limit_follows_from_the_options(reader, given, limit):
    assert reader(**given).getDefaultReadLimit() == limit


def test_new_query_starts_at_the_latest_offsets_by_default(brokers):
    least = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
    assert ends(StreamReader(parse(least, Mode.STREAM)).initialOffset()) == [10, 0]


def test_no_latest_offset_is_reported_before_the_first_micro_batch(reader):
    assert reader().reportLatestOffset() is None


def test_new_query_has_the_same_start_when_spark_asks_again(brokers, reader):
    stream = reader(startingOffsets="latest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    brokers.topics["lines"][0].append(TEN)
    assert stream.initialOffset() == start
    assert stream.partitions(stream.initialOffset(), end) == []


def ranges(stream: StreamReader, start: dict, end: dict) -> list[tuple[int, int, int]]:
    """Return partition, start and end of the planned ranges."""
    found = [one for task in stream.partitions(start, end) for one in task.ranges]
    return [(one.tp.partition, one.start, one.end) for one in found]


def test_first_micro_batch_is_repeated_although_the_latest_offsets_have_moved(brokers, reader):
    stream = reader(startingOffsets="latest")
    start = stream.initialOffset()
    for partition in brokers.topics["lines"]:
        partition.append(TEN)
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert ranges(stream, start, end) == [(0, 10, 20), (1, 0, 10)]
    for partition in brokers.topics["lines"]:
        partition.append(TEN)
    again = reader(startingOffsets="latest")
    assert ranges(again, again.initialOffset(), end) == [(0, 10, 20), (1, 0, 10)]
    later = again.latestOffset(end, again.getDefaultReadLimit())
    assert ranges(again, end, later) == [(0, 20, 30), (1, 10, 20)]


def test_end_stays_the_same_text_while_nothing_is_new(brokers, reader):
    stream = reader()
    first = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert stream.latestOffset(first, stream.getDefaultReadLimit()) == first


def test_offsets_of_the_connector_are_continued(brokers, reader):
    stream = reader(startingOffsets="latest")
    end = stream.latestOffset({"lines": {"0": 4, "1": 0}}, stream.getDefaultReadLimit())
    assert ends(end) == [10, 0]
    assert ranges(stream, {"lines": {"0": 4, "1": 0}}, end) == [(0, 4, 10)]
    planned = {"lines": {"0": 7, "1": 0}}
    assert ranges(stream, {"lines": {"0": 4, "1": 0}}, planned) == [(0, 4, 7)]


def test_first_micro_batch_of_the_connector_needs_its_checkpoint_only_after_the_latest_offsets(
    brokers, reader, tmp_path
):
    planned = {"lines": {"0": 7, "1": 0}}
    stream = reader()
    assert ranges(stream, stream.initialOffset(), planned) == [(0, 0, 7)]
    stream = reader(startingOffsets="latest")
    with pytest.raises(ConfigError, match="set option checkpointLocation also for the source"):
        stream.partitions(stream.initialOffset(), planned)
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text('\0v1\n{"lines":{"0":5,"1":0}}')
    stream = reader(startingOffsets="latest", checkpointLocation=str(tmp_path))
    assert ranges(stream, stream.initialOffset(), planned) == [(0, 5, 7)]


def test_first_arrow_batch_of_a_large_range_is_small(brokers):
    (partition, _) = brokers.create("large", 2)
    for _ in range(40):
        partition.append(by_aiokafka([Sample(1, b"k", b"v" * 1000)] * 10))
    given = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "large"}
    found = read_ranges(parse(given, Mode.BATCH), [OffsetRange(TopicPartition("large", 0), 0, 400)])
    first, *others = [batch.num_rows for batch in found]
    assert 100 < first < 128
    assert sum(others) == 400 - first


def test_first_arrow_batch_does_not_wait_for_the_second():
    rows = pa.RecordBatch.from_pydict({"value": [b"v"]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows
        pytest.fail("the second batch was requested")

    assert next(joined(batches(), 1 << 20)) is rows


def test_small_arrow_batches_after_the_first_are_joined():
    rows = [pa.RecordBatch.from_pydict({"value": [b"v"] * count}) for count in (1, 2, 3, 4)]
    assert [batch.num_rows for batch in joined(rows, rows[3].nbytes * 2)] == [1, 5, 4]
