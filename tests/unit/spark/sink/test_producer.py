"""The producer of one task: each row is in the log once and in order, whatever the brokers answer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.spark.produce_brokers import ProduceBrokers

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.sink import producer
from minikafka.spark.sink.options import parse
from minikafka.spark.sink.rows import RowRefused
from minikafka.spark.sink.writers import write_rows
from minikafka.spark.source.options import Mode
from minikafka.spark.source.options import parse as parse_read
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.readers import read_ranges
from minikafka.spark.wire import deadline
from minikafka.spark.wire.leaders import Unreachable

NOT_ENOUGH_REPLICAS = 19
INVALID_RECORD = "the value is not JSON"


@pytest.fixture
def brokers():
    running = ProduceBrokers(2)
    running.create("lines", 2)
    yield running
    running.close()


@pytest.fixture
def write(brokers):
    """Return a function that writes the values of each list, as one task with one Arrow batch per list."""

    def start(*parts: list[bytes], partition: int = 0, **options: str) -> int:
        given = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "lines"}
        given |= {name.replace("_", "."): text for name, text in options.items()}
        columns = [
            {"value": part, "partition": pa.array([partition] * len(part), pa.int32())}
            for part in parts
        ]
        return write_rows(parse(given), iter(map(pa.RecordBatch.from_pydict, columns)))

    return start


def column(brokers: ProduceBrokers, partition: int, name: str) -> list[Any]:
    """Return a column of the records in the log of a partition, in offset order."""
    given = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
    end = brokers.topics["lines"][partition].high_watermark
    options = parse_read(given | {"includeHeaders": "true"}, Mode.STREAM)
    batches = read_ranges(options, [OffsetRange(TopicPartition("lines", partition), 0, end)])
    return [value for batch in batches for value in batch.column(name).to_pylist()]


def values(brokers: ProduceBrokers, partition: int = 0) -> list[bytes]:
    return column(brokers, partition, "value")


def headers_of(brokers: ProduceBrokers, partition: int) -> list[list[dict[str, Any]]]:
    return column(brokers, partition, "headers")


def numbered(first: int, end: int, size: int = 150) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(first, end)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize(("limit", "count"), [(20_000, 1_001), (3_100, 301), (260, 41)])
def test_batch_that_is_too_large_is_split_and_each_row_is_written_once(
    brokers, write, limit, count, codec
):
    brokers.max_message_bytes = limit
    rows = numbered(0, count)
    assert write(rows, kafka_compression_type=codec) == count
    assert values(brokers) == rows
    (known,) = brokers.acknowledged.values()
    assert sum(written for _, written in known) == count
    write(numbered(0, 5))
    assert values(brokers)[count:] == numbered(0, 5)


def test_rows_after_a_split_batch_keep_their_order(brokers, write):
    brokers.max_message_bytes = 10_000
    rows = numbered(0, 400)
    write(rows, kafka_batch_size="20000")
    assert values(brokers) == rows


def test_arrow_batches_that_are_sent_together_keep_their_order_and_headers(brokers):
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

    def part(first: int) -> pa.RecordBatch:
        numbers = range(first, first + 50)
        return pa.RecordBatch.from_pydict(
            {
                "value": [b"%d" % number for number in numbers],
                "partition": pa.array([number % 2 for number in numbers], pa.int32()),
                "headers": pa.array([[("n", b"%d" % number)] for number in numbers], headers),
            }
        )

    given = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "lines"}
    write_rows(parse(given), iter([part(0), part(50), part(100)]))
    for partition in range(2):
        wanted = [b"%d" % number for number in range(partition, 150, 2)]
        assert values(brokers, partition) == wanted
        assert headers_of(brokers, partition) == [[{"key": "n", "value": one}] for one in wanted]


def test_every_batch_is_sent_with_acks_of_all_replicas_and_the_request_timeout(brokers, write):
    write(numbered(0, 3), kafka_request_timeout_ms="1234")
    assert values(brokers) == numbered(0, 3)
    assert [sent.timeout_ms for sent in brokers.sent] == [1234]


def test_batch_whose_response_was_lost_is_written_once(brokers, write):
    brokers.lost_answers = 2
    rows = numbered(0, 500)
    write(rows, kafka_batch_size="20000")
    assert values(brokers) == rows
    assert len(brokers.sent) == 2 + len({sent.sequence for sent in brokers.sent})


@pytest.mark.parametrize("code", [NOT_ENOUGH_REPLICAS, 20, 7, 6, 5])
def test_batch_with_a_retriable_error_is_sent_again_with_its_sequence(brokers, write, code):
    brokers.produce_errors = [code, code]
    write(numbered(0, 3))
    assert values(brokers) == numbered(0, 3)
    assert [sent.sequence for sent in brokers.sent] == [0, 0, 0]


def test_rows_go_to_the_new_leader_after_a_leader_change(brokers, monkeypatch):
    monkeypatch.setattr("minikafka.spark.sink.routing._BUFFER_BYTES", 1)

    def rows():
        yield pa.RecordBatch.from_pydict({"value": numbered(0, 30)})
        brokers.move("lines", 0, 1)
        brokers.move("lines", 1, 1)
        yield pa.RecordBatch.from_pydict({"value": numbered(30, 60)})

    given = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "lines"}
    write_rows(parse(given), rows())
    found = values(brokers, 0) + values(brokers, 1)
    assert sorted(found) == numbered(0, 60)
    assert {sent.broker for sent in brokers.sent} == {0, 1}
    assert len(brokers.acknowledged) == 2


def test_batch_of_an_older_producer_state_counts_as_written(brokers, write):
    brokers.produce_errors = [46]
    write(numbered(0, 3))
    assert len(brokers.sent) == 1


def test_sequences_continue_over_sends_and_wrap_at_31_bits(brokers, write, monkeypatch):
    monkeypatch.setattr(producer, "SEQUENCES", 250)
    monkeypatch.setattr("support.spark.produce_brokers.SEQUENCES", 250)
    monkeypatch.setattr("minikafka.spark.sink.routing._BUFFER_BYTES", 1)
    write(numbered(0, 100), numbered(100, 200), numbered(200, 300))
    assert [sent.sequence for sent in brokers.sent] == [0, 100, 200]
    assert {sent.producer for sent in brokers.sent} == {(1001, 0)}
    write(numbered(0, 100), numbered(100, 200), numbered(200, 300), numbered(300, 301))
    assert [sent.sequence for sent in brokers.sent[3:]] == [0, 100, 200, 50]
    assert values(brokers) == numbered(0, 300) + numbered(0, 301)


def test_each_task_has_its_own_producer_id_and_partitions_have_own_sequences(brokers, write):
    write(numbered(0, 3), partition=0)
    write(numbered(3, 5), partition=1)
    assert [(sent.producer, sent.sequence) for sent in brokers.sent] == [
        ((1001, 0), 0),
        ((1002, 0), 0),
    ]


def test_partitions_of_one_task_have_sequences_of_their_own(brokers):
    batch = pa.RecordBatch.from_pydict(
        {"value": numbered(0, 6), "partition": pa.array([0, 1, 0, 1, 0, 1], pa.int32())}
    )
    given = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "lines"}
    write_rows(parse(given), iter([batch]))
    assert [(sent.partition, sent.sequence, sent.count) for sent in brokers.sent] == [
        (0, 0, 3),
        (1, 0, 3),
    ]
    assert values(brokers, 0) == numbered(0, 6)[::2]
    assert [api for _, api in brokers.requests].count(0) == 1


def test_producer_id_is_asked_for_again_after_a_retriable_error(brokers, write):
    brokers.init_errors = [15, 14]
    write(numbered(0, 3))
    assert values(brokers) == numbered(0, 3)


def test_single_row_that_is_too_large_is_refused_with_its_number(brokers, write):
    brokers.max_message_bytes = 500
    with pytest.raises(RowRefused, match="row 5 of the task was refused by lines-0: MESSAGE_TOO"):
        write([*numbered(0, 5), bytes(1_000), *numbered(5, 6)])
    assert values(brokers) == numbered(0, 5)


def test_refused_record_is_named_by_its_number_in_the_task(brokers, write):
    brokers.refused = (2, INVALID_RECORD)
    with pytest.raises(RowRefused, match=f"row 2 .* INVALID_RECORD: {INVALID_RECORD}"):
        write(numbered(0, 5))


@pytest.mark.parametrize("code", [45, 47, 29, 59])
def test_error_that_a_retry_cannot_fix_fails_the_task(brokers, write, code):
    brokers.produce_errors = [code]
    with pytest.raises(Exception, match="rows 0 to 2 of the task were refused by lines-0"):
        write(numbered(0, 3))
    assert len(brokers.sent) == 1


def test_task_fails_when_no_batch_is_acknowledged_within_the_delivery_timeout(brokers, write):
    brokers.produce_errors = [NOT_ENOUGH_REPLICAS] * 1_000
    with pytest.raises(Unreachable, match="no leader answers for lines-0"):
        write(numbered(0, 3), kafka_delivery_timeout_ms="300")


def test_task_fails_when_the_leader_answers_without_the_partition(brokers, write):
    brokers.omits_partitions = True
    with pytest.raises(Unreachable, match="no leader answers for lines-0"):
        write(numbered(0, 3), kafka_delivery_timeout_ms="300")


class SlowClock:
    """A monotonic clock whose time changes only when `pass_s` adds to it, or during a pause between attempts."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


def test_delivery_timeout_counts_from_the_last_acknowledged_batch_or_the_start_of_a_send(
    brokers, write, monkeypatch
):
    clock = SlowClock()
    monkeypatch.setattr(deadline, "time", clock)
    monkeypatch.setattr("minikafka.spark.sink.routing._BUFFER_BYTES", 1)
    rows = numbered(0, 300)
    requests = []

    def answer_slowly():
        clock.pass_s(0.3)
        requests.append(clock.now)
        brokers.produce_errors = [NOT_ENOUGH_REPLICAS] * (len(requests) % 3 == 0)

    brokers.on_produce = answer_slowly

    def one_by_one():
        for start in range(0, 300, 100):
            clock.pass_s(5)
            yield pa.RecordBatch.from_pydict(
                {"value": rows[start : start + 100], "partition": pa.array([0] * 100, pa.int32())}
            )

    given = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "lines"}
    given |= {"kafka.delivery.timeout.ms": "2000", "kafka.batch.size": "5000"}
    write_rows(parse(given), one_by_one())
    assert values(brokers) == rows
    assert len(requests) > 12


def write_nowhere(brokers, **given: str) -> int:
    given = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "nowhere"} | given
    return write_rows(parse(given), iter([pa.RecordBatch.from_pydict({"value": [b"v"]})]))


def test_write_to_a_missing_topic_names_the_topic_and_the_option_that_creates_it(brokers):
    fix = "correct option topic, create the topic, or set option createTopics to true"
    with pytest.raises(KafkaError, match=f"nowhere: no such topic; {fix}"):
        write_nowhere(brokers)
    assert "nowhere" not in brokers.topics


def test_missing_topic_is_created_by_the_brokers_if_the_option_says_so(brokers):
    assert write_nowhere(brokers, createTopics="true") == 1
    assert len(brokers.topics["nowhere"]) == 3
    assert sum(len(partition.batches) for partition in brokers.topics["nowhere"]) == 1


def test_error_names_the_setting_of_brokers_that_create_no_topics(brokers, monkeypatch):
    monkeypatch.setattr("minikafka.spark.wire.leaders._CREATION_S", 0.05)
    brokers.creates_topics = False
    with pytest.raises(KafkaError, match=r"nowhere: no such topic; .+auto\.create\.topics\.enable"):
        write_nowhere(brokers, createTopics="true")


def test_next_task_uses_the_connections_of_the_previous_task(brokers, write):
    write(numbered(0, 3))
    opened = [list(found) for found in brokers.connections.values()]
    write(numbered(3, 6))
    assert [list(found) for found in brokers.connections.values()] == opened
    assert values(brokers) == numbered(0, 6)


def test_topic_created_again_without_an_id_is_written_by_the_next_task(brokers, write):
    for leader in (1, 0, 1):
        brokers.move("lines", 0, leader)
    write([b"before"])
    brokers.create("lines", 2)  # broker 0 leads, in leader epoch 0
    write([b"after"], kafka_delivery_timeout_ms="5000")
    assert values(brokers) == [b"after"]
