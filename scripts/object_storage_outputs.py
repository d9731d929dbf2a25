"""The outputs of `scripts/object-storage`: the commands that write them, and their rows as other programs read them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from support.spark.store_servers import BUCKET, Server

TOPIC = "lines"
COMMANDS = ("archive", "stream")
FORMATS = ("parquet", "delta", "iceberg")
NAMES = tuple(f"{command}-{kind}" for command in COMMANDS for kind in FORMATS)
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
"""Hadoop's connector of S3, in the version of Hadoop that PySpark 4.3 contains."""
PIPELINE = """
[pipeline]
name = "lines"

[source.lines]
topic = "lines"
maxOffsetsPerTrigger = {trigger}

[[step]]
name = "places"
sql = "select partition part, offset at, partition from lines"

[sink]
kind = "{format}"
path = "{url}"
partition_by = "partition"
"""
JARS: Final = "MINIKAFKA_S3A_JARS"
"""The variable with a directory that has the jars of `HADOOP_AWS`; without it, Spark downloads them."""
Places = Counter[tuple[int, int]]
"""How often a reader sees each (partition, offset)."""


class Bucket(NamedTuple):
    """A place in the bucket. `endpoint`: the address for the commands. `directory`: for files of this machine."""

    server: Server
    endpoint: str
    name: str
    directory: Path


class Output:
    """One output, with a name of `NAMES`."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self.name = name
        self._server, self._endpoint, place, self._directory = bucket
        self._place = f"{place}/{name}"
        self._command, self._format = name.split("-")
        self._catalog = self._directory / f"{name}.db"

    def command(self, records: int, *, checkpoint_in_bucket: bool) -> list[str]:
        """Return the command of `minikafka pipeline`."""
        if self._command == "archive":
            command = ["archive", TOPIC, "--to", self._url, "--format", self._format]
            command += ["--records-per-file", str(records // 60)]
            return [*command, *_repeated(f"--{self._option}", self._properties())]
        file = self._directory / f"{self.name}.toml"
        text = PIPELINE.format(trigger=records // 10, url=self._url, format=self._format)
        lines = [
            f"{json.dumps(name)} = {json.dumps(value)}"
            for name, value in self._properties().items()
        ]
        file.write_text("\n".join([text, f"[sink.{self._option}]", *lines]))
        checkpoint = self._checkpoint_in_bucket() if checkpoint_in_bucket else ()
        return ["run", str(file), *(checkpoint or ("--checkpoint", f"{file}.checkpoint"))]

    @property
    def _url(self) -> str:
        return self._server.url(self._place)

    @property
    def _option(self) -> str:
        return "catalog" if self._format == "iceberg" else "storage"

    def _properties(self) -> Mapping[str, str]:
        if self._format == "iceberg":
            return self._server.catalog(self._catalog, self._endpoint)
        return self._server.options(self._endpoint)

    def _checkpoint_in_bucket(self) -> Iterator[str]:
        given = self._server.options(self._endpoint)
        settings = {
            **_connector(),
            "spark.hadoop.fs.s3a.endpoint": given["endpoint"],
            "spark.hadoop.fs.s3a.endpoint.region": given["region"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": given["access_key_id"],
            "spark.hadoop.fs.s3a.secret.key": given["secret_access_key"],
        }
        yield from ("--checkpoint", f"s3a://{BUCKET}/{self._place}.checkpoint")
        yield from _repeated("--set", settings)

    def names(self) -> set[str]:
        """Return the names of the objects, without the lock."""
        return {key for key in self._server.keys(self._place) if not key.startswith("_lock")}

    def readings(self) -> dict[str, Places]:
        """Return what each reader sees, by its name."""
        readers = _READERS[self._format]
        return {name: _places(reader(self)) for name, reader in readers.items()}

    def by_pyarrow(self) -> pa.Table | None:
        """Return the rows that pyarrow's own client of the server reads below the URI."""
        files = self._server.file_system()
        try:
            found = ds.dataset(f"{BUCKET}/{self._place}", filesystem=files, partitioning="hive")
        except FileNotFoundError:
            return None
        return found.to_table()

    def by_delta_rs(self) -> pa.Table | None:
        """Return the rows of a Delta table."""
        table = self._delta()
        query = "select * from t"
        return table and pa.table(QueryBuilder().register("t", table).execute(query))

    def by_pyiceberg(self) -> pa.Table | None:
        """Return the rows of an Iceberg table."""
        try:
            table = load_catalog("default", **self._server.catalog(self._catalog)).load_table(
                "minikafka.records"
            )
        except NoSuchTableError:
            return None
        return table.scan().to_arrow()

    def by_duckdb(self) -> pa.Table | None:
        """Return the rows that DuckDB reads from the files of a table's newest state, by pyarrow's own client."""
        uris = self._files()
        if not uris:
            return None
        names = [f"{BUCKET}/{self._place}{uri.removeprefix(self._url)}" for uri in uris]
        found = ds.dataset(names, filesystem=self._server.file_system())
        return duckdb.from_arrow(found).to_arrow_table()

    def _files(self) -> Sequence[str]:
        if self._format == "delta":
            table = self._delta()
            return table.file_uris() if table else ()
        catalog = load_catalog("default", **self._server.catalog(self._catalog))
        try:
            table = catalog.load_table("minikafka.records")
        except NoSuchTableError:
            return ()
        return [task.file.file_path for task in table.scan().plan_files()]

    def _delta(self) -> DeltaTable | None:
        storage = {**self._server.options(), "allow_http": "true"}
        try:
            return DeltaTable(self._url, storage_options=storage)
        except TableNotFoundError:
            return None


_READERS: Mapping[str, Mapping[str, Callable[[Output], pa.Table | None]]] = {
    "parquet": {"pyarrow": Output.by_pyarrow},
    "delta": {"delta-rs": Output.by_delta_rs, "DuckDB": Output.by_duckdb},
    "iceberg": {"pyiceberg": Output.by_pyiceberg, "DuckDB": Output.by_duckdb},
}


def _connector() -> dict[str, str]:
    if directory := os.environ.get(JARS):
        return {"spark.driver.extraClassPath": f"{directory}/*"}
    return {"spark.jars.packages": HADOOP_AWS}


def _places(table: pa.Table | None) -> Places:
    names = set(table.schema.names) if table is not None else set()
    columns = ("part", "at") if "at" in names else ("partition", "offset")
    if table is None or not names:
        return Counter()
    return Counter(zip(*(table.column(one).to_pylist() for one in columns), strict=True))


def _repeated(option: str, values: Mapping[str, str]) -> Iterator[str]:
    return chain.from_iterable((option, f"{name}={value}") for name, value in values.items())
