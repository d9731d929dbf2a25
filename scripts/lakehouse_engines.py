"""The tables of lakehouse-deaths, and their records as delta-rs, pyiceberg and DuckDB read them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from minikafka.spark.lakehouse.programs import table_settings
from minikafka.spark.lakehouse.tables import ICEBERG, LakeSettings

COLUMNS = ("topic", "partition", "offset")
"""The columns that name a record."""


def settings_of(directory: Path, name: str, format: str, catalog_uri: str = "") -> LakeSettings:
    """Return the settings of a table. `catalog_uri`: the address of a REST catalog for tables of Iceberg."""
    of_iceberg = {"table": f"minikafka.{name}"}
    catalog = {"type": "rest", "uri": catalog_uri} if catalog_uri else {}
    return table_settings(
        format,
        str(directory / f"{name}-{format}"),
        partition_by=["hour(timestamp)"],
        **({**of_iceberg, "catalog": catalog} if format == ICEBERG else {}),
    )


def engines(settings: LakeSettings, extensions: str = "") -> Mapping[str, Callable[[], pa.Table]]:
    """Return functions that read the names of all records in a table, by the name of the engine.

    `extensions`: the Python interpreter of an environment in which DuckDB has its extensions delta and iceberg. Without
    it, DuckDB reads the files that delta-rs or pyiceberg lists.
    """
    is_iceberg = settings.format == ICEBERG
    library = partial(_by_pyiceberg if is_iceberg else _by_delta_rs, settings)
    shown = "Iceberg" if is_iceberg else "Delta Lake"
    by_duckdb = (
        partial(_by_extension, settings, extensions)
        if extensions
        else partial(_by_duckdb, settings)
    )
    return {
        "pyiceberg" if is_iceberg else "delta-rs": library,
        f"DuckDB{' by its extension' if extensions else ''} ({shown})": by_duckdb,
    }


def _by_delta_rs(settings: LakeSettings) -> pa.Table:
    return DeltaTable(settings.place).to_pyarrow_table(columns=list(COLUMNS))


def _by_pyiceberg(settings: LakeSettings) -> pa.Table:
    return _iceberg(settings).scan(selected_fields=COLUMNS).to_arrow()


def _iceberg(settings: LakeSettings) -> Table:
    local = {"type": "sql", "uri": f"sqlite:///{settings.place}/catalog.db"}
    return load_catalog("default", **(settings.catalog or local)).load_table(settings.name)


def _by_duckdb(settings: LakeSettings) -> pa.Table:
    if settings.format == ICEBERG:
        tasks = _iceberg(settings).scan().plan_files()
        files = [task.file.file_path.removeprefix("file://") for task in tasks]
    else:
        files = DeltaTable(settings.place).file_uris()
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    return duckdb.read_parquet(files).project(columns).to_arrow_table()


def _by_extension(settings: LakeSettings, python: str) -> pa.Table:
    script = Path(__file__).with_name("lakehouse_duckdb.py")
    with tempfile.TemporaryDirectory() as directory:
        output = f"{directory}/rows.parquet"
        named = [settings.catalog["uri"], settings.name] if settings.catalog else []
        command = [python, str(script), settings.format, settings.place, output, *named]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"DuckDB's extension failed: {done.stderr.strip()}")
        return pq.read_table(output)
