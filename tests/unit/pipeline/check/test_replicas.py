"""Replicas and segment files found in log directories."""

from __future__ import annotations

import pytest
from support.replica_logs import ReplicaLogs, batch

from minikafka.base.model import TopicPartition
from minikafka.log import checkpoints
from minikafka.pipeline.check.replicas import Replica, find, log_directories
from minikafka.pipeline.failures import PipelineError

TP = TopicPartition("a-b", 3)


def test_replicas_have_the_offsets_of_their_checkpoints(tmp_path):
    logs = ReplicaLogs(tmp_path / "data", [1, 2])
    logs.append(TP, batch([b"v"], 5), base=5)
    logs.checkpoint(1, checkpoints.HIGH_WATERMARKS, {TP: 6})
    logs.checkpoint(1, checkpoints.FIRST_DIRTY_OFFSETS, {TP: 9})
    logs.checkpoint(2, checkpoints.LOG_START_OFFSETS, {TP: 7})
    (logs.directory(2) / checkpoints.CLEAN_SHUTDOWN).unlink()
    (logs.directory(2) / "gone-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    replicas, segments = find(log_directories([str(logs.path)]), [])
    assert replicas == [
        Replica(1, *TP, start=5, dense_from=9, high_watermark=6, torn_from=None),
        Replica(2, *TP, start=7, dense_from=7, high_watermark=None, torn_from=0),
    ]
    assert [(one.broker, one.base_offset) for one in segments] == [(1, 5), (2, 5)]
    assert find(log_directories([str(logs.directory(1))]), ["other"]) == ([], [])


def test_damaged_checkpoint_is_named(tmp_path):
    logs = ReplicaLogs(tmp_path / "data", [1])
    (logs.directory(1) / checkpoints.HIGH_WATERMARKS).write_text("1\n")
    with pytest.raises(PipelineError, match="replication-offset-checkpoint is invalid"):
        find(log_directories([str(logs.path)]), [])
