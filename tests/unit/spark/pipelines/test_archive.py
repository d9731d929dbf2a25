"""The archive pipeline without Spark: each task runs in this process, and reads from brokers behind real sockets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow.dataset as ds
import pytest
from support.kafka.encoders import Sample, by_aiokafka
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import ArchiveDirectory, Tile, file_name
from minikafka.spark.pipelines import archive
from minikafka.spark.pipelines.archive import ArchiveSettings
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Report, Summary
from minikafka.spark.storage.files import DirectoryBusy
from minikafka.spark.storage.local import LocalFiles

TEN = by_aiokafka([Sample(1, b"k", b"v")] * 10)
FIRST = TopicPartition("lines", 0)


@pytest.fixture
def brokers():
    """Yield a broker with the topic `lines`, whose partitions have the end offsets 30 and 10."""
    running = FetchBrokers()
    first, second = running.create("lines", 2)
    for partition in (first, first, first, second):
        partition.append(TEN)
    running.topic_ids["lines"] = bytes(range(16))
    yield running
    running.close()


@pytest.fixture
def directory(tmp_path) -> ArchiveDirectory:
    return ArchiveDirectory(str(tmp_path / "archive"))


@pytest.fixture
def save(brokers, directory, monkeypatch):
    """Return a function that runs the pipeline, with files of at most 12 offsets."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    monkeypatch.setattr(
        archive, "run_tasks", lambda _, function, works: [function(work) for work in works]
    )

    def run(**given) -> Summary:
        given = {"topics": ("lines",), "records_per_file": 12, **given}
        settings = ArchiveSettings(brokers.bootstrap, directory=directory.url, **given)
        return archive.run(spark, settings, Report())

    return run


def offsets(directory: ArchiveDirectory, partition: int = 0) -> list[int]:
    table = ds.dataset(directory.url, partitioning="hive").to_table()
    return sorted(row["offset"] for row in table.to_pylist() if row["partition"] == partition)


def test_every_offset_is_in_one_file_and_the_next_run_adds_only_new_ones(brokers, directory, save):
    assert save().facts["records"] == 40
    assert directory.tiles(FIRST) == [Tile(0, 12), Tile(12, 24), Tile(24, 30)]
    assert save().facts["files"] == 0
    brokers.topics["lines"][0].append(TEN)
    assert save().facts["records"] == 10
    assert directory.tiles(FIRST)[-2:] == [Tile(30, 36), Tile(36, 40)]
    assert offsets(directory) == list(range(40))


def test_only_committed_records_are_archived(brokers, directory, save):
    brokers.topics["lines"][0].last_stable = 20
    save()
    assert offsets(directory) == list(range(20))
    brokers.topics["lines"][0].last_stable = 30
    save()
    assert offsets(directory) == list(range(30))


@pytest.mark.parametrize("at", range(4))
def test_run_after_a_crash_fills_the_gaps(directory, save, monkeypatch, at):
    move = LocalFiles.move
    moved = []

    def failing(self, staged, final):
        if len(moved) == at:
            raise InterruptedError
        move(self, staged, final)
        moved.append(final)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "move", failing)
        with pytest.raises(InterruptedError):
            save()
    save()
    assert (offsets(directory), offsets(directory, 1)) == (list(range(30)), list(range(10)))


def test_file_that_is_missing_in_the_middle_or_at_the_start_is_written_again(directory, save):
    save()
    for tile in directory.tiles(FIRST)[:2]:
        Path(directory.url, file_name(FIRST, tile)).unlink()
    assert save().facts["records"] == 24
    assert offsets(directory) == list(range(30))


def test_deleted_records_fail_the_run_or_are_listed_as_lost(brokers, directory, save):
    partition = brokers.topics["lines"][0]
    partition.log_start = 5
    assert save().facts["records"] == 35
    partition.append(TEN)
    partition.log_start = 33
    with pytest.raises(PipelineError, match="offsets 30 to 32 of lines-0 were deleted before"):
        save()
    saved = save(skip_lost=True)
    assert (saved.facts["records"], saved.facts["lost_offsets"]) == (7, 3)
    assert save().facts["files"] == 0
    assert offsets(directory) == [*range(5, 30), *range(33, 40)]


def test_records_that_were_all_deleted_are_listed_as_lost_once(brokers, directory, save):
    save()
    partition = brokers.topics["lines"][0]
    partition.append(TEN)
    partition.log_start = 40
    assert save(skip_lost=True).facts["lost_offsets"] == 10
    assert save().facts == save(skip_lost=True).facts
    partition.append(TEN)
    assert save().facts["records"] == 10


def test_partition_whose_files_and_records_are_gone_has_no_row_in_the_summary(
    brokers, directory, save
):
    save()
    for tile in directory.tiles(FIRST):
        Path(directory.url, file_name(FIRST, tile)).unlink()
    brokers.topics["lines"][0].log_start = 30
    found = save(skip_lost=True)
    assert found.facts["lost_offsets"] == 30
    assert [row[1] for row in found.tables[0].rows] == [1]


def test_topic_that_is_named_twice_is_archived_once(brokers, directory, save):
    assert save(topics=("lines", "lines")).facts["records"] == 40
    assert len(save(topics=("lines", "lines")).tables[0].rows) == 2


def test_topic_that_was_created_again_is_refused(brokers, directory, save):
    save()
    brokers.topic_ids["lines"] = bytes(range(1, 17))
    with pytest.raises(PipelineError, match="of the former log; archive to a new directory"):
        save()
    assert offsets(directory) == list(range(30))


def test_log_that_was_truncated_is_refused(brokers, directory, save, monkeypatch):
    monkeypatch.setattr("minikafka.spark.source.planning._LATE_END_S", 0.05)
    save()
    brokers.topics["lines"][0].truncate(20)
    brokers.move("lines", 0, 0)
    brokers.topics["lines"][0].append(TEN)
    brokers.topics["lines"][0].append(TEN)
    with pytest.raises(PipelineError, match="records 20 to 29 of lines-0 were read but are no"):
        save()


def test_second_run_at_the_same_time_is_refused(directory, save):
    with directory.locked(), pytest.raises(DirectoryBusy):
        save()
