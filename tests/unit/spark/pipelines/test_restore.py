"""The restore pipeline without Spark: each task runs in this process, between files and brokers behind real sockets."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.kafka.encoders import Sample, by_aiokafka
from support.spark.produce_brokers import ProduceBrokers

from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock
from minikafka.spark.parquet.archive_directory import ArchiveDirectory, file_name
from minikafka.spark.parquet.archive_load import load
from minikafka.spark.pipelines import archive, restore
from minikafka.spark.pipelines.archive import ArchiveSettings
from minikafka.spark.pipelines.restore import RestoreSettings
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Report, Summary

FIRST = TopicPartition("old", 0)
DAY_MS = 86_400_000
OLD_MS = 1_000_000_000_000


@pytest.fixture
def brokers():
    """Yield brokers with the topics `old`, with 40 records in two partitions, and `new`, which is empty."""
    running = ProduceBrokers()
    for number, partition in enumerate(running.create("old", 2)):
        for start in range(0, 20, 10):
            samples = [
                Sample(OLD_MS, b"k", b"%d %d" % (number, start + index), [("h", b"1")])
                for index in range(10)
            ]
            partition.append(by_aiokafka(samples))
    running.create("new", 2)
    yield running
    running.close()


@pytest.fixture
def directory(tmp_path) -> ArchiveDirectory:
    return ArchiveDirectory(str(tmp_path / "archive"))


@pytest.fixture
def spark(monkeypatch) -> SimpleNamespace:
    for pipeline in (archive, restore):
        monkeypatch.setattr(
            pipeline, "run_tasks", lambda _, function, works: [function(work) for work in works]
        )
    return SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))


@pytest.fixture
def settings_of_topic(monkeypatch) -> dict[str, str | None]:
    """Return the settings that the target topic has. A test may change them."""
    found: dict[str, str | None] = {"retention.ms": "-1"}
    monkeypatch.setattr(restore, "topic_settings", lambda settings: found)
    return found


@pytest.fixture
def run(brokers, directory, spark, settings_of_topic):
    """Return a function that restores the archive of `old`, which is written first, to `new`."""
    archive.run(
        spark,
        ArchiveSettings(brokers.bootstrap, ("old",), directory.url, records_per_file=8),
        Report(),
    )

    def start(**given) -> Summary:
        settings = RestoreSettings(brokers.bootstrap, directory.url, "old", "new", **given)
        return restore.run(spark, settings, Report())

    return start


def restored(brokers: ProduceBrokers) -> list[int]:
    return [partition.high_watermark for partition in brokers.topics["new"]]


def test_restored_topic_is_verified_and_its_offsets_are_mapped(brokers, run):
    found = run()
    assert found.ok
    assert found.facts == {"records": 40, "verified": True}
    assert restored(brokers) == [20, 20]
    assert found.tables[1].rows == ((0, 0, 19, 0, 19, 20), (1, 0, 19, 0, 19, 20))


def test_restore_is_not_verified_if_another_program_wrote_to_the_topic(brokers, run, monkeypatch):
    def load_and_disturb(work):
        found = load(work)
        brokers.topics["new"][work.target.partition].append(by_aiokafka([Sample(1, b"k", b"v")]))
        return found

    monkeypatch.setattr(restore, "load", load_and_disturb)
    found = run()
    assert not found.ok
    assert [row[-1] for row in found.tables[0].rows] == [False, False]


def test_restore_is_not_verified_if_records_differ(brokers, run, monkeypatch):
    def load_and_replace(work):
        found = load(work)
        partition = brokers.topics["new"][work.target.partition]
        partition.truncate(0)
        for _ in range(2):
            partition.append(by_aiokafka([Sample(OLD_MS, b"k", b"other", [("h", b"1")])] * 10))
        return found

    monkeypatch.setattr(restore, "load", load_and_replace)
    assert not run().ok


def test_task_that_runs_again_writes_only_the_missing_records(brokers, run, monkeypatch):
    def load_twice(work):
        load(work)
        return load(work)

    monkeypatch.setattr(restore, "load", load_twice)
    assert run().ok
    assert restored(brokers) == [20, 20]


@pytest.mark.parametrize("position", [0, 1, -1])
def test_archive_without_one_of_its_files_is_refused(brokers, directory, run, position):
    Path(directory.url, file_name(FIRST, directory.tiles(FIRST)[position])).unlink()
    with pytest.raises(PipelineError, match=r"lacks the offsets .* of old-0"):
        run()
    assert restored(brokers) == [0, 0]


def test_archive_without_the_folder_of_a_partition_is_refused(brokers, directory, run):
    shutil.rmtree(Path(directory.url, "topic=old", "partition=1"))
    with pytest.raises(PipelineError, match="lacks the offsets 0 to 19 of old-1"):
        run()
    assert restored(brokers) == [0, 0]


def test_folder_of_a_partition_without_records_is_restored_as_no_records(brokers, directory, run):
    Path(directory.url, "topic=old", "partition=5").mkdir()
    assert run().ok
    assert restored(brokers) == [20, 20]


def test_topic_with_records_is_refused_unless_they_are_to_stay(brokers, run):
    brokers.topics["new"][1].append(by_aiokafka([Sample(1, b"k", b"v")] * 3))
    with pytest.raises(PipelineError, match="new is not empty: it holds 3 offsets"):
        run()
    found = run(append=True)
    assert found.ok
    assert found.tables[1].rows == ((0, 0, 19, 0, 19, 20), (1, 0, 19, 3, 22, 20))


def test_topic_with_too_few_partitions_is_refused(brokers, run):
    del brokers.topics["new"][1]
    with pytest.raises(PipelineError, match="new has 1 partitions, the archived one had 2"):
        run()


def test_missing_topic_is_refused_with_the_command_that_creates_it(brokers, run, monkeypatch):
    monkeypatch.setattr("minikafka.spark.wire.leaders._NEW_TOPIC_S", 0.05)
    del brokers.topics["new"]
    with pytest.raises(PipelineError, match="topics create new --partitions 2"):
        run()


def test_topic_that_replaces_timestamps_is_refused(run, settings_of_topic):
    settings_of_topic["message.timestamp.type"] = "LogAppendTime"
    with pytest.raises(PipelineError, match=r"message\.timestamp\.type=CreateTime"):
        run()


def test_restore_warns_of_retention_and_compaction(run, settings_of_topic):
    settings_of_topic |= {"retention.ms": str(DAY_MS), "cleanup.policy": "compact,delete"}
    warning = str(run().facts["warning"])
    assert "records since 2001-09-09 are older than retention.ms=86400000 of new" in warning
    assert "new is compacted" in warning


@pytest.mark.parametrize("retention_ms", [DAY_MS, 10**14, 2**63 - 1])
@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (OLD_MS * 1_000, None),
        (-62_135_596_800_001, "time -62135596800001"),
        (-OLD_MS, "1938-04-24"),
        ((2**63 - 1) // 1_000, None),
        (-(2**63 - 1) // 1_000 + 1, "time -9223372036854775"),
    ],
)
def test_restore_writes_back_times_of_any_year_under_any_retention(
    brokers, directory, spark, settings_of_topic, time_ms, text, retention_ms
):
    brokers.create("far", 1)[0].append(by_aiokafka([Sample(time_ms, b"k", b"v")]))
    settings_of_topic["retention.ms"] = str(retention_ms)
    archive.run(spark, ArchiveSettings(brokers.bootstrap, ("far",), directory.url), Report())
    settings = RestoreSettings(brokers.bootstrap, directory.url, "far", "new")
    found = restore.run(spark, settings, Report())
    assert found.ok
    is_old = text is not None and SystemClock().wall_ms() - retention_ms > time_ms
    assert ("warning" in found.facts) == is_old
    if is_old:
        assert f"records since {text} are older than retention.ms" in str(found.facts["warning"])


def test_other_topic_or_an_empty_directory_is_refused(brokers, directory, run, spark, tmp_path):
    for place, topic, message in (
        (directory.url, "other", "holds old, not other"),
        (tmp_path / "empty", "old", "empty is no archive: name a directory"),
    ):
        settings = RestoreSettings(brokers.bootstrap, str(place), topic, "new")
        with pytest.raises(PipelineError, match=message):
            restore.run(spark, settings, Report())
