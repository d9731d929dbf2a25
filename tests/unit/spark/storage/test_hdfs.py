"""The store of files in HDFS. MINIKAFKA_HDFS_URL names a name node, such as hdfs://127.0.0.1:8020."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from minikafka.spark.storage.files import DirectoryBusy
from minikafka.spark.storage.hdfs import HdfsStore
from minikafka.spark.storage.stored import StoredFiles

URL = os.environ.get("MINIKAFKA_HDFS_URL", "")
pytestmark = pytest.mark.skipif(not URL, reason="MINIKAFKA_HDFS_URL names no name node of HDFS")
LARGE = bytes(range(256)) * 20_000


@pytest.fixture
def store(request) -> HdfsStore:
    found = HdfsStore(f"{URL}/tests/{os.urandom(6).hex()}/a table", {})
    assert found.files() == []
    return found


def test_file_is_created_by_exactly_one_of_several_writers(store):
    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(store.create, "lock", b"%d" % one) for one in range(8)]
        winners = [one for one, writer in enumerate(writers) if writer.result()]
    assert len(winners) == 1
    assert store.read("lock") == b"%d" % winners[0]
    assert store.files() == ["lock"]


def test_names_keep_the_escapes_of_hive(store):
    name = "user=a%2Fb/time=10%3A00 x/ü.parquet"
    for data in (b"old", b"rows"):
        store.write(name, data)
    assert store.files() == [name]
    assert store.folders("user=a%2Fb") == ["time=10%3A00 x"]
    assert store.read(name) == b"rows"
    assert store.read("another") is None


def test_moved_file_is_complete_and_the_second_move_does_nothing(store):
    with store.open_output("a") as file:
        file.write(LARGE)
    for _ in range(2):
        store.move("a", "folder/b")
    assert store.files() == ["folder/b"]
    with store.open_input("folder/b") as file:
        assert file.read() == LARGE
        assert file.read_at(30, 1_000) == LARGE[1_000:1_030]
    store.delete(["folder/b", "another"])
    assert store.files() == []


def test_writer_that_was_replaced_changes_nothing(store):
    first, second = StoredFiles(store, "archive"), StoredFiles(store, "archive")
    with first.locked(lambda: None):
        store.delete(["_lock"])
        with second.locked(lambda: None):
            with pytest.raises(DirectoryBusy):
                first.decide("a", {})
            second.decide("b", {})
    assert list(StoredFiles(store, "archive").decisions()) == ["b"]
