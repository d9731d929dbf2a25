"""The directory of a Parquet table: what readers see when the driver is killed at any step, and after the next run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from support.spark.mortal_files import Killed, Life, MortalLocalFiles, MortalStore, memory_store

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.parquet import table_directory
from minikafka.spark.parquet.table_directory import (
    MicroBatch,
    OtherQuery,
    StagedFile,
    TableDirectory,
)
from minikafka.spark.storage import lease
from minikafka.spark.storage.files import DirectoryBusy
from minikafka.spark.storage.stored import StoredFiles

QUERY = "0f1e2d3c-aaaa"


@pytest.fixture(params=["file system", "store"])
def opened(request, tmp_path, monkeypatch) -> Callable[..., TableDirectory]:
    """Return a function that opens one table, whose driver is killed at a step of the given life."""
    bucket = memory_store()
    monkeypatch.setattr(lease, "EXPIRY_S", 0)  # a killed driver leaves its lock

    def directory(life: Life | None = None) -> TableDirectory:
        mortal = life or Life()
        files = (
            MortalLocalFiles(str(tmp_path / "table"), "Parquet table", mortal)
            if request.param == "file system"
            else StoredFiles(MortalStore(bucket, mortal), "Parquet table")
        )
        with monkeypatch.context() as patch:
            patch.setattr(table_directory, "open_files", lambda *_: files)
            return TableDirectory("")

    return directory


@pytest.fixture
def table(opened) -> TableDirectory:
    return opened()


def stage(table: TableDirectory, *texts: str, place: str = "") -> list[StagedFile]:
    found = []
    for text in texts:
        with table.files.stage("rows") as staged:
            staged.file.write(text.encode())
        found.append(StagedFile(staged.name, place, 1))
    return found


def write(table: TableDirectory, name: str) -> None:
    """Write a file under its final name, as another program does."""
    with table.locked():
        (staged,) = stage(table, "of another program")
        table.files.publish({staged.name: name})


def micro_batch(batch: int, plan: str = "") -> MicroBatch:
    return MicroBatch("/checkpoint", batch, plan or f"plan {batch}")


def add(table: TableDirectory, batch: int, *texts: str, plan: str = "") -> None:
    """Add a micro-batch as a run of a stream does: only if the table does not hold it."""
    with table.locked():
        table.check_query(QUERY)
        if not table.holds(QUERY, micro_batch(batch, plan)):
            table.add_micro_batch(QUERY, micro_batch(batch, plan), stage(table, *texts))


def texts(table: TableDirectory) -> list[str]:
    """Return the contents of the files that a reader of `**/*.parquet` sees, which also enters hidden names."""
    every = [*table.files.names(), *table.files.names("_staging"), *table.files.names("_commits")]
    return sorted(table.files.open(name).read().decode() for name in every if is_read(name))


def is_read(name: str) -> bool:
    return name.endswith(".parquet")


def test_files_of_a_micro_batch_appear_when_it_is_added(table):
    with table.locked():
        staged = stage(table, "a", "b", place="user=ann") + stage(table, "c")
        assert texts(table) == []
        table.add_micro_batch(QUERY, micro_batch(7), staged)
    assert texts(table) == ["a", "b", "c"]
    assert table.files.names() == [
        "batch-000000000007-0f1e2d3c-00002.parquet",
        "user=ann/batch-000000000007-0f1e2d3c-00000.parquet",
        "user=ann/batch-000000000007-0f1e2d3c-00001.parquet",
    ]


def deaths(opened, first, change) -> Iterator[tuple[int, TableDirectory]]:
    """Yield the table after `first`, then `change`, whose driver was killed at each of its steps in turn."""
    for at in count(1):
        life = Life()
        table = opened(life)
        with table.locked():
            table.add_batch(stage(table), overwrite=True)
        first(table)
        life.end_at(at)
        try:
            change(table)
        except Killed:
            yield at, opened()
        else:
            assert at > 8, "a change has more steps"
            return


def test_micro_batch_is_added_once_although_its_driver_was_killed_at_any_step(opened):
    for _, table in deaths(
        opened, lambda one: add(one, 0, "a", "b"), lambda one: add(one, 1, "c", "d")
    ):
        assert texts(table)[:2] == ["a", "b"]
        assert set(texts(table)) <= {"a", "b", "c", "d"}
        add(table, 1, "c", "d")
        assert texts(table) == ["a", "b", "c", "d"]
        add(table, 2, "e")
        assert texts(table) == ["a", "b", "c", "d", "e"]


def test_decided_micro_batch_is_completed_by_the_next_run_of_any_command(opened, monkeypatch):
    table = opened()
    with monkeypatch.context() as patch:
        patch.setattr(table.files, "publish", lambda _: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            add(table, 0, "a", "b")
    assert texts(table) == []
    with opened().locked():
        assert texts(table) == ["a", "b"]


def test_append_that_was_killed_can_be_repeated(opened):
    for _, table in deaths(opened, lambda one: append(one, "a"), lambda one: append(one, "b", "c")):
        assert set(texts(table)) <= {"a", "b", "c"}
        with table.locked():
            is_complete = texts(table) == ["a", "b", "c"]
            assert is_complete or texts(table) == ["a"]
        if not is_complete:
            append(table, "b", "c")
        assert texts(table) == ["a", "b", "c"]


def test_overwrite_that_was_killed_leaves_old_or_new_rows_after_the_next_run(opened):
    def overwrite(table: TableDirectory) -> None:
        append(table, "c", "d", overwrite=True)

    ends = []
    for _, table in deaths(opened, lambda one: append(one, "a", "b"), overwrite):
        with table.locked():
            ends.append("".join(texts(table)))
    assert ends == sorted(ends)
    assert set(ends) == {"ab", "cd"}


def append(table: TableDirectory, *contents: str, overwrite: bool = False) -> None:
    with table.locked():
        table.add_batch(stage(table, *contents), overwrite=overwrite)


def test_overwrite_removes_old_directories_and_the_state_of_streams(table):
    with table.locked():
        table.add_micro_batch(QUERY, micro_batch(3), stage(table, "a", place="user=ann/day=1"))
        (old,) = stage(table, "v1")
        table.files.publish({old.name: "_spark_metadata/0"})
        table.add_batch(stage(table, "b"), overwrite=True)
        table.check_format()
        table.check_query(None)
    assert texts(table) == ["b"]
    assert "user=ann" not in table.files.folders()


def test_files_that_a_reader_removed_do_not_come_back(table):
    add(table, 0, "a")
    table.files.remove(table.files.names())
    with table.locked():
        assert texts(table) == []
        assert table.holds(QUERY, micro_batch(0))


def test_micro_batch_with_a_prefix_replaces_the_files_of_this_directory(table):
    write(table, "batch=5/part-0.parquet")
    with table.locked():
        table.add_micro_batch(QUERY, micro_batch(5), stage(table, "a"), prefix="batch=5")
    assert table.files.names() == ["batch=5/batch-000000000005-0f1e2d3c-00000.parquet"]


def test_older_copy_of_a_checkpoint_is_refused_instead_of_losing_rows(table):
    add(table, 0, "a")
    add(table, 1, "b")
    for batch, plan in ((0, ""), (1, "other offsets")):
        with pytest.raises(OtherQuery, match=f"older copy, from which micro-batch {batch} differs"):
            add(table, batch, "c", plan=plan)
    assert texts(table) == ["a", "b"]


@pytest.mark.parametrize("query", [None, "another"])
def test_stream_with_another_checkpoint_is_refused_with_the_known_checkpoint(table, query):
    add(table, 0, "a")
    with pytest.raises(OtherQuery, match="whose checkpoint was /checkpoint: continue with this"):
        table.check_query(query)
    table.check_query(QUERY)


def test_table_of_the_file_sink_of_spark_is_refused_with_a_way_out(table):
    write(table, "_spark_metadata/0")
    with pytest.raises(
        ConfigError, match="name a new directory and a new checkpoint, or first copy"
    ):
        table.check_format()


def test_archive_is_refused_as_a_table(table):
    write(table, "_runs/first.json")
    with pytest.raises(ConfigError, match="is an archive of topics: name another directory"):
        table.check_format()


def test_second_driver_is_refused_while_the_first_one_adds_rows_to_a_table(tmp_path):
    table, other = (TableDirectory(str(tmp_path)) for _ in range(2))
    with (
        table.locked(),
        pytest.raises(DirectoryBusy, match=f"process {os.getpid()} writes the Parquet table"),
        other.locked(),
    ):
        pass


def test_file_that_only_an_executor_sees_is_not_added_to_a_table(table):
    text = "all executors share|let only one process"
    with table.locked(), pytest.raises(MinikafkaError, match=text):
        table.add_micro_batch(QUERY, micro_batch(0), [StagedFile("elsewhere", "", 1)])
    assert not table.holds(QUERY, micro_batch(0))
