"""Replicas and segment files found in log directories."""

from __future__ import annotations

import fcntl

import pytest
from support.storage.replica_logs import ReplicaLogs, batch

from minikafka.base.model import TopicPartition
from minikafka.checks.replicas.log_directories import (
    CheckedReplica,
    find,
    log_directories,
    running_brokers,
)
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.storage.log import checkpoints

TP = TopicPartition("a-b", 3)


def test_offsets_of_replicas_are_read_from_the_checkpoint_files(tmp_path):
    logs = ReplicaLogs(tmp_path / "data", [1, 2])
    logs.append(TP, batch([b"v"], 5), base=5)
    logs.checkpoint(1, checkpoints.HIGH_WATERMARKS, {TP: 6})
    logs.checkpoint(1, checkpoints.FIRST_DIRTY_OFFSETS, {TP: 9})
    logs.checkpoint(2, checkpoints.LOG_START_OFFSETS, {TP: 7})
    (logs.directory(2) / checkpoints.CLEAN_SHUTDOWN).unlink()
    (logs.directory(2) / "gone-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    replicas, segments = find(log_directories([str(logs.path)]), [])
    assert replicas == [
        CheckedReplica(1, *TP, start=5, dense_from=9, high_watermark=6, torn_from=None),
        CheckedReplica(2, *TP, start=7, dense_from=7, high_watermark=None, torn_from=0),
    ]
    assert [(one.broker, one.base_offset) for one in segments] == [(1, 5), (2, 5)]
    assert find(log_directories([str(logs.directory(1))]), ["other"]) == ([], [])


def test_error_about_a_damaged_checkpoint_names_it(tmp_path):
    logs = ReplicaLogs(tmp_path / "data", [1])
    (logs.directory(1) / checkpoints.HIGH_WATERMARKS).write_text("1\n")
    with pytest.raises(PipelineError, match="replication-offset-checkpoint is invalid"):
        find(log_directories([str(logs.path)]), [])


def test_directories_of_several_clusters_are_refused(tmp_path):
    ours, theirs = ReplicaLogs(tmp_path / "ours", [1]), ReplicaLogs(tmp_path / "theirs", [2])
    properties = {"version": "0", "broker.id": "2", "cluster.id": "other"}
    (theirs.directory(2) / checkpoints.META_PROPERTIES).write_bytes(
        checkpoints.encode_properties(properties)
    )
    with pytest.raises(PipelineError, match=r"several clusters: .*broker-1 of cluster c, .*other"):
        log_directories([str(ours.path), str(theirs.path)])


def test_log_directory_that_is_named_twice_is_listed_once(tmp_path):
    logs = ReplicaLogs(tmp_path / "data", [1, 2])
    assert len(log_directories([str(logs.path), str(logs.directory(1))])) == 2


def test_two_copies_of_one_replica_are_refused(tmp_path):
    paths = []
    for name in ("a", "b"):
        logs = ReplicaLogs(tmp_path / name, [1])
        logs.append(TP, batch([b"v"], 0))
        paths.append(str(logs.path))
    with pytest.raises(PipelineError, match="are the same replica of broker 1"):
        find(log_directories(paths), [])


def test_error_about_a_missing_log_directory_names_it(tmp_path):
    with pytest.raises(PipelineError, match=r"there is no directory .*gone"):
        log_directories([str(tmp_path / "gone")])


def test_broker_that_holds_the_lock_of_its_log_directory_is_running(tmp_path):
    logs = ReplicaLogs(tmp_path / "data", [1, 2])
    directories = log_directories([str(logs.path)])
    (logs.directory(2) / ".lock").touch()
    assert running_brokers(directories) == []
    with (logs.directory(2) / ".lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert running_brokers(directories) == [2]
