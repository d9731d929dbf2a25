"""The directory of an archive: staged files are added once, by one driver at a time."""

from __future__ import annotations

import os

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import ArchiveDirectory, Overlap, Tile
from minikafka.spark.parquet.staging import DirectoryBusy

TP = TopicPartition("events", 0)


@pytest.fixture
def archive(tmp_path) -> ArchiveDirectory:
    return ArchiveDirectory(str(tmp_path / "archive"))


def stage(archive: ArchiveDirectory, tile: Tile, text: str = "rows"):
    staged = archive.staged_file(tile.file_name)
    staged.write_text(text)
    return staged


def test_staged_file_appears_when_it_is_committed(archive):
    with archive.locked():
        staged = stage(archive, Tile(0, 10))
        assert archive.tiles(TP) == []
        archive.commit(staged, TP, Tile(0, 10))
    assert archive.topics() == ["events"]
    assert archive.partitions("events") == [0]
    assert archive.tiles(TP) == [Tile(0, 10)]
    assert archive.file(TP, Tile(0, 10)).read_text() == "rows"


def test_file_whose_offsets_overlap_a_committed_file_is_not_committed(archive):
    with archive.locked():
        archive.commit(stage(archive, Tile(0, 10)), TP, Tile(0, 10))
        with pytest.raises(Overlap):
            archive.commit(stage(archive, Tile(5, 15)), TP, Tile(5, 15))
    assert archive.tiles(TP) == [Tile(0, 10)]


def test_second_driver_is_refused_while_the_first_one_writes(archive):
    other = ArchiveDirectory(str(archive.path))
    busy = pytest.raises(DirectoryBusy, match=f"process {os.getpid()} writes the archive")
    with archive.locked(), busy, other.locked():
        pass


def test_staged_files_of_a_dead_run_are_removed(archive):
    with archive.locked():
        pass
    staged = stage(archive, Tile(0, 10))
    with archive.locked():
        assert not staged.exists()


def test_commit_of_a_file_that_only_an_executor_sees_is_refused(archive, tmp_path):
    with archive.locked(), pytest.raises(ConfigError, match="all executors share"):
        archive.commit(tmp_path / "elsewhere", TP, Tile(0, 1))


@pytest.mark.parametrize("path", ["s3://bucket/archive", "file:/tmp/archive", "hdfs:/archive"])
def test_uri_as_archive_directory_is_refused(path):
    with pytest.raises(ConfigError, match=r"an archive is a directory .*, not a URI"):
        ArchiveDirectory(path)


def test_archive_runs_are_listed_in_the_order_of_their_run_names(archive):
    with archive.locked():
        archive.write_run("20260102T000000-b", {"files": [2]})
        archive.write_run("20260101T000000-a", {"files": [1]})
        archive.write_run("20260101T000000-a", {"files": [1, 3]})
    assert archive.runs() == [{"files": [1, 3]}, {"files": [2]}]
