"""Parquet files of streams and batches in a Spark session whose driver fails. Unit tests fail it at every step."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame

from minikafka.base.errors import ConfigError
from minikafka.spark.parquet.table_directory import TableDirectory
from minikafka.spark.pipelines.session.failures import PipelineError, explain
from minikafka.spark.pipelines.streams.tables import TableSettings, save_table, table_stream
from minikafka.spark.storage.local import LocalFiles


class Killed(RuntimeError):
    """Stands for a `kill -9` of the driver."""


def rows_of(path: Path) -> list[tuple[str, ...]]:
    """Return the rows that pyarrow reads, sorted."""
    table = ds.dataset(path, partitioning="hive").to_table()
    return sorted(tuple(str(row[name]) for name in sorted(row)) for row in table.to_pylist())


@pytest.fixture
def run(spark, tmp_path):
    """Return a function that runs a stream of distinct lines and returns how many lines it read.

    Each file in `lines` is one micro-batch.
    """
    (tmp_path / "lines").mkdir()

    def start(partition_by: tuple[str, ...] = (), checkpoint: str = "checkpoint") -> int:
        text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "lines"))
        frame = text.dropDuplicates().selectExpr("value line", "left(value, 1) first")
        settings = TableSettings(str(tmp_path / "out"), partition_by)
        place = str(tmp_path / checkpoint)
        with table_stream(spark, settings, place) as add:
            writer = frame.writeStream.foreachBatch(add).option("checkpointLocation", place)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        return sum(progress.numInputRows for progress in query.recentProgress)

    return start


def fail_after(patch: pytest.MonkeyPatch, kind: type, name: str, batch: str) -> None:
    """Make a method of a class raise `Killed` after its first call with the text `batch` in its arguments."""
    method = getattr(kind, name)

    def failing(self, *given, **named):
        method(self, *given, **named)
        if batch in str(given):
            raise Killed

    patch.setattr(kind, name, failing)


STEPS = {
    "one of two files moved": (LocalFiles, "move", "{:012d}", 1),
    "all moved, not known to Spark": (TableDirectory, "add_micro_batch", "batch={}", 2),
}
"""For each step: the class and method after which the driver fails, its call, and the new rows then seen."""


def test_each_row_is_read_once_although_the_driver_fails_between_the_moves(
    spark, run, tmp_path, monkeypatch
):
    """Each run first repeats the micro-batch in which the previous run failed, then fails in its own."""
    wanted: list[tuple[str, str]] = []
    for number, (step, (kind, name, call, seen)) in enumerate(STEPS.items()):
        lines = [("a", f"a{number}"), ("b", f"b{number}")]
        (tmp_path / "lines" / f"{number}.txt").write_text("".join(f"{two}\n" for _, two in lines))
        with monkeypatch.context() as patch:
            fail_after(patch, kind, name, call.format(number))
            with pytest.raises(Exception, match="Killed"):
                run(("first",))
        found = rows_of(tmp_path / "out")
        assert set(wanted) <= set(found) <= {*wanted, *lines}, step
        assert len(found) == len(wanted) + seen, step
        wanted = sorted([*wanted, *lines])
    assert run(("first",)) == 2, (
        "Spark's state needs the rows of a micro-batch that is in the table"
    )
    assert rows_of(tmp_path / "out") == wanted
    found = spark.read.parquet(str(tmp_path / "out")).select("first", "line").collect()
    assert sorted(map(tuple, found)) == wanted
    with pytest.raises(Exception, match="holds the rows of another stream, whose checkpoint was"):
        run(("first",), checkpoint="new")


ODD = """
    select * from values
      (1Y, 1.5D, 12.30BD, 'ä/b=c', date'2026-03-01', timestamp'2026-03-01 10:00:00', array(1, null), map('k', 1)),
      (null, null, null, null, null, null, null, null)
    t(byte, real, exact, text, day, time, list, `pairs.of it`)
"""


@pytest.mark.parametrize("partition_by", [(), ("TEXT", "day"), ("time", "real", "exact")], ids=str)
def test_odd_values_are_read_back_as_spark_itself_writes_them(spark, tmp_path, partition_by):
    frame = spark.sql(ODD)
    save_table(frame, TableSettings(str(tmp_path / "ours"), partition_by), "error")
    frame.write.partitionBy(*partition_by).parquet(str(tmp_path / "of_spark"))
    places = [
        sorted({str(file.parent.relative_to(top)) for file in top.rglob("*.parquet")})
        for top in (tmp_path / "ours", tmp_path / "of_spark")
    ]
    assert places[0] == places[1]

    def read(name: str) -> tuple[list[tuple[str, str]], list[str]]:
        found = spark.read.parquet(str(tmp_path / name))
        return sorted(found.dtypes), sorted(
            map(str, found.select(*(f"`{name}`" for name in sorted(found.columns))).collect())
        )

    assert read("ours") == read("of_spark")


def test_batch_appends_overwrites_and_refuses(spark, tmp_path, monkeypatch):
    settings = TableSettings(str(tmp_path / "out"))

    def save(mode: str, first: int) -> None:
        save_table(spark.range(first, first + 2), settings, mode)

    with monkeypatch.context() as patch:
        fail_after(patch, LocalFiles, "move", "part-")
        with pytest.raises(Killed):
            save("append", 0)
    save("error", 0)
    assert rows_of(tmp_path / "out") == [("0",), ("1",)]
    save("append", 2)
    assert rows_of(tmp_path / "out") == [("0",), ("1",), ("2",), ("3",)]
    with pytest.raises(PipelineError, match="already exists: name another directory"):
        save("error", 4)
    save("overwrite", 4)
    assert rows_of(tmp_path / "out") == [("4",), ("5",)]


def test_table_without_rows_has_its_columns(spark, tmp_path):
    save_table(spark.range(0), TableSettings(str(tmp_path)), "append")
    assert ds.dataset(tmp_path).schema.names == ["id"]
    save_table(spark.range(0), TableSettings(str(tmp_path)), "append")
    assert len(TableDirectory(str(tmp_path)).files.names()) == 1


WRONG = {
    "select 1 a, 2 A": "the result has two columns a",
    "select 1 part": "at least one column must be left",
    "select array(1) part, 1 b": "partition_by: column part is of the type array<int>: cast it",
    "select 1 part, null b": "column b is of the type void",
    "select 1 part, array(parse_json('1')) b": "column b is of the type array<variant>",
}


@pytest.mark.parametrize("sql", WRONG)
def test_error_of_columns_that_cannot_be_written_names_the_column(spark, tmp_path, sql):
    frame: DataFrame = spark.sql(sql)
    columns = ("part",) if "part" in frame.columns else ()
    with pytest.raises(ConfigError) as caught:
        save_table(frame, TableSettings(str(tmp_path), columns), "append")
    assert WRONG[sql] in str(explain(caught.value))
