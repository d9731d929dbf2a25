"""The tasks of a Parquet sink: staged files, and the directories for partition columns."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minikafka.spark.parquet.table_directory import StagedFile, TableDirectory
from minikafka.spark.parquet.table_save import PLACE, TableStage, place_of, write_empty

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=SCHEMA)


def placed(values: list[tuple[int, str | None]]) -> pa.RecordBatch:
    numbers = pa.array([number for number, _ in values])
    places = pa.array([json.dumps([user]) for _, user in values])
    return pa.RecordBatch.from_arrays([numbers, places], names=["n", PLACE])


def read(table: TableDirectory, name: str) -> list[int]:
    return pq.read_table(Path(table.url) / "_staging" / name).column("n").to_pylist()


@pytest.fixture
def table(tmp_path) -> TableDirectory:
    return TableDirectory(str(tmp_path))


def stage(
    table: TableDirectory,
    *batches: pa.RecordBatch,
    columns: tuple[str, ...] = (),
    codec: str = "zstd",
) -> list[StagedFile]:
    found = TableStage(table.url, columns, codec).write(iter(batches))
    return [StagedFile(**row) for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_rows_of_a_task_are_one_staged_file_with_every_codec(table, codec):
    (staged,) = stage(table, rows(1, 2), rows(), rows(3), codec=codec)
    assert (staged.place, staged.rows, read(table, staged.name)) == ("", 3, [1, 2, 3])
    assert not staged.name.endswith(".parquet")
    assert pq.read_schema(Path(table.url) / "_staging" / staged.name).field("n").nullable


def test_two_attempts_of_a_task_stage_different_files(table):
    (first,), (second,) = (stage(table, rows(1)) for _ in range(2))
    assert first.name != second.name


def test_task_without_rows_stages_no_file(table):
    assert stage(table) == []
    assert stage(table, rows()) == []


def test_rows_are_staged_by_place_across_record_batches(table):
    batches = [placed([(1, "ann"), (2, "ann")]), placed([(3, "ann"), (4, None), (5, "a/b")])]
    found = stage(table, *batches, columns=("user",))
    assert [(one.place, read(table, one.name)) for one in found] == [
        ("user=ann", [1, 2, 3]),
        ("user=__HIVE_DEFAULT_PARTITION__", [4]),
        ("user=a%2Fb", [5]),
    ]
    assert pq.read_schema(Path(table.url) / "_staging" / found[0].name).names == ["n"]


def test_large_tasks_are_written_in_several_row_groups_of_one_file(table):
    wide = pa.RecordBatch.from_pydict({"n": pa.array([0] * 3_000_000)})
    (staged,) = stage(table, wide, wide, wide)
    assert staged.rows == 9_000_000
    assert pq.ParquetFile(Path(table.url) / "_staging" / staged.name).num_row_groups == 2


def test_file_without_rows_has_the_columns(table):
    staged = write_empty(table, SCHEMA, "zstd")
    assert (staged.rows, read(table, staged.name)) == (0, [])


def test_places_are_named_as_by_spark_and_hive():
    assert place_of(("a", "day"), ("x", "2026-03-01 10:00:00")) == "a=x/day=2026-03-01 10%3A00%3A00"
    assert place_of(("a=b",), ("\"#%'*/:=?\\{[]^\x7f\n}",)) == (
        "a%3Db=%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E%7F%0A}"
    )
    assert place_of(("a", "b"), ("", None)) == (
        "a=__HIVE_DEFAULT_PARTITION__/b=__HIVE_DEFAULT_PARTITION__"
    )
    assert place_of(("a",), ("ä. _",)) == "a=ä. _"
