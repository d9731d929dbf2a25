"""The directory of a Parquet table: what readers see when the driver is killed at any step, and after the next run."""

from __future__ import annotations

import os

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.parquet.staging import DirectoryBusy
from minikafka.spark.parquet.table_directory import (
    MicroBatch,
    OtherQuery,
    StagedFile,
    TableDirectory,
)

QUERY = "0f1e2d3c-aaaa"


class Killed(BaseException):
    """Stands for a `kill -9` of the driver."""


class Mortal(TableDirectory):
    """A directory whose driver is killed at the step with the number `at`, counted over all steps."""

    at = 0
    steps = 0

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise Killed

    def write_facts(self, folder, name, facts):
        self._step()
        super().write_facts(folder, name, facts)
        self._step()

    def publish(self, staged, final):
        self._step()
        super().publish(staged, final)
        self._step()

    def remove_staged(self):
        self._step()
        super().remove_staged()

    def _end_batch(self):
        self._step()
        super()._end_batch()


@pytest.fixture
def table(tmp_path) -> TableDirectory:
    return TableDirectory(str(tmp_path / "table"))


def stage(table: TableDirectory, *texts: str, place: str = "") -> list[StagedFile]:
    found = []
    for text in texts:
        file = table.staged_file("rows")
        file.write_text(text)
        found.append(StagedFile(file.name, place, 1))
    return found


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
    return sorted(file.read_text() for file in table.path.rglob("*.parquet"))


def test_files_of_a_micro_batch_appear_when_it_is_added(table):
    with table.locked():
        staged = stage(table, "a", "b", place="user=ann") + stage(table, "c")
        assert texts(table) == []
        table.add_micro_batch(QUERY, micro_batch(7), staged)
    assert texts(table) == ["a", "b", "c"]
    assert table.files() == [
        "batch-000000000007-0f1e2d3c-00002.parquet",
        "user=ann/batch-000000000007-0f1e2d3c-00000.parquet",
        "user=ann/batch-000000000007-0f1e2d3c-00001.parquet",
    ]


@pytest.mark.parametrize("at", range(1, 12))
def test_micro_batch_is_added_once_although_its_driver_was_killed_at_any_step(tmp_path, at):
    table = Mortal(str(tmp_path))
    add(table, 0, "a", "b")
    table.steps, table.at = 0, at
    try:
        add(table, 1, "c", "d")
        was_killed = False
    except Killed:
        was_killed = True
    assert was_killed == (at <= 8)
    assert texts(table)[:2] == ["a", "b"]
    assert set(texts(table)) <= {"a", "b", "c", "d"}
    after = TableDirectory(str(tmp_path))
    add(after, 1, "c", "d")
    assert texts(after) == ["a", "b", "c", "d"]
    add(after, 2, "e")
    assert texts(after) == ["a", "b", "c", "d", "e"]


def test_decided_micro_batch_is_completed_by_the_next_run_of_any_command(tmp_path):
    table = Mortal(str(tmp_path))
    table.at = 3
    with pytest.raises(Killed):
        add(table, 0, "a", "b")
    assert texts(table) == []
    with TableDirectory(str(tmp_path)).locked():
        assert texts(table) == ["a", "b"]


@pytest.mark.parametrize("at", range(1, 12))
def test_append_that_was_killed_can_be_repeated(tmp_path, at):
    table = Mortal(str(tmp_path))
    append(table, "a")
    table.steps, table.at = 0, at
    try:
        append(table, "b", "c")
        was_killed = False
    except Killed:
        was_killed = True
    assert was_killed == (at <= 9)
    if was_killed and at < 9:
        append(TableDirectory(str(tmp_path)), "b", "c")
    assert texts(table) == ["a", "b", "c"]


@pytest.mark.parametrize("at", range(1, 10))
def test_overwrite_that_was_killed_leaves_old_or_new_rows_after_the_next_run(tmp_path, at):
    table = Mortal(str(tmp_path))
    append(table, "a", "b")
    table.steps, table.at = 0, at
    with pytest.raises(Killed):
        append(table, "c", "d", overwrite=True)
    with TableDirectory(str(tmp_path)).locked():
        assert texts(table) == (["a", "b"] if at <= 2 else ["c", "d"])


def append(table: TableDirectory, *contents: str, overwrite: bool = False) -> None:
    with table.locked():
        table.add_batch(stage(table, *contents), overwrite=overwrite)


def test_overwrite_removes_old_directories_and_the_state_of_streams(table):
    with table.locked():
        table.add_micro_batch(QUERY, micro_batch(3), stage(table, "a", place="user=ann/day=1"))
        (table.path / "_spark_metadata").mkdir()
        (table.path / "_spark_metadata" / "0").write_text("v1")
        table.add_batch(stage(table, "b"), overwrite=True)
        table.check_format()
        table.check_query(None)
    assert texts(table) == ["b"]
    assert not (table.path / "user=ann").exists()


def test_files_that_a_reader_removed_do_not_come_back(table):
    add(table, 0, "a")
    for file in table.files():
        (table.path / file).unlink()
    with table.locked():
        assert texts(table) == []
        assert table.holds(QUERY, micro_batch(0))


def test_micro_batch_with_a_prefix_replaces_the_files_of_this_directory(table):
    old = table.path / "batch=5" / "part-0.parquet"
    old.parent.mkdir(parents=True)
    old.write_text("of a former run")
    with table.locked():
        table.add_micro_batch(QUERY, micro_batch(5), stage(table, "a"), prefix="batch=5")
    assert table.files() == ["batch=5/batch-000000000005-0f1e2d3c-00000.parquet"]


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
    (table.path / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(
        ConfigError, match="name a new directory and a new checkpoint, or first copy"
    ):
        table.check_format()


def test_archive_is_refused_as_a_table(table):
    (table.path / "_runs").mkdir(parents=True)
    with pytest.raises(ConfigError, match="is an archive of topics: name another directory"):
        table.check_format()


def test_second_driver_is_refused_while_the_first_one_adds_rows_to_a_table(table):
    other = TableDirectory(str(table.path))
    with (
        table.locked(),
        pytest.raises(DirectoryBusy, match=f"process {os.getpid()} writes the Parquet table"),
        other.locked(),
    ):
        pass


def test_file_that_only_an_executor_sees_is_not_added_to_a_table(table):
    with table.locked(), pytest.raises(ConfigError, match="a Parquet table is a directory that"):
        table.add_micro_batch(QUERY, micro_batch(0), [StagedFile("elsewhere", "", 1)])
    assert not table.holds(QUERY, micro_batch(0))
