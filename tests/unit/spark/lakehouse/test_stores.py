"""Tables in a bucket of S3 whose server fails one request in ten, as clients of the server itself read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from support.spark.store_servers import ProxyProcess, Server, running

from minikafka.base.errors import ConfigError
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.programs import table_settings
from minikafka.spark.lakehouse.stage import TimeNotShown
from minikafka.spark.lakehouse.tables import (
    DELTA,
    FORMATS,
    ICEBERG,
    LakeSettings,
    LakeTable,
    TableChange,
    TableError,
)

SCHEMA = pa.schema([("offset", pa.int64()), ("time", pa.timestamp("us", "UTC"))])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        if found.kind != "s3":
            pytest.skip("the tests know the properties of S3")
        found.file_system()
        yield found


def catalog_at(server: Server, directory: Path, endpoint: str = "") -> dict[str, str]:
    """Return the properties of a catalog whose tables are in the bucket."""
    given = server.options(endpoint)
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "s3.endpoint": given["endpoint"],
        "s3.access-key-id": given["access_key_id"],
        "s3.secret-access-key": given["secret_access_key"],
        "s3.region": given["region"],
    }


def settings_at(
    server: Server, format: str, name: str, directory: Path, endpoint: str = ""
) -> LakeSettings:
    where = server.url(name)
    if format == DELTA:
        return table_settings(format, where, storage=server.options(endpoint))
    return table_settings(format, where, catalog=catalog_at(server, directory, endpoint))


def add(table: LakeTable, first: int, count: int, number: int) -> None:
    rows = [{"offset": offset, "time": None} for offset in range(first, first + count)]
    stage = table.prepare(SCHEMA).stage("test", table_settings(DELTA, "unused"))
    files = list(stage.files([pa.RecordBatch.from_pylist(rows, schema=SCHEMA)]))
    expected = {"batch": number - 1} if number else {}
    table.commit(TableChange(files, {"batch": number}, expected))


def offsets_of(server: Server, format: str, name: str, directory: Path) -> list[int]:
    """Return the offsets as delta-rs or pyiceberg reads them, without the failing proxy."""
    if format == DELTA:
        storage = {**server.options(), "allow_http": "true"}
        table = DeltaTable(server.url(name), storage_options=storage)
        found = pa.table(QueryBuilder().register("t", table).execute("select * from t"))
    else:
        catalog = load_catalog("default", **catalog_at(server, directory))
        found = catalog.load_table("minikafka.records").scan().to_arrow()
    return sorted(found.column("offset").to_pylist())


@pytest.mark.parametrize("format", FORMATS)
def test_table_in_a_bucket_has_each_row_once_although_requests_fail(server, tmp_path, format):
    proxy = ProxyProcess(server, every=10)
    name = f"{format}-{os.urandom(4).hex()}"
    settings = settings_at(server, format, name, tmp_path, proxy.endpoint)
    for number in range(4):
        add(open_table(settings), 5 * number, 5, number)
    assert offsets_of(server, format, name, tmp_path) == list(range(20))
    table = open_table(settings)
    assert table.compact(1 << 20).merged == 4
    table.expire(0, 1 << 45)
    assert proxy.close() > 3
    assert offsets_of(server, format, name, tmp_path) == list(range(20))


def test_two_writers_of_a_delta_table_in_a_bucket_both_commit(server, tmp_path):
    name = f"race-{os.urandom(4).hex()}"
    settings = settings_at(server, DELTA, name, tmp_path)
    first, second = open_table(settings), open_table(settings)
    add(first, 0, 2, 0)
    stage = second.prepare(SCHEMA).stage("test", settings)
    batch = pa.RecordBatch.from_pylist([{"offset": 9, "time": None}], schema=SCHEMA)
    stale, files = second.newest(), list(stage.files([batch]))
    add(first, 2, 2, 1)
    second._attempt(stale, TableChange(files, {"other": 1}))
    assert offsets_of(server, DELTA, name, tmp_path) == [0, 1, 2, 3, 9]


def test_task_that_fails_leaves_no_file_in_the_bucket(server, tmp_path):
    name = f"failed-{os.urandom(4).hex()}"
    settings = settings_at(server, DELTA, name, tmp_path)
    stage = open_table(settings).prepare(SCHEMA).stage("test", settings)
    good = pa.RecordBatch.from_pylist([{"offset": 1, "time": None}], schema=SCHEMA)
    far = pa.array([1 << 60], pa.int64()).cast(SCHEMA.field("time").type)
    bad = pa.RecordBatch.from_arrays([pa.array([2]), far], schema=SCHEMA)
    with pytest.raises(TimeNotShown):
        list(stage.files([good, bad]))
    assert not [key for key in server.keys(name) if key.endswith(".parquet")]


@pytest.mark.parametrize("format", FORMATS)
def test_bucket_that_does_not_exist_is_named_in_one_sentence(server, tmp_path, format):
    settings = settings_at(server, format, "t", tmp_path)
    moved = table_settings(
        format, "s3://no-such-bucket/t", catalog=settings.catalog, storage=settings.storage
    )
    with pytest.raises(TableError) as failed:
        open_table(moved).prepare(SCHEMA)
    text = str(failed.value)
    assert "bucket" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("place", "storage", "reason"),
    [
        ("ftp://host/t", {}, "a table needs a path, or a URI that begins with s3://"),
        ("/lake", {"region": "x"}, "the option region of a store has no effect on a directory"),
        ("s3://b/t", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}, "could remove each other's rows"),
        ("s3://b/t", {"regoin": "x"}, "regoin"),
    ],
)
def test_place_or_option_that_is_not_possible_is_refused(place, storage, reason):
    with pytest.raises(ConfigError, match=reason):
        open_table(table_settings(DELTA, place, storage=storage))


def test_table_of_iceberg_in_a_bucket_needs_a_catalog():
    with pytest.raises(ConfigError, match="a table in an object storage needs a catalog"):
        open_table(table_settings(ICEBERG, "s3://bucket/t"))
