"""Writes the names of the records in a table to a Parquet file, as DuckDB reads the table with its own extensions.

    lakehouse_duckdb.py FORMAT DIRECTORY OUTPUT [CATALOG TABLE]

It needs only DuckDB and its extensions `delta`, `iceberg`, `avro` and `httpfs`, from packages such as
`duckdb-extension-delta`; without these packages, DuckDB downloads the extensions. CATALOG is the address of a REST
catalog, and TABLE the table's name in it; without them, a table of Iceberg is found by its directory.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import duckdb


def main(format: str, directory: str, output: str, catalog: str = "", table: str = "") -> None:
    """Write the names of the records to the file `output`."""
    connection = duckdb.connect()
    for name in ("delta",) if format == "delta" else ("avro", "httpfs", "iceberg"):
        install(connection, name)
        connection.load_extension(name)
    rows = f"{format}_scan('{directory}')"
    if catalog:
        options = f"type iceberg, endpoint '{catalog}', authorization_type 'none'"
        connection.execute(f"attach '' as lake ({options})")
        rows = f"lake.{table}"
    columns = 'topic, "partition", "offset"'
    connection.execute(f"copy (select {columns} from {rows}) to '{output}' (format parquet)")


def install(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Install an extension, from its package if there is one."""
    with suppress(ModuleNotFoundError):
        from duckdb_extensions import import_extension

        import_extension(name, con=connection)
        return
    connection.install_extension(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
