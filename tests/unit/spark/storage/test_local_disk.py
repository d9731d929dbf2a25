"""Directories on a disk that is full, or where this user has no rights."""

from __future__ import annotations

import gc
import os
import resource
import sys

import pyarrow as pa
import pytest

from minikafka.spark.lakehouse.places import NO_OPTIONS, data_files
from minikafka.spark.lakehouse.stage import FileStage
from minikafka.spark.storage.local import LocalFiles
from minikafka.spark.storage.store import StorageError

FULL = "/dev/full"
"""A device on which every write fails as on a full disk."""
NOT_ALLOWED = "/sys/minikafka"
"""A directory that no user can create."""


def test_full_disk_is_named_with_the_file_and_the_remedy(tmp_path):
    files = LocalFiles(str(tmp_path), "archive")
    with (
        pytest.raises(StorageError, match=f"{tmp_path}/_staging/x.* cannot be written: No space"),
        files.stage("x"),
        open(FULL, "wb", buffering=0) as full,
    ):
        full.write(b"x")


def test_directory_without_rights_is_named_with_the_remedy():
    with (
        pytest.raises(StorageError, match=f"^{NOT_ALLOWED} cannot be written: .*, and start again"),
        LocalFiles(NOT_ALLOWED, "archive").locked(lambda: None),
    ):
        pass
    with (
        pytest.raises(StorageError, match=f"^{NOT_ALLOWED}/x cannot be written: .*, and start"),
        data_files(NOT_ALLOWED, NO_OPTIONS).open_output("x"),
    ):
        pass


@pytest.mark.parametrize("part", [0.5, 0.9999], ids=["rows", "footer"])
def test_file_that_is_too_large_for_its_disk_is_named_by_the_task_that_writes_a_table(
    tmp_path, monkeypatch, part
):
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    stage = FileStage(pa.schema([("value", pa.binary())]), (), str(tmp_path), "test")
    rows = [pa.RecordBatch.from_pydict({"value": [os.urandom(1 << 20)]})]
    [whole] = stage.files(rows)
    os.unlink(whole.path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(part * whole.bytes), hard))
    try:
        with pytest.raises(StorageError, match=f"^{tmp_path}/test-.* cannot be written: File too"):
            list(stage.files(rows))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    gc.collect()
    assert ignored == []
