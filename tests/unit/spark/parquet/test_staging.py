"""The order in which a directory with staged files syncs and moves them, which a power cut requires."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import ArchiveDirectory, Tile
from minikafka.spark.parquet.table_directory import MicroBatch, StagedFile, TableDirectory
from minikafka.spark.parquet.table_save import TableStage, write_empty


@pytest.fixture
def steps(tmp_path, monkeypatch) -> list[str]:
    """Return the list of all syncs and moves below the test's directory. Random names of staged files become `?`."""
    found: list[str] = []
    fsync, replace = os.fsync, os.replace

    def named(path: str | Path) -> str:
        name = str(Path(path).relative_to(tmp_path))
        folder, _, _ = name.rpartition("/")
        return f"{folder}/?" if folder == "_staging" else name

    def recorded_fsync(descriptor: int) -> None:
        found.append(f"sync {named(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        found.append(f"move {named(source)} to {named(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    return found


def test_micro_batch_is_synced_before_it_is_decided_and_decided_before_it_is_moved(tmp_path, steps):
    table = TableDirectory(str(tmp_path))
    rows = pa.RecordBatch.from_pydict({"n": [1]})
    (batch,) = TableStage(str(tmp_path), (), "zstd").write(iter([rows]))
    staged = [StagedFile(**row)._replace(place="user=ann") for row in batch.to_pylist()]
    table.add_micro_batch("query", MicroBatch("/checkpoint", 3, "plan"), staged)
    assert steps == [
        "sync _staging/?",
        "sync _staging",
        "sync _commits/query.draft",
        "move _commits/query.draft to _commits/query.json",
        "sync _commits",
        "sync .",
        "move _staging/? to user=ann/batch-000000000003-query-00000.parquet",
        "sync user=ann",
        "sync .",
    ]


def test_batch_forgets_its_decision_only_after_all_files_were_moved(tmp_path, steps):
    table = TableDirectory(str(tmp_path))
    staged = write_empty(table, pa.schema([("n", pa.int64())]), "zstd")
    table.add_batch([staged], overwrite=False)
    assert steps[0] == "sync _staging/?"
    moves = [step for step in steps if step.startswith("move")]
    assert [move.split(" to ")[0] for move in moves] == [
        "move _commits/batch.draft",
        "move _staging/?",
    ]
    assert steps[-3].startswith("move _staging/? to part-")
    assert steps[-2:] == ["sync .", "sync _commits"]


def test_folders_are_synced_once_after_all_files_of_a_change_were_moved(tmp_path, steps):
    archive = ArchiveDirectory(str(tmp_path))
    staged = {}
    for partition, tile in ((0, Tile(0, 5)), (0, Tile(5, 9)), (1, Tile(0, 5))):
        with archive.files.stage("rows") as file:
            staged[file.name] = (TopicPartition("t", partition), tile)
    steps.clear()
    archive.add(staged)
    moves = [index for index, step in enumerate(steps) if step.startswith("move _staging")]
    assert len(moves) == 3
    assert steps[moves[-1] + 1 :] == [
        "sync topic=t/partition=1",
        "sync topic=t/partition=0",
        "sync topic=t",
        "sync .",
    ]


def test_archived_file_is_moved_and_its_new_name_is_synced(tmp_path, steps):
    archive = ArchiveDirectory(str(tmp_path))
    with archive.files.stage("rows") as staged:
        staged.file.write(b"rows")
    archive.add({staged.name: (TopicPartition("t", 0), Tile(0, 5))})
    name = "topic=t/partition=0"
    assert steps == [
        "sync _staging/?",
        f"move _staging/? to {name}/{Tile(0, 5).file_name}",
        f"sync {name}",
        "sync topic=t",
        "sync .",
    ]
    steps.clear()
    archive.write_run("run", {})
    assert steps == [
        "sync _runs/run.draft",
        "move _runs/run.draft to _runs/run.json",
        "sync _runs",
        "sync .",
    ]


def test_new_directory_of_files_has_a_durable_name(tmp_path, steps):
    table = TableDirectory(str(tmp_path / "new" / "table"))
    with table.locked():
        pass
    assert [step for step in steps if step in ("sync .", "sync new")] == ["sync new", "sync ."]
    steps.clear()
    with table.locked():
        pass
    assert "sync new" not in steps
