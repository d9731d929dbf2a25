"""The directory of an archive: staged files are added once, by one driver at a time."""

from __future__ import annotations

import os

import pytest
from support.spark.mortal_files import memory_store

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import (
    ArchiveDirectory,
    Overlap,
    Tile,
)
from minikafka.spark.storage.files import DirectoryBusy
from minikafka.spark.storage.stored import StoredFiles

TP = TopicPartition("events", 0)


@pytest.fixture
def archive(tmp_path) -> ArchiveDirectory:
    return ArchiveDirectory(str(tmp_path / "archive"))


def stage(archive: ArchiveDirectory, tile: Tile, text: str = "rows") -> str:
    """Write a staged file, and return its name."""
    with archive.files.stage(tile.file_name) as staged:
        staged.file.write(text.encode())
    return staged.name


def test_staged_file_appears_when_it_is_committed(archive):
    with archive.locked():
        staged = stage(archive, Tile(0, 10))
        assert archive.tiles(TP) == []
        archive.add({staged: (TP, Tile(0, 10))})
    assert archive.topics() == ["events"]
    assert archive.partitions("events") == [0]
    assert archive.tiles(TP) == [Tile(0, 10)]
    assert archive.open(TP, Tile(0, 10)).read() == b"rows"


def test_file_whose_offsets_overlap_a_committed_file_is_not_committed(archive):
    with archive.locked():
        archive.add({stage(archive, Tile(0, 10)): (TP, Tile(0, 10))})
        with pytest.raises(Overlap):
            archive.add({stage(archive, Tile(5, 15)): (TP, Tile(5, 15))})
    assert archive.tiles(TP) == [Tile(0, 10)]


def test_second_driver_is_refused_while_the_first_one_writes(archive):
    other = ArchiveDirectory(archive.url)
    busy = pytest.raises(DirectoryBusy, match=f"process {os.getpid()} writes the archive")
    with archive.locked(), busy, other.locked():
        pass


def test_staged_files_of_a_dead_run_are_removed(archive):
    with archive.locked():
        pass
    staged = stage(archive, Tile(0, 10))
    with archive.locked(), pytest.raises(ConfigError):
        archive.files.check_staged([staged])


def test_commit_of_a_file_that_only_an_executor_sees_is_refused(archive):
    with archive.locked(), pytest.raises(ConfigError, match="all executors share"):
        archive.add({"elsewhere": (TP, Tile(0, 1))})


def test_two_files_of_one_commit_that_overlap_are_not_committed(archive):
    with archive.locked():
        staged = {stage(archive, tile): (TP, tile) for tile in (Tile(0, 10), Tile(5, 15))}
        with pytest.raises(Overlap):
            archive.add(staged)
    assert archive.tiles(TP) == []


def test_run_that_dies_between_two_files_leaves_a_gap_for_the_next_run(archive, monkeypatch):
    with archive.locked():
        staged = {stage(archive, tile): (TP, tile) for tile in (Tile(0, 10), Tile(10, 15))}
        moved = iter([os.replace])
        monkeypatch.setattr(archive.files, "move", lambda *names: next(moved)(*names))
        with pytest.raises(StopIteration):
            archive.add(staged)
    with ArchiveDirectory(archive.url).locked():
        assert archive.tiles(TP) == [Tile(0, 10)]


def test_files_that_a_killed_run_has_decided_to_add_to_a_store_are_added_by_the_next_run(archive):
    store = memory_store()
    archive.files = StoredFiles(store, "archive")
    with archive.locked():
        staged = {stage(archive, tile): (TP, tile) for tile in (Tile(0, 10), Tile(10, 15))}
        archive.files.publish = lambda _: None
        archive.add(staged)
        archive.files.remove_folder = lambda _: None
    assert archive.tiles(TP) == []
    archive.files = StoredFiles(store, "archive")
    with archive.locked():
        assert archive.tiles(TP) == [Tile(0, 10), Tile(10, 15)]


def test_archive_runs_are_listed_in_the_order_of_their_run_names(archive):
    with archive.locked():
        archive.write_run("20260102T000000-b", {"files": [2]})
        archive.write_run("20260101T000000-a", {"files": [1]})
        archive.write_run("20260101T000000-a", {"files": [1, 3]})
    assert archive.runs() == [{"files": [1, 3]}, {"files": [2]}]
