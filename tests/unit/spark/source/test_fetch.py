"""Reading a range over real sockets while its leader moves, dies, truncates responses or returns errors."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from support.kafka.encoders import Sample, by_aiokafka
from support.spark.fetch_brokers import FENCED, NOT_LEADER, FetchBrokers, Partition

from minikafka.base.errors import ErrorCode, KafkaError, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.spark.records import checksum
from minikafka.spark.records.batches import sections
from minikafka.spark.records.decode import decode
from minikafka.spark.source.fetch import RESPONSES, RangesReader
from minikafka.spark.source.ranges import DataLost, OffsetRange
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, Unreachable

LINES = TopicPartition("lines", 0)
FETCH_API = 1


@pytest.fixture
def brokers():
    running = FetchBrokers(3)
    running.create("lines")
    yield running
    running.close()


def fill(brokers: FetchBrokers, batches: int, size: int = 10) -> int:
    """Append batches of `size` records of about 120 bytes; return the number of records in the log."""
    (partition,) = brokers.topics["lines"]
    for _ in range(batches):
        partition.append(by_aiokafka([Sample(1, b"k", b"v" * 100)] * size))
    return partition.high_watermark


def read(
    brokers: FetchBrokers,
    end: int,
    *,
    start: int = 0,
    fetch_bytes: int = 4_000,
    seconds: float = 20,
    fail_on_data_loss: bool = True,
) -> list[int]:
    """Return the offsets that a reader of [start, end) yields."""
    servers = [("127.0.0.1", port) for port in brokers.ports.values()]
    leaders = LeaderConnections(servers, "test", 10)
    reader = RangesReader(
        leaders,
        [OffsetRange(LINES, start, end)],
        Deadline(seconds),
        fetch_bytes=fetch_bytes,
        fail_on_data_loss=fail_on_data_loss,
    )
    found: list[int] = []
    with closing(leaders):
        for block in reader.blocks():
            parts = list(sections(block.response.records, block.start, end, checksum.find()))
            rows = decode(parts, *LINES, block.start, end, with_headers=False)
            found += rows.column("offset").to_pylist()
    return found


def read_all(
    brokers: FetchBrokers, ranges: list[OffsetRange], fetch_bytes: int = 1 << 20
) -> dict[OffsetRange, list[int]]:
    """Return the offsets that one reader yields for each range. The blocks must be in the order of the ranges."""
    order: list[int] = []
    found: dict[OffsetRange, list[int]] = {wanted: [] for wanted in ranges}
    with closing(LeaderConnections([("127.0.0.1", brokers.ports[0])], "test", 10)) as leaders:
        reader = RangesReader(
            leaders, ranges, Deadline(20), fetch_bytes=fetch_bytes, fail_on_data_loss=True
        )
        for block in reader.blocks():
            end = block.wanted.end
            parts = list(sections(block.response.records, block.start, end, checksum.find()))
            rows = decode(parts, *block.wanted.tp, block.start, end, with_headers=False)
            found[block.wanted] += rows.column("offset").to_pylist()
            order.append(ranges.index(block.wanted))
    assert order == sorted(order)
    return found


def wide(brokers: FetchBrokers, partitions: int, batches: int) -> list[OffsetRange]:
    """Create the topic `wide`, led by all brokers in turn. Return ranges that start within the first batch."""
    for number, partition in enumerate(brokers.create("wide", partitions)):
        partition.leader = number % 3
        for _ in range(batches):
            partition.append(by_aiokafka([Sample(1, b"k", b"v" * 100)] * 10))
    return [
        OffsetRange(TopicPartition("wide", number), 3, 10 * batches - 2)
        for number in range(partitions)
    ]


def whole(ranges: list[OffsetRange]) -> dict[OffsetRange, list[int]]:
    return {wanted: list(range(wanted.start, wanted.end)) for wanted in ranges}


def test_many_small_ranges_take_one_fetch_per_leader(brokers):
    ranges = wide(brokers, 60, 1)
    assert read_all(brokers, ranges) == whole(ranges)
    assert brokers.fetched == [20, 20, 20]


@pytest.mark.parametrize("fetch_bytes", [500, 3_000, 20_000, 300_000])
def test_ranges_that_do_not_fit_into_one_response_are_read_whole(brokers, fetch_bytes):
    ranges = wide(brokers, 12, 8)
    assert read_all(brokers, ranges, fetch_bytes) == whole(ranges)


class WatchedReader(RangesReader):
    """Knows the largest number of bytes that were requested or held."""

    most = 0

    def _receive(self) -> None:
        super()._receive()
        asked = sum(one.limit for _, ranges in self._asked.values() for one in ranges.values())
        self.most = max(self.most, asked + self._held_bytes)


def test_bytes_requested_and_held_have_a_limit_for_any_number_of_leaders():
    brokers = FetchBrokers(12)
    content = by_aiokafka([Sample(1, b"k", b"v" * 100)] * 10)
    for number, partition in enumerate(brokers.create("lines", 12)):
        partition.leader = number
        for _ in range(20):
            partition.append(content)
    ranges = [OffsetRange(TopicPartition("lines", number), 0, 200) for number in range(12)]
    fetch_bytes = 4 * len(content)
    with (
        closing(brokers),
        closing(LeaderConnections([("127.0.0.1", brokers.ports[0])], "t", 10)) as leaders,
    ):
        reader = WatchedReader(
            leaders, ranges, Deadline(20), fetch_bytes=fetch_bytes, fail_on_data_loss=True
        )
        read = sum(len(block.response.records) for block in reader.blocks())
    assert read >= 12 * 20 * len(content)
    assert fetch_bytes < reader.most <= RESPONSES * fetch_bytes


def test_records_beyond_the_ranges_do_not_delay_other_partitions(brokers):
    long = wide(brokers, 30, 40)
    ranges = [OffsetRange(wanted.tp, 0, 10) for wanted in long]
    assert read_all(brokers, ranges, 200_000) == whole(ranges)
    assert len(brokers.fetched) == 3


def test_two_ranges_of_a_partition_are_read_in_order(brokers):
    wide(brokers, 1, 6)
    tp = TopicPartition("wide", 0)
    ranges = [OffsetRange(tp, 0, 25), OffsetRange(tp, 25, 41)]
    assert read_all(brokers, ranges) == whole(ranges)


def test_ranges_of_a_leader_that_dies_in_a_response_are_read_elsewhere(brokers):
    ranges = wide(brokers, 12, 8)
    brokers.answers_before_kill = {1: 1, 2: 0}
    assert read_all(brokers, ranges, 3_000) == whole(ranges)


def test_refused_partition_does_not_stop_the_other_partitions(brokers):
    ranges = wide(brokers, 9, 2)
    brokers.fetch_errors = [NOT_LEADER, 0, FENCED, 0, 0, ErrorCode.KAFKA_STORAGE_ERROR]
    assert read_all(brokers, ranges) == whole(ranges)


def test_leaders_that_moved_since_the_last_task_are_looked_up_at_once(brokers, monkeypatch):
    ranges = wide(brokers, 6, 2)
    with closing(LeaderConnections([("127.0.0.1", brokers.ports[0])], "test", 10)) as leaders:
        leaders.refresh(["wide"])
        for number in range(6):
            brokers.move("wide", number, (number + 1) % 3)
        monkeypatch.setattr(Deadline, "wait_to_retry", lambda _: pytest.fail("it waited"))
        reader = RangesReader(
            leaders, ranges, Deadline(20), fetch_bytes=1 << 20, fail_on_data_loss=True
        )
        assert {block.wanted for block in reader.blocks()} == set(ranges)


def test_topic_created_again_since_the_last_task_is_read(brokers):
    wide(brokers, 3, 1)
    with closing(LeaderConnections([("127.0.0.1", brokers.ports[0])], "test", 10)) as leaders:
        for number in range(3):
            brokers.move("wide", number, 2)
        leaders.refresh(["wide"])
        ranges = wide(brokers, 3, 2)
        reader = RangesReader(
            leaders, ranges, Deadline(20), fetch_bytes=1 << 20, fail_on_data_loss=True
        )
        assert {block.wanted for block in reader.blocks()} == set(ranges)


def test_all_offsets_are_read_when_fetch_responses_end_inside_batches(brokers):
    end = fill(brokers, 40)
    assert read(brokers, end, fetch_bytes=3_333) == list(range(end))
    assert len([api for _, api in brokers.requests if api == FETCH_API]) > 10


def fetched(brokers: FetchBrokers, start: int, end: int) -> list[int]:
    """Return the size of each response to a reader of [start, end) that may ask for 4 MiB at a time."""
    servers = [("127.0.0.1", port) for port in brokers.ports.values()]
    ranges = [OffsetRange(LINES, start, end)]
    with closing(LeaderConnections(servers, "test", 10)) as leaders:
        reader = RangesReader(
            leaders, ranges, Deadline(20), fetch_bytes=4 << 20, fail_on_data_loss=True
        )
        return [len(block.response.records) for block in reader.blocks()]


@pytest.mark.parametrize("start", [0, 999, 20_007])
def test_small_range_of_a_large_log_is_read_without_the_rest(brokers, start):
    (partition,) = brokers.topics["lines"]
    content = by_aiokafka([Sample(1, b"k", b"v" * 500)] * 1_000)
    for _ in range(25):
        partition.append(content)
    sizes = fetched(brokers, start, start + 1_000)
    assert sum(sizes) <= 3 * len(content)
    assert len(sizes) <= 3


def test_range_of_records_larger_than_assumed_is_read_with_few_responses(brokers):
    (partition,) = brokers.topics["lines"]
    content = by_aiokafka([Sample(1, b"k", b"v" * 4_000)])
    for _ in range(1_000):
        partition.append(content)
    assert len(fetched(brokers, 0, 500)) <= 3


@pytest.mark.parametrize(("start", "end"), [(0, 1), (5, 25), (19, 20), (10, 40), (39, 40)])
def test_read_of_a_part_of_a_log_returns_exactly_the_requested_offsets(brokers, start, end):
    fill(brokers, 4)
    assert read(brokers, end, start=start) == list(range(start, end))


def test_records_after_the_planned_end_are_not_read(brokers):
    end = fill(brokers, 3)
    fill(brokers, 3)
    assert read(brokers, end) == list(range(end))


@pytest.mark.parametrize("cut_first_batch", [False, True])
def test_batch_larger_than_the_fetch_limit_is_read(brokers, cut_first_batch):
    brokers.cut_first_batch = cut_first_batch
    end = fill(brokers, 3, size=200)
    assert read(brokers, end, fetch_bytes=500) == list(range(end))


def test_answer_with_only_older_batches_is_a_violation_of_the_protocol(brokers, monkeypatch):
    end = fill(brokers, 3)
    old = brokers.topics["lines"][0].batches[0][2]
    monkeypatch.setattr(Partition, "read", lambda *_: old)
    with pytest.raises(ProtocolViolation, match="requested offset 10, received only older batches"):
        read(brokers, end)


def test_offset_gaps_of_compaction_are_skipped(brokers):
    (partition,) = brokers.topics["lines"]
    for base in (5, 100, 1_000):
        partition.append(by_aiokafka([Sample(1, b"k", b"v")]), base=base)
    assert read(brokers, 1_001) == [5, 100, 1_000]
    assert read(brokers, 500, start=6) == [100]


@pytest.mark.parametrize(
    "code", [NOT_LEADER, FENCED, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_temporary_error_is_retried(brokers, code):
    end = fill(brokers, 10)
    brokers.fetch_errors = [code, code]
    assert read(brokers, end) == list(range(end))


def test_permanent_error_is_raised(brokers):
    end = fill(brokers, 1)
    brokers.fetch_errors = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED: lines-0"):
        read(brokers, end)


def test_reader_follows_the_new_leader_after_a_truncated_response(brokers):
    end = fill(brokers, 60)
    brokers.answers_before_kill = {0: 3, 1: 4}
    assert read(brokers, end) == list(range(end))
    served = [broker for broker, api in brokers.requests if api == FETCH_API]
    assert list(dict.fromkeys(served)) == [0, 1, 2]


def test_partitions_of_two_brokers_that_die_at_the_same_time_move_to_the_third(brokers):
    lines = brokers.create("lines", 2)
    lines[1].leader = 1
    for dying in (0, 1):
        brokers.fail_over(dying)
    assert [partition.leader for partition in lines] == [2, 2]


def test_reader_waits_for_a_leader_that_restarts(brokers):
    end = fill(brokers, 5)
    brokers.kill(0)
    back = threading.Timer(0.3, brokers.start, [0])
    back.start()
    assert read(brokers, end) == list(range(end))
    back.join()


def test_reader_waits_for_the_high_watermark_of_a_new_leader(brokers):
    end = fill(brokers, 5)
    (partition,) = brokers.topics["lines"]
    partition.high_watermark = 20

    def learn() -> None:
        partition.high_watermark = end

    learning = threading.Timer(0.3, learn)
    learning.start()
    assert read(brokers, end) == list(range(end))
    learning.join()


def test_reader_fails_at_its_deadline_without_a_leader(brokers):
    end = fill(brokers, 5)
    brokers.kill(0)
    with pytest.raises(Unreachable, match="lines-0"):
        read(brokers, end, seconds=0.3)


@pytest.mark.parametrize("log_start", [30, 35], ids=["between batches", "within a batch"])
def test_records_deleted_during_the_read_are_reported_as_lost(brokers, log_start):
    end = fill(brokers, 5)
    brokers.topics["lines"][0].log_start = log_start
    with pytest.raises(DataLost, match=rf"offset 0 of lines-0 .* {log_start} to 50"):
        read(brokers, end)
    assert read(brokers, end, fail_on_data_loss=False) == list(range(log_start, end))


def test_truncated_log_is_reported_as_lost_data(brokers):
    fill(brokers, 2)
    with pytest.raises(DataLost, match=r"offset 40 of lines-0 .* 0 to 20"):
        read(brokers, 50, start=40)
    assert read(brokers, 50, start=40, fail_on_data_loss=False) == []


def test_end_beyond_the_log_is_reported_as_lost_data_at_the_deadline(brokers):
    fill(brokers, 2)
    with pytest.raises(DataLost, match=r"offset 20 of lines-0 .* 0 to 20"):
        read(brokers, 50, seconds=0.1)
    assert read(brokers, 50, seconds=0.1, fail_on_data_loss=False) == list(range(20))
