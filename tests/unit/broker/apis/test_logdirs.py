"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from support.brokers.cold import Cold, context, decoded, finished
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.broker.apis.logdirs import alter_replica_log_dirs, describe_log_dirs
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from minikafka.storage.log.manager import Directory, ReplicaLogInfo

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Hosted:
    high_watermark = 10


def has_directories(cold: Any, *directories: Directory) -> None:
    """Let a broker report these directories, each on a disk of 1000 bytes."""
    cold.replicas.log_directories = lambda: list(directories)
    cold.replicas.room = lambda directory: (1000, 400)


def with_directories() -> Any:
    cold = Cold()
    has_directories(
        cold,
        Directory("/a", (ReplicaLogInfo(T0, 100, 7), ReplicaLogInfo(U0, 0, 0))),
        Directory("/b", (ReplicaLogInfo(T1, 5, 10),)),
        Directory("/broken", None),
    )
    cold.replicas.partitions = {T0: Hosted(), T1: Hosted()}
    return cold


def described(cold: Cold, version: int, topics: Any) -> dict[str, Any]:
    request = entity(DESCRIBE_LOG_DIRS, version, topics=topics)
    answer = describe_log_dirs(cold.services, request, context(version))
    got = decoded(DESCRIBE_LOG_DIRS, version, answer)
    return {result.log_dir: result for result in got.results}


@pytest.mark.parametrize("version", range(1, 5))
def test_every_log_directory_is_described_with_replica_sizes_and_lags(version: int) -> None:
    got = described(with_directories(), version, None)
    assert {path: int(result.error_code) for path, result in got.items()} == {
        "/a": 0,
        "/b": 0,
        "/broken": ErrorCode.KAFKA_STORAGE_ERROR,
    }
    (row,) = next(topic for topic in got["/a"].topics if topic.name == "t").partitions
    assert (row.partition_index, row.partition_size, row.offset_lag) == (0, 100, 3)
    assert not row.is_future_key
    assert got["/b"].topics[0].partitions[0].offset_lag == 0
    if version >= 4:
        assert (got["/a"].total_bytes, got["/a"].usable_bytes) == (1000, 400)
        assert (got["/broken"].total_bytes, got["/broken"].usable_bytes) == (-1, -1)


def test_only_requested_replicas_are_described() -> None:
    got = described(with_directories(), 4, [{"topic": "t", "partitions": [1, 9]}])
    assert got["/a"].topics == ()
    assert [row.partition_index for row in got["/b"].topics[0].partitions] == [1]


def test_describe_log_dirs_yields_to_the_event_loop_after_at_most_64_replicas() -> None:
    cold = Cold()
    replicas = (ReplicaLogInfo(TopicPartition("t", number), 1, 1) for number in range(640))
    has_directories(cold, Directory("/a", tuple(replicas)))
    request = entity(DESCRIBE_LOG_DIRS, 4, topics=None)
    assert sum(1 for _ in describe_log_dirs(cold.services, request, context(4))) >= 10


@pytest.mark.row("R67")
def test_directory_with_a_failed_disk_is_described_with_a_storage_error() -> None:
    cold = with_directories()
    cold.replicas.room = Mock(side_effect=StorageFailed("/a", OSError(5, "broken")))
    assert described(cold, 4, None)["/a"].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", [1, 2])
def test_alter_replica_log_dirs_returns_the_error_code_of_each_replica(version: int) -> None:
    asked = {"/a": [T0, T1], "/b/": [U0], "/broken": [T1], "/none": [T0]}
    dirs = [
        {
            "path": path,
            "topics": [{"name": tp.topic, "partitions": [tp.partition]} for tp in partitions],
        }
        for path, partitions in asked.items()
    ]
    dirs.append({"path": "/a", "topics": [{"name": "else", "partitions": [3]}]})
    request = entity(ALTER_REPLICA_LOG_DIRS, version, dirs=dirs)
    cold = with_directories()
    codes = {
        (T0, "/a"): ErrorCode.NONE,
        (T1, "/broken"): ErrorCode.KAFKA_STORAGE_ERROR,
        (T0, "/none"): ErrorCode.LOG_DIR_NOT_FOUND,
    }
    cold.replicas.moves.alter = lambda tp, path: codes.get(
        (tp, path), ErrorCode.REPLICA_NOT_AVAILABLE
    )
    answer = finished(alter_replica_log_dirs(cold.services, request, context(version)))
    frame = codec.encode_response(1, ALTER_REPLICA_LOG_DIRS, version, answer)
    got = codec.decode_response(ALTER_REPLICA_LOG_DIRS, version, frame[4:])
    assert {
        topic.topic_name: [(row.partition_index, int(row.error_code)) for row in topic.partitions]
        for topic in got.results
    } == {
        "t": [
            (0, 0),
            (1, ErrorCode.REPLICA_NOT_AVAILABLE),
            (1, ErrorCode.KAFKA_STORAGE_ERROR),
            (0, ErrorCode.LOG_DIR_NOT_FOUND),
        ],
        "u": [(0, ErrorCode.REPLICA_NOT_AVAILABLE)],
        "else": [(3, ErrorCode.REPLICA_NOT_AVAILABLE)],
    }
