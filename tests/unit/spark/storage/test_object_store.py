"""A store on a server, which fails one request in three. MINIKAFKA_STORE names the server; without it, it is of S3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.spark.store_servers import BUCKET, FailingProxy, Server, running

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.files import DirectoryBusy
from minikafka.spark.storage.locations import open_store
from minikafka.spark.storage.object_store import ObjectStore
from minikafka.spark.storage.single_files import write_file
from minikafka.spark.storage.store import FileStore, StorageError
from minikafka.spark.storage.stored import StoredFiles

LARGE = bytes(range(256)) * 36_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        found.file_system()
        yield found


@pytest.fixture
def place(request) -> str:
    """Return a name in the bucket that no other test uses."""
    return f"{request.node.name}-{os.urandom(4).hex()}/a table"


@pytest.fixture
def store(server, place) -> FileStore:
    return open_store(server.url(place), server.options())


def test_object_is_created_by_exactly_one_of_several_writers(store):
    with ThreadPoolExecutor(8) as pool:
        for turn in range(5):
            writers = [pool.submit(store.create, f"lock-{turn}", b"%d" % one) for one in range(8)]
            winners = [one for one, writer in enumerate(writers) if writer.result()]
            assert len(winners) == 1
            assert store.read(f"lock-{turn}") == b"%d" % winners[0]


def test_names_are_the_keys_of_the_objects_also_with_escapes_of_hive(store, server, place):
    name = "user=a%2Fb/time=10%3A00 x/ü.parquet"
    for data in (b"old", b"rows"):
        store.write(name, data)
    assert server.keys(place) == [name]
    assert store.files() == [name]
    assert [one for one in store.folders() if one[0] != "_"] == ["user=a%2Fb"]
    assert store.folders("user=a%2Fb") == ["time=10%3A00 x"]
    assert store.files("user=a%2Fb/time=10%3A00 x") == [name]
    assert store.read(name) == b"rows"
    assert store.read("another") is None


@pytest.mark.parametrize("name", ["a%20b", "100%", "one#1", "why?", "ü b"])
def test_path_of_a_uri_is_the_key_as_it_is_written(server, place, name):
    store = open_store(server.url(f"{place}/{name}/"), server.options())
    store.write("rows", b"")
    assert server.keys(place) == [f"{name}/rows"]
    assert store.files() == ["rows"]


def test_single_file_is_an_object_that_another_client_reads(server, place):
    write_file(server.url(f"{place}/lag.jsonl"), b"{}", server.options())
    with server.file_system().open_input_stream(f"{BUCKET}/{place}/lag.jsonl") as file:
        assert file.read() == b"{}"


def test_moved_object_is_complete_and_the_second_move_does_nothing(store):
    store.write("a", b"rows")
    for _ in range(2):
        store.move("a", "folder/b")
    assert store.files() == ["folder/b"]
    store.delete(["another", "folder/b", "c"])
    assert store.files() == []


def test_upload_appears_when_it_is_complete_and_is_read_in_ranges(server, store):
    with store.open_output("large") as file:
        file.write(LARGE)
        assert server.kind == "hdfs" or store.files() == []
    with store.open_input("large") as file:
        assert file.read() == LARGE
        assert file.read_at(300, 1_000_000) == LARGE[1_000_000:1_000_300]


def test_upload_whose_writer_fails_never_appears(store):
    def fail() -> None:
        with StoredFiles(store, "archive").stage("large") as staged:
            staged.file.write(LARGE)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert StoredFiles(store, "archive").names() == []


def test_every_operation_succeeds_although_one_request_in_three_fails(server, place):
    if server.kind == "hdfs":
        pytest.skip("requests of HDFS are not HTTP")
    proxy = FailingProxy(server, every=3)
    try:
        store = open_store(server.url(place), server.options(proxy.endpoint))
        for number in range(8):
            assert store.create(f"entry-{number}", b"%d" % number)
            assert not store.create(f"entry-{number}", b"another writer")
        with store.open_output("large") as file:
            file.write(LARGE)
        store.move("large", "moved")
        with store.open_input("moved") as file:
            assert file.read() == LARGE
        assert len(store.files()) == 9
        store.delete(store.files())
        assert store.files() == []
        assert proxy.failed > 8
    finally:
        proxy.close()


def test_writer_that_was_replaced_changes_nothing(store):
    first, second = StoredFiles(store, "archive"), StoredFiles(store, "archive")
    with first.locked(lambda: None):
        store.delete(["_lock"])
        with second.locked(lambda: None):
            with pytest.raises(DirectoryBusy):
                first.decide("a", {})
            second.decide("b", {})
    assert list(StoredFiles(store, "archive").decisions()) == ["b"]


@pytest.mark.parametrize("verb", ["create", "write"])
def test_bucket_that_does_not_exist_is_named_with_the_remedy(server, verb):
    if server.kind == "hdfs":
        pytest.skip("HDFS has no buckets")
    url = server.url("table").replace("minikafka-tests", "elsewhere")
    store = open_store(url, server.options())
    text = r"://elsewhere/table/entry: there is no such bucket: create it"
    with pytest.raises(StorageError, match=text):
        getattr(store, verb)("entry", b"")


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("s3://bucket/x", {"regoin": "eu"}, "'regoin' is not valid for store 'S3'"),
        ("s3:///x", {}, "Unable to recognise URL"),
        (
            "s3://key:hidden@bucket/x",
            {},
            "a URI of s3:// must have no login before the bucket: set",
        ),
        ("s3://key:hid/den@bucket/x", {}, "^a URI of s3:// must have no login before the bucket"),
    ],
)
def test_wrong_uri_or_option_is_refused_before_any_request(url, options, text):
    with pytest.raises(ConfigError, match=text):
        ObjectStore(url, options)
