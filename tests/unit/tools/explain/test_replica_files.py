"""Offsets of a replica, read from the files of its broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.storage.logs import batch

from minikafka.base.model import TopicPartition
from minikafka.storage.log.checkpoints import HIGH_WATERMARKS, encode_offsets
from minikafka.tools.explain.evidence import ReplicaFiles
from minikafka.tools.explain.gather import read_replica_files

TP = TopicPartition("t", 0)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    return tmp_path


def segment(log_dir: Path, base: int) -> Path:
    return log_dir / "t-0" / f"{base:020d}.log"


def test_log_end_is_after_the_last_batch_of_the_last_segment(log_dir: Path) -> None:
    segment(log_dir, 0).write_bytes(batch(5))
    segment(log_dir, 5).write_bytes(batch(3, base_offset=5) + batch(4, base_offset=8))
    (log_dir / HIGH_WATERMARKS).write_bytes(encode_offsets({TP: 9}))
    assert read_replica_files(log_dir, TP) == ReplicaFiles(high_watermark=9, log_end_offset=12)


def test_truncated_batch_is_ignored(log_dir: Path) -> None:
    segment(log_dir, 0).write_bytes(batch(5) + batch(4, base_offset=5)[:-3])
    assert read_replica_files(log_dir, TP).log_end_offset == 5


def test_log_end_of_an_empty_segment_is_its_base_offset(log_dir: Path) -> None:
    segment(log_dir, 40).write_bytes(b"")
    assert read_replica_files(log_dir, TP).log_end_offset == 40


def test_offsets_of_missing_files_are_none(tmp_path: Path) -> None:
    assert read_replica_files(tmp_path, TP) == ReplicaFiles(None, None)
    (tmp_path / HIGH_WATERMARKS).write_bytes(b"nonsense")
    assert read_replica_files(tmp_path, TP).high_watermark is None
