"""Tables of Delta Lake and Iceberg in tests: their settings, and their rows as other engines read them."""

from __future__ import annotations

import weakref
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable, Table

from minikafka.spark.lakehouse.programs import table_settings
from minikafka.spark.lakehouse.stage import FileStage, LakeFile
from minikafka.spark.lakehouse.tables import RECORDS, LakeSettings, LakeTable

READERS = {"delta": ("delta-rs", "duckdb"), "iceberg": ("pyiceberg", "directory", "duckdb")}
"""The readers of each format, the default one first. `directory` knows the directory of the table only."""


def settings_of(format: str, place: Path, **given) -> LakeSettings:
    """Return the settings of a table in a directory."""
    return table_settings(format, str(place), **given)


def staged(table: LakeTable, batch: pa.RecordBatch, *, may_lack: bool = False) -> list[LakeFile]:
    """Write rows to files of a table, as a task does."""
    layout = table.prepare(batch.schema, may_lack=may_lack)
    stage = FileStage(layout.schema, layout.rules, layout.directory, "test")
    return list(stage.files([batch.rename_columns(layout.names)]))


def iceberg_table(place: Path) -> Table:
    """Return a table from the SQLite catalog in its directory."""
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{place}/catalog.db")
    found = catalog.load_table(RECORDS)
    weakref.finalize(found, catalog.close)
    return found


def arrow_of(format: str, place: Path, reader: str = "") -> pa.Table:
    """Return all rows of a table."""
    if reader == "duckdb":
        return _by_duckdb(format, place)
    if format == "delta":
        query = (
            QueryBuilder().register("rows", DeltaTable(str(place))).execute("select * from rows")
        )
        return pa.table(query)
    table = StaticTable.from_metadata(str(place)) if reader == "directory" else iceberg_table(place)
    return table.scan().to_arrow()


def _by_duckdb(format: str, place: Path) -> pa.Table:
    """Return the rows as DuckDB reads the files of the newest state.

    The extensions of DuckDB for these formats are not on the index of Python packages.
    """
    if format == "delta":
        found = DeltaTable(str(place)).to_pyarrow_dataset()
        return duckdb.from_arrow(found).to_arrow_table()
    files = [
        task.file.file_path.removeprefix("file://")
        for task in iceberg_table(place).scan().plan_files()
    ]
    return duckdb.read_parquet(files, union_by_name=True).to_arrow_table()


def rows_of(format: str, place: Path, *columns: str, reader: str = "") -> list[tuple[object, ...]]:
    """Return columns of all rows, sorted."""
    table = arrow_of(format, place, reader).select(list(columns))
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [_place_of(value) for value in row])


def _place_of(value: object) -> tuple[bool, object]:
    """Return the place of a value in the order of rows: null first; values of nested types by their text."""
    is_nested = isinstance(value, list | dict)
    return value is not None, str(value) if is_nested else 0 if value is None else value
