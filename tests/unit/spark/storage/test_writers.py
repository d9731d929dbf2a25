"""Two writers of a directory on a store: the lock, and what keeps them apart when the lock has failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.spark.mortal_files import memory_store

from minikafka.base.errors import ConfigError
from minikafka.spark.storage import lease
from minikafka.spark.storage.fenced_log import FencedLog
from minikafka.spark.storage.files import DirectoryBusy
from minikafka.spark.storage.object_store import ObjectStore
from minikafka.spark.storage.stored import StoredFiles


@pytest.fixture
def store() -> ObjectStore:
    return memory_store()


@pytest.fixture
def expired(monkeypatch) -> None:
    """Let every lock be expired, so that a second writer takes the directory over."""
    monkeypatch.setattr(lease, "EXPIRY_S", 0)


def files(store: ObjectStore) -> StoredFiles:
    return StoredFiles(store, "archive")


def stage(directory: StoredFiles, text: str) -> str:
    with directory.stage("rows") as staged:
        staged.file.write(text.encode())
    return staged.name


def nothing() -> None:
    """Recover nothing."""


def test_second_writer_is_refused_while_the_first_one_renews_its_lock(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEWAL_S", 0.01)
    busy = pytest.raises(DirectoryBusy, match=f"process {os.getpid()} on .* writes the archive")
    with files(store).locked(nothing), busy, files(store).locked(nothing):
        pass


def test_lock_is_removed_at_the_end_also_after_an_error(store):
    for _ in range(2):
        with pytest.raises(InterruptedError), files(store).locked(nothing):
            raise InterruptedError
    assert "_lock" not in store.files()


def test_lock_of_an_ended_process_of_this_machine_is_taken_over_at_once(store):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store.write("_lock", json.dumps(lease._process() | {"pid": ended.pid}).encode())
    with files(store).locked(nothing):
        assert json.loads(store.read("_lock"))["pid"] == os.getpid()


@pytest.mark.parametrize("left", [b"", b"{", b"[]", b'{"host": 1, "pid": "x"}'])
def test_lock_with_any_content_is_taken_over_when_it_has_not_changed(store, expired, left):
    store.write("_lock", left)
    with files(store).locked(nothing):
        assert json.loads(store.read("_lock"))["pid"] == os.getpid()


def test_writer_that_was_replaced_changes_nothing_and_says_so(store, expired):
    first, second = files(store), files(store)
    with first.locked(nothing):
        first.decide("a", {"files": {}})
        late = stage(first, "late")
        with second.locked(nothing):
            with pytest.raises(DirectoryBusy, match="another process has begun to write"):
                first.decide("b", {"files": {late: "late.parquet"}})
            first.publish({late: "late.parquet"})
            assert second.names() == []
            assert list(second.decisions()) == ["a"]
            second.decide("c", {})
    assert list(files(store).decisions()) == ["a", "c"]


def test_second_writer_completes_what_the_first_one_has_decided(store, expired):
    first, second = files(store), files(store)
    with first.locked(nothing):
        name = stage(first, "rows")
        first.decide("a", {"files": {name: "rows.parquet"}})

        def recover() -> None:
            second.publish(second.decisions()["a"]["files"])

        with second.locked(recover):
            first.publish({name: "rows.parquet"})
            assert second.names() == ["rows.parquet"]


def test_writer_that_was_asleep_for_many_entries_is_refused_although_its_number_is_free(store):
    sleeper, writer = FencedLog(store, "archive"), FencedLog(store, "archive")
    sleeper.begin()
    writer.begin()
    for number in range(250):
        writer.decide("a", {"number": number})
    assert len(store.files("_commits")) <= 201
    with pytest.raises(DirectoryBusy):
        sleeper.decide("a", {"number": -1})
    assert FencedLog(store, "archive").read() == {"a": {"number": 249}}
    writer.forget(["a", "unknown"])
    assert FencedLog(store, "archive").read() == {}


def test_store_that_ignores_the_condition_of_a_write_is_refused(store, monkeypatch):
    def create(name: str, data: bytes) -> bool:
        store.write(name, data)
        return True

    monkeypatch.setattr(store, "create", create)
    text = "ignores the condition of a write .* use a store that has conditional writes"
    with pytest.raises(ConfigError, match=text), files(store).locked(nothing):
        pass


def test_damaged_entry_is_named(store):
    store.write("_commits/00000000000000000001.json", b"{")
    with pytest.raises(ConfigError, match=r"_commits/0+1.json is damaged"):
        files(store).decisions()
