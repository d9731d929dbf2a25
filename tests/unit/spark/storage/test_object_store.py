"""The store of objects on a server of S3, which fails one request in ten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.spark.s3_server import BUCKET, FailingProxy, file_system, keys, needs_s3, options

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.object_store import ObjectStore
from minikafka.spark.storage.store import StorageError


@pytest.fixture
def url(request) -> str:
    """Return a URI in the bucket that no other test uses."""
    file_system()
    return f"s3://{BUCKET}/{request.node.name}/a table"


@pytest.fixture
def store(url) -> ObjectStore:
    return ObjectStore(url, options())


@needs_s3
def test_object_is_created_by_exactly_one_of_several_writers(store):
    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(store.create, "lock", b"%d" % one) for one in range(8)]
        winners = [one for one, writer in enumerate(writers) if writer.result()]
    assert len(winners) == 1
    assert store.read("lock") == b"%d" % winners[0]


@needs_s3
def test_names_are_the_keys_of_the_objects_also_with_escapes_of_hive(store, request):
    name = "user=a%2Fb/time=10%3A00 x/ü.parquet"
    store.write(name, b"rows")
    assert keys(f"{request.node.name}/a table") == [name]
    assert store.files() == [name]
    assert store.folders() == ["user=a%2Fb"]
    assert store.folders("user=a%2Fb") == ["time=10%3A00 x"]
    assert store.files("user=a%2Fb/time=10%3A00 x") == [name]


@needs_s3
def test_moved_object_is_complete_and_the_second_move_does_nothing(store):
    store.write("a", b"rows")
    for _ in range(2):
        store.move("a", "b")
    assert store.files() == ["b"]
    store.delete(["b", "c"])
    assert store.files() == []


@needs_s3
def test_upload_appears_when_it_is_complete_and_is_read_in_ranges(store):
    data = bytes(range(256)) * 36_000
    with store.open_output("large") as file:
        file.write(data)
        assert store.files() == []
    with store.open_input("large") as file:
        assert file.read() == data
        assert file.read_at(300, 1_000_000) == data[1_000_000:1_000_300]


@needs_s3
def test_upload_whose_writer_fails_never_appears(store):
    def fail() -> None:
        with store.open_output("large") as file:
            file.write(b"x" * 9_000_000)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert store.files() == []


@needs_s3
def test_every_operation_succeeds_although_one_request_in_three_fails(url):
    proxy = FailingProxy(every=3)
    try:
        store = ObjectStore(url, options(proxy.endpoint))
        for number in range(8):
            assert store.create(f"entry-{number}", b"%d" % number)
            assert not store.create(f"entry-{number}", b"another writer")
        with store.open_output("large") as file:
            file.write(b"x" * 9_000_000)
        store.move("large", "moved")
        with store.open_input("moved") as file:
            assert file.read() == b"x" * 9_000_000
        assert len(store.files()) == 9
        store.delete(store.files())
        assert store.files() == []
        assert proxy.failed > 8
    finally:
        proxy.close()


@needs_s3
def test_bucket_that_does_not_exist_is_named_with_the_remedy():
    store = ObjectStore("s3://elsewhere/table", options())
    with pytest.raises(StorageError, match=r"s3://elsewhere/table.*no such bucket: create it"):
        store.create("entry", b"")


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("s3://bucket/x", {"regoin": "eu"}, "'regoin' is not valid for store 'S3'"),
        ("s3:///x", {}, "Unable to recognise URL"),
    ],
)
def test_wrong_uri_or_option_is_refused_before_any_request(url, options, text):
    with pytest.raises(ConfigError, match=text):
        ObjectStore(url, options)
