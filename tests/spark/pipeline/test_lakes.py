"""Streams into tables of Delta Lake and Iceberg, whose driver fails, as pyiceberg, delta-rs and DuckDB read them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from support.spark.lakes import READERS, rows_of, settings_of

from minikafka.base.errors import MinikafkaError
from minikafka.spark.lakehouse.append import Appended, LakeWriter, SingleBatch
from minikafka.spark.lakehouse.opening import DeltaLakeTable, IcebergTable
from minikafka.spark.lakehouse.programs import append_to_table
from minikafka.spark.lakehouse.tables import FORMATS
from minikafka.spark.pipelines.session.failures import explain
from minikafka.spark.pipelines.streams.lakes import LakeStream

TABLES: dict[str, type[Any]] = {"delta": DeltaLakeTable, "iceberg": IcebergTable}
Run = Callable[..., int]
BATCH = SingleBatch("tests", "plan")


class Killed(RuntimeError):
    """Stands for a `kill -9` of the driver."""


@pytest.fixture
def run(spark, tmp_path) -> Run:
    """Return a function that runs a stream of lines into a table; each file in `lines` is one micro-batch."""
    (tmp_path / "lines").mkdir()

    def start(
        format: str,
        query: str = "value line | left(value, 1) first",
        checkpoint: str = "checkpoint",
        **given,
    ) -> int:
        text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "lines"))
        frame = text.dropDuplicates().selectExpr(*query.split(" | "))
        place = str(tmp_path / f"{format}-{checkpoint}")
        add = LakeStream(spark, settings_of(format, tmp_path / format, **given), place)
        writer = frame.writeStream.foreachBatch(add).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return add.rows

    return start


def write_lines(directory: Path, name: str, *lines: str) -> None:
    (directory / "lines" / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("format", FORMATS)
def test_each_row_is_in_the_table_once_although_the_driver_dies_around_the_commit(
    run, tmp_path, monkeypatch, format
):
    table = TABLES[format]
    commit = table.commit

    def dies_before(self, *given, **named):
        raise Killed

    def dies_after(self, *given, **named):
        commit(self, *given, **named)
        raise Killed

    wanted: list[tuple[str, str]] = []
    for number, (death, is_in) in enumerate(((dies_before, False), (dies_after, True))):
        lines = [("a", f"a{number}"), ("b", f"b{number}")]
        write_lines(tmp_path, str(number), *(line for _, line in lines))
        with monkeypatch.context() as patch:
            patch.setattr(table, "commit", death)
            with pytest.raises(Exception, match="Killed"):
                run(format, partition_by=["first"])
        if number:
            assert rows_of(format, tmp_path / format, "first", "line") == sorted(
                [*wanted, *lines] if is_in else wanted
            )
        assert run(format, partition_by=["first"]) == (0 if is_in else 2)
        wanted = sorted([*wanted, *lines])
    for reader in READERS[format]:
        assert rows_of(format, tmp_path / format, "first", "line", reader=reader) == wanted
    with pytest.raises(MinikafkaError, match="holds the rows of another stream"):
        run(format, partition_by=["first"], checkpoint="new")


@pytest.mark.parametrize("format", FORMATS)
def test_micro_batch_that_is_planned_again_with_other_offsets_is_refused(run, tmp_path, format):
    write_lines(tmp_path, "0", "a")
    assert run(format) == 1
    checkpoint = tmp_path / f"{format}-checkpoint"
    for name in ("offsets", "commits", "state"):
        shutil.rmtree(checkpoint / name)
    write_lines(tmp_path, "1", "b")
    with pytest.raises(Exception, match="is an older copy, from which micro-batch 0 differs"):
        run(format)
    assert rows_of(format, tmp_path / format, "line") == [("a",)]


@pytest.mark.parametrize("format", FORMATS)
def test_column_that_is_added_is_null_in_older_rows_and_a_narrower_schema_is_refused(
    run, tmp_path, format
):
    write_lines(tmp_path, "0", "a")
    run(format, "value line | bigint(1) n")
    write_lines(tmp_path, "1", "b")
    run(format, "value line | bigint(2) n | 'x' more")
    wanted = [("a", 1, None), ("b", 2, "x")]
    for reader in READERS[format]:
        assert rows_of(format, tmp_path / format, "line", "n", "more", reader=reader) == wanted

    write_lines(tmp_path, "2", "c")
    for query, reason in (
        ("value line | 3 n | 'y' more", "column n is int now, and bigint in"),
        ("value line | bigint(3) n", "the rows have no column more, which"),
    ):
        with pytest.raises(Exception, match="Python") as failed:
            run(format, query)
        text = str(explain(failed.value))
        assert text.startswith(reason), text
        assert "or name a new table" in text
    assert rows_of(format, tmp_path / format, "line", "n", "more") == wanted
    run(format, "value line | bigint(3) n | 'y' more")
    assert len(rows_of(format, tmp_path / format, "line")) == 3


VALUES = (
    1,
    1.5,
    Decimal("12.30"),
    "ä/b=c",
    date(2026, 3, 1),
    datetime(2026, 3, 1, 10, 30, tzinfo=UTC),
    [1, None],
    [("k", 1)],
    {"f": b"x"},
)
"""The first row of `ODD`."""
ODD = """
    select * from values
      (1Y, 1.5D, 12.30BD, 'ä/b=c', date'2026-03-01', timestamp'2026-03-01 10:30:00', array(1, null), map('k', 1),
       named_struct('f', binary('x'))),
      (null, null, null, null, null, null, null, null, null)
    t(byte, real, exact, text, day, time, list, pairs, parts)
"""


@pytest.mark.parametrize(
    ("format", "partition_by"),
    [
        ("delta", []),
        ("delta", ["hour(time)", "TEXT", "day"]),
        ("iceberg", ["hour(time)", "TEXT", "day"]),
    ],
)
def test_values_of_all_types_are_read_back(spark, tmp_path, format, partition_by):
    frame = spark.sql(ODD)
    writer = LakeWriter(settings_of(format, tmp_path / format, partition_by=partition_by))
    assert writer.add_batch(frame, BATCH, "append").rows == 2
    assert rows_of(format, tmp_path / format, *frame.columns) == [(None,) * 9, VALUES]
    assert writer.add_batch(frame, BATCH, "error").is_repeated
    other = SingleBatch("other", "plan")
    with pytest.raises(MinikafkaError, match="already exists: name another table"):
        writer.add_batch(frame, other, "error")
    writer.add_batch(frame.limit(1), other, "overwrite")
    assert len(rows_of(format, tmp_path / format, "text")) == 1
    assert writer.add_batch(frame, BATCH, "append").rows == 2
    assert writer.add_batch(frame, BATCH, "append").is_repeated


@pytest.mark.parametrize("format", FORMATS)
def test_batch_that_was_killed_after_it_has_created_its_table_continues_there(
    spark, tmp_path, monkeypatch, format
):
    frame, other = spark.range(3), SingleBatch("other", "plan")
    writer = LakeWriter(settings_of(format, tmp_path / format))

    def dies(self, *given, **named):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TABLES[format], "commit", dies)
        with pytest.raises(Killed):
            writer.add_batch(frame, BATCH, "error")
    with pytest.raises(MinikafkaError, match="already exists: name another table"):
        writer.add_batch(frame, other, "error")
    assert writer.add_batch(frame, other, "append").rows == 3
    assert writer.add_batch(frame, SingleBatch("tests", "later plan"), "error").rows == 3
    with pytest.raises(MinikafkaError, match="already exists: name another table"):
        writer.add_batch(frame, BATCH, "error")
    assert len(rows_of(format, tmp_path / format, "id")) == 6


@pytest.mark.parametrize("format", FORMATS)
def test_time_out_of_range_is_refused_or_null_and_counted(spark, tmp_path, format):
    frame: DataFrame = spark.sql(
        "select 'clicks' topic, 3 partition, id offset, timestamp_micros(if(id = 1, 999999999999999999, id)) t"
        " from range(3)"
    )
    with pytest.raises(Exception, match="Python") as failed:
        LakeWriter(settings_of(format, tmp_path / format)).add_batch(frame, BATCH, "append")
    text = str(explain(failed.value))
    assert text.startswith(
        "column t of topic clicks, partition 3, offset 1 is 999999999999999999 us"
    ), text
    kept = LakeWriter(settings_of(format, tmp_path / format, timestamps="null"))
    assert kept.add_batch(frame, BATCH, "append") == Appended(3, 1)
    assert [row[1] is None for row in rows_of(format, tmp_path / format, "offset", "t")] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_program_adds_each_micro_batch_once_with_foreach_batch(spark, tmp_path, format):
    (tmp_path / "lines").mkdir()
    write_lines(tmp_path, "0", "a", "b")
    add = append_to_table(format, str(tmp_path / format))
    calls = []

    def twice(batch: DataFrame, number: int) -> None:
        calls.append(number)
        add(batch, number)
        add(batch, number)

    stream = spark.readStream.text(str(tmp_path / "lines")).writeStream.foreachBatch(twice)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert calls == [0]
    assert rows_of(format, tmp_path / format, "value") == [("a",), ("b",)]
