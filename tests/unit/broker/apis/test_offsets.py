"""ListOffsets and OffsetForLeaderEpoch, over a real log on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.brokers.cold import Cold, context, finished, state
from support.kafka.entities import entity
from support.storage.logs import transactional_batch

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ErrorCode
from minikafka.base.model import PartitionState, TopicPartition
from minikafka.broker.apis.offsets import list_offsets, offset_for_leader_epoch
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from minikafka.runtime.storage import DiskStorage
from minikafka.storage.log.log import Log
from minikafka.storage.replication.partition import Partition

TP = TopicPartition("t", 0)
ALL = range(1, 8)
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def leader(
    cold: Cold, directory: Path, *timestamps: int, replicas: tuple[int, ...] = (1,)
) -> Partition:
    """Make this broker the leader of t-0 in epoch 0, with one batch of one record per timestamp."""
    config = TopicConfig.from_broker(cold.config, {})
    storage = DiskStorage()
    path = str(directory / "t-0")
    storage.make_directories(path)
    log = Log.open(storage, path, TP, config, clean=True, recovery_point=0, log_start_offset=0)
    partition = Partition(TP, 1, log, 30_000, cold.metadata.is_alive)
    partition.configure(config)
    partition.become_leader(state("t", 0, replicas), 0)
    for timestamp in timestamps:
        append(partition, timestamp)
    cold.replicas.partitions[TP] = partition
    return partition


def append(partition: Partition, timestamp: int) -> None:
    append_batch(partition, bytearray(build([Record(0, timestamp, None, b"value", ())])))


def append_batch(partition: Partition, batch: bytearray) -> None:
    field = memoryview(batch)
    guard = partition.verification_of(field)
    assert partition.append_as_leader(field, 1, 0, 0, internal=True, guard=guard) > 0
    partition.log.flush()
    partition.written(0)


def ask(
    cold: Cold,
    timestamp: int,
    version: int = 7,
    replica_id: int = -1,
    isolation: int = 1,
    **rest: Any,
) -> Any:
    topic = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp, **rest}]}
    request = entity(
        LIST_OFFSETS, version, replica_id=replica_id, isolation_level=isolation, topics=[topic]
    )
    answer = finished(list_offsets(cold.services, request, context(version)))
    frame = codec.encode_response(1, LIST_OFFSETS, version, answer)
    return codec.decode_response(LIST_OFFSETS, version, frame[4:]).topics[0].partitions[0]


@pytest.mark.parametrize("version", ALL)
def test_list_offsets_finds_log_start_and_log_end_and_timestamps(
    version: int, tmp_path: Path
) -> None:
    cold = Cold()
    leader(cold, tmp_path, 100, 200, 300)
    found = {when: ask(cold, when, version) for when in (EARLIEST, LATEST, 150, 200, 301)}
    assert {when: (got.error_code, got.offset, got.timestamp) for when, got in found.items()} == {
        EARLIEST: (0, 0, -1),
        LATEST: (0, 3, -1),
        150: (0, 1, 200),
        200: (0, 1, 200),
        301: (0, -1, -1),
    }
    if version >= 4:
        assert {got.leader_epoch for when, got in found.items() if when != 301} == {0}


def test_list_offsets_finds_the_record_with_the_largest_timestamp(tmp_path: Path) -> None:
    cold = Cold()
    leader(cold, tmp_path, 100, 900, 300)
    got = ask(cold, MAX_TIMESTAMP)
    assert (got.offset, got.timestamp) == (1, 900)


def test_list_offsets_of_an_empty_log_finds_start_and_end_but_no_timestamp(tmp_path: Path) -> None:
    cold = Cold()
    leader(cold, tmp_path)
    assert [ask(cold, when).offset for when in (EARLIEST, LATEST, MAX_TIMESTAMP, 0)] == [
        0,
        0,
        -1,
        -1,
    ]


def test_read_committed_list_offsets_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    cold = Cold()
    partition = leader(cold, tmp_path, 100, 200)
    append_batch(partition, transactional_batch(0))
    append(partition, 3000)
    assert ask(cold, LATEST, isolation=1).offset == 2
    assert ask(cold, LATEST, isolation=0).offset == 4
    assert ask(cold, 250, isolation=1).offset == -1
    assert ask(cold, 250, isolation=0).offset == 2


def test_latest_offset_is_high_watermark_for_a_consumer_and_log_end_for_a_follower(
    tmp_path: Path,
) -> None:
    cold = Cold()
    partition = leader(cold, tmp_path, 100, replicas=(1, 2))
    assert partition.high_watermark == 0
    assert ask(cold, LATEST).offset == 0
    assert ask(cold, 50).offset == -1
    assert ask(cold, LATEST, replica_id=2).offset == 1
    assert ask(cold, 50, replica_id=2).offset == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
def test_latest_offset_is_not_available_right_after_an_election(
    version: int, code: ErrorCode, tmp_path: Path
) -> None:
    cold = Cold()
    partition = leader(cold, tmp_path, 100, replicas=(1, 2))
    after = state("t", 0, (1, 2))
    partition.become_leader(after._replace(leader_epoch=1), 0)
    assert ask(cold, LATEST, version).error_code == code
    assert ask(cold, 50, version).error_code == code
    assert ask(cold, EARLIEST, version).offset == 0


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_request_is_refused_when_its_leader_epoch_is_above_the_current_one(
    epoch: int, code: int, tmp_path: Path
) -> None:
    cold = Cold()
    leader(cold, tmp_path, 100)
    assert ask(cold, LATEST, current_leader_epoch=epoch).error_code == code
    assert epoch_end(cold, 0, epoch).error_code == code


def followed_state() -> PartitionState:
    """Return the state of the partition in the next leader epoch, in which broker 2 leads."""
    return state("t", 0, (2, 1))._replace(leader_epoch=1)


def test_broker_that_is_not_the_leader_returns_an_error(tmp_path: Path) -> None:
    cold = Cold()
    assert ask(cold, LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cold.logs.offline.add(TP)
    assert ask(cold, LATEST).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert epoch_end(cold, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    leader(cold, tmp_path).become_follower(followed_state())
    assert ask(cold, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert epoch_end(cold, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_follower_answers_list_offsets_of_a_debugging_consumer(tmp_path: Path) -> None:
    cold = Cold()
    partition = leader(cold, tmp_path, 100, 200)
    partition.become_follower(followed_state())
    assert ask(cold, LATEST, replica_id=-2).offset == 2
    assert ask(cold, 150, replica_id=-2).offset == 1
    partition.stop()
    assert ask(cold, LATEST, replica_id=-2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_list_offsets_does_not_find_deleted_records(tmp_path: Path) -> None:
    cold = Cold()
    partition = leader(cold, tmp_path, 900, 100, 300, 200)
    partition.advance_log_start_offset(1)
    assert [ask(cold, when).offset for when in (EARLIEST, 50, 250, 400)] == [1, 1, 2, -1]
    latest = ask(cold, MAX_TIMESTAMP)
    assert (latest.offset, latest.timestamp, latest.leader_epoch) == (2, 300, 0)


def test_partition_requested_twice_is_refused(tmp_path: Path) -> None:
    cold = Cold()
    leader(cold, tmp_path)
    topic = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": LATEST}]}
    request = entity(LIST_OFFSETS, 7, replica_id=-1, topics=[topic, topic])
    answer = finished(list_offsets(cold.services, request, context(7)))
    frame = codec.encode_response(1, LIST_OFFSETS, 7, answer)
    found = codec.decode_response(LIST_OFFSETS, 7, frame[4:])
    errors = [part.error_code for topic in found.topics for part in topic.partitions]
    assert errors == [ErrorCode.INVALID_REQUEST] * 2


def epoch_end(cold: Cold, asked: int, current: int = -1, version: int = 4) -> Any:
    partition = {"partition": 0, "leader_epoch": asked, "current_leader_epoch": current}
    request = entity(
        OFFSET_FOR_LEADER_EPOCH, version, topics=[{"topic": "t", "partitions": [partition]}]
    )
    answer = finished(offset_for_leader_epoch(cold.services, request, context(version)))
    frame = codec.encode_response(1, OFFSET_FOR_LEADER_EPOCH, version, answer)
    return (
        codec.decode_response(OFFSET_FOR_LEADER_EPOCH, version, frame[4:]).topics[0].partitions[0]
    )


@pytest.mark.parametrize("version", [2, 3, 4])
def test_end_offset_of_a_leader_epoch_is_returned(version: int, tmp_path: Path) -> None:
    cold = Cold()
    leader(cold, tmp_path, 100, 200)
    known, unknown = epoch_end(cold, 0, -1, version), epoch_end(cold, 3, -1, version)
    assert (known.error_code, known.leader_epoch, known.end_offset) == (0, 0, 2)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(MAX_TIMESTAMP, 6), (-4, 7), (-5, 1), (-6, 7)])
def test_special_timestamp_is_refused_in_versions_that_do_not_define_it(
    timestamp: int, version: int, tmp_path: Path
) -> None:
    cold = Cold()
    leader(cold, tmp_path, 100)
    assert ask(cold, timestamp, version).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", ALL)
def test_list_offsets_yields_to_other_work_for_each_partition(version: int) -> None:
    cold = Cold()
    numbers = [[0, 1, 2], [], [3]]
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": number, "timestamp": -1} for number in found],
        }
        for name, found in zip("abc", numbers, strict=True)
    ]
    request = entity(LIST_OFFSETS, version, replica_id=-1, topics=topics)
    steps = list_offsets(cold.services, request, context(version))
    for _ in range(4):
        next(steps)
    frame = codec.encode_response(1, LIST_OFFSETS, version, finished(steps))
    got = codec.decode_response(LIST_OFFSETS, version, frame[4:]).topics
    assert [topic.name for topic in got] == ["a", "b", "c"]
    assert [[row.partition_index for row in topic.partitions] for topic in got] == numbers
    rows = [row for topic in got for row in topic.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {(row.error_code, row.offset) for row in rows} == {(unknown, -1)}
