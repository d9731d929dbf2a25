"""Tables in a bucket whose server fails one request in ten, as clients of the server itself read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from support.spark.request_server import RequestServer, body_of, respond
from support.spark.store_servers import FailingProxy, Server, ServerProcess, running

from minikafka.base.errors import ConfigError
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.places import data_files, storage_of
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
from minikafka.spark.storage.explain import explained
from minikafka.spark.storage.store import StorageError

SCHEMA = pa.schema([("offset", pa.int64()), ("time", pa.timestamp("us", "UTC"))])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        if found.kind == "hdfs":
            pytest.skip("a table is not in HDFS")
        found.file_system()
        yield found


def settings_at(
    server: Server, format: str, name: str, directory: Path, endpoint: str = ""
) -> LakeSettings:
    where = server.url(name)
    if format == DELTA:
        return table_settings(format, where, storage=server.options(endpoint))
    return table_settings(format, where, catalog=server.catalog(directory / "catalog.db", endpoint))


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
        catalog = load_catalog("default", **server.catalog(directory / "catalog.db"))
        found = catalog.load_table("minikafka.records").scan().to_arrow()
        catalog.close()
    return sorted(found.column("offset").to_pylist())


@pytest.mark.parametrize("format", FORMATS)
def test_table_in_a_bucket_has_each_row_once_although_requests_fail(server, tmp_path, format):
    proxy = ServerProcess(FailingProxy, server)
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
    place = settings.place.replace("minikafka-tests", "no-such-bucket")
    moved = table_settings(format, place, catalog=settings.catalog, storage=settings.storage)
    with pytest.raises(TableError) as failed:
        open_table(moved).prepare(SCHEMA)
    text = str(failed.value)
    assert "bucket" in text
    assert "\n" not in text


STORE_REFUSES = pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("SignatureDoesNotMatch", "correct s3.secret-access-key in the properties of the catalog"),
        ("InvalidAccessKeyId", "correct s3.access-key-id in the properties of the catalog"),
        ("ExpiredToken", "renew s3.session-token and its keys in the properties of the catalog"),
        ("AccessDenied", "the credentials have no right to {verb} here: allow listing the bucket"),
        ("EntityTooLarge", "EntityTooLarge (No.): check the URI and the properties of the catalog"),
    ],
)


@contextmanager
def refusing(code: str) -> Iterator[Server]:
    """Run a server of S3 that refuses each request."""

    def refuse(request: BaseHTTPRequestHandler) -> None:
        body_of(request)
        status = 400 if code == "EntityTooLarge" else 403
        answer = f"<Error><Code>{code}</Code><Message>No.</Message></Error>"
        respond(request, status, answer.encode())

    store = RequestServer(refuse)
    yield Server("s3", store.endpoint)
    store.close()


@STORE_REFUSES
def test_refusal_of_the_store_of_an_iceberg_table_names_the_property(tmp_path, code, reason):
    with refusing(code) as server:
        catalog = server.catalog(tmp_path / "catalog.db")
        table = open_table(table_settings(ICEBERG, "s3://lake/t", catalog=catalog))
        with pytest.raises(TableError) as refused:
            table.prepare(SCHEMA)
    assert str(refused.value).startswith("s3://lake/t")
    assert reason.format(verb="list") in str(refused.value)
    assert "\n" not in str(refused.value)


@STORE_REFUSES
def test_task_of_an_iceberg_table_names_the_property_in_a_refusal(tmp_path, code, reason):
    place = "s3://lake/t/data"
    with refusing(code) as server:
        files = data_files(place, storage_of(place, server.catalog(tmp_path / "catalog.db")))
        with pytest.raises(StorageError) as refused, files.open_output("rows") as file:
            file.write(b"rows")
    assert reason.format(verb="write") in str(refused.value)


@pytest.mark.parametrize(
    ("place", "error", "reason"),
    [
        ("gs://lake/t", "metadata.google.internal", "set {} in"),
        ("gs://lake/t", "invalid_grant", "correct {} in"),
    ],
)
def test_refusal_of_google_names_what_the_user_can_set(place, error, reason):
    assert reason.format("service_account") in explained(place, "", "write", Exception(error))
    options = storage_of(place, {})
    text = explained(place, "", "write", Exception(error), options.names)
    assert reason.format("gcs.oauth2.token") in text


@pytest.mark.parametrize(
    ("place", "option", "key"),
    [
        ("gs://lake/t", "base_url", "gcs.service.host"),
        ("s3://lake/t", "endpoint", "s3.endpoint"),
        ("abfs://f@lake.dfs.core.windows.net/t", "endpoint", "adls.blob-storage-authority"),
    ],
)
def test_store_that_does_not_answer_names_the_option_with_its_address(place, option, key):
    error = Exception("error sending request for url (http://host/)")
    text = explained(place, "", "write", error)
    assert text == (
        f"{place}: http://host does not answer: check {option} and the network of the driver and of the executors"
    )
    names = storage_of(place, {}).names
    assert f"check {key} and" in explained(place, "", "write", error, names)


@pytest.mark.parametrize(
    ("place", "storage", "reason"),
    [
        ("ftp://host/t", {}, "this table needs a path, or a URI that begins with s3://"),
        ("/lake", {"region": "x"}, "the option region of a store has no effect on a directory"),
        ("s3://b/t", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}, "could remove each other's rows"),
        ("s3://b/t", {"regoin": "x"}, "regoin"),
        ("s3://b/a%20b", {}, "the URI of a table must have no %, which readers take for different"),
        ("s3://k:hid%40den@b/t", {}, r"^a URI of s3:// must .* set it in the option storage"),
        ("gs://b/t", {"google_bearer_token": "x"}, "does not know google_bearer_token for Google"),
    ],
)
def test_place_or_option_that_is_not_possible_is_refused(place, storage, reason):
    with pytest.raises(ConfigError, match=reason):
        open_table(table_settings(DELTA, place, storage=storage))


@pytest.mark.parametrize(
    ("place", "catalog", "reason"),
    [
        ("s3://bucket/t", {}, "a table in an object storage needs a catalog"),
        ("s3://bucket/a#1", {"uri": "x"}, "the URI of a table must have no #"),
        (
            "s3://k:hid%den@b/t",
            {"uri": "x"},
            "^a URI of s3:// must .* the properties of the catalog",
        ),
        ("az://bucket/t", {"uri": "x"}, "this table needs .* or abfs://, not az://"),
    ],
)
def test_table_of_iceberg_that_is_not_possible_is_refused(place, catalog, reason):
    with pytest.raises(ConfigError, match=reason):
        open_table(table_settings(ICEBERG, place, catalog=catalog))


def test_properties_of_pyiceberg_name_the_same_address_for_the_executors():
    account = {"adls.account-name": "lake", "adls.account-key": "k"}
    cloud = account | {"adls.blob-storage-authority": ".blob.core.windows.net"}
    here = account | {
        "adls.blob-storage-authority": "localhost:1",
        "adls.blob-storage-scheme": "http",
    }
    google = {"gcs.service.host": "http://localhost:2", "gcs.oauth2.token": "t"}
    azure, values = "abfs://files@lake.dfs.core.windows.net/t", {"bearer_token": "t"}
    assert storage_of(azure, cloud).values["endpoint"] == "https://lake.blob.core.windows.net"
    assert storage_of(azure, here).values["endpoint"] == "http://localhost:1/lake"
    assert storage_of("gs://b/t", google).values == {**values, "base_url": "http://localhost:2"}
    assert storage_of("/lake/t", google).values == {}
