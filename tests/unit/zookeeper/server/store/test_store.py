"""The store of a server: its lock, its secret, its log files and snapshots."""

from __future__ import annotations

import pytest
from support.zookeeper.data import DIRECTORY, FOLDER, Writer, logs, recovered
from support.zookeeper.server_states import fingerprint, new_state

from minikafka.base.errors import DirectoryInUse, StorageFailed
from minikafka.simulation.files import Content, former_bytes
from minikafka.simulation.ports import SeededRng
from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.server.core.changes import DataSet, LoggedTransaction, SessionOpened
from minikafka.zookeeper.server.store.files import BATCH_BYTES_MAX, CorruptData
from minikafka.zookeeper.server.store.store import Store


def test_two_servers_cannot_use_one_directory() -> None:
    storage = MemoryStorage()
    first = Store(storage, DIRECTORY)
    first.recover(new_state())
    with pytest.raises(
        DirectoryInUse, match=r"/data is in use: another process holds .*; stop it first"
    ):
        recovered(storage)
    first.close()
    recovered(storage)


def test_secret_is_private_and_stays() -> None:
    storage = MemoryStorage()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    secret = store.secret(SeededRng(1))
    assert len(secret) == 16
    assert storage.private == {f"{DIRECTORY}/session-secret"}
    assert Store(storage.clone(), DIRECTORY).secret(SeededRng(9)) == secret
    storage.files[f"{DIRECTORY}/session-secret"][:] = b"short"
    with pytest.raises(CorruptData, match="must have 16 bytes, but has 5; remove it"):
        store.secret(SeededRng(1))


def test_each_roll_starts_a_log_named_after_its_first_transaction() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    writer.batch(5)
    first = writer.state.zxid + 1
    writer.store.roll()
    writer.store.roll()
    assert len(logs(storage)) == 1
    while writer.state.zxid < first:
        writer.batch(1)
    assert logs(storage) == [f"{FOLDER}/log.1", f"{FOLDER}/log.{first:x}"]


def test_log_is_durable_before_the_next_one_begins() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    writer.append(5)
    writer.store.roll()
    after_loss = storage.power_cut(lambda path, data, former: b"")
    assert fingerprint(recovered(after_loss)) == fingerprint(writer.state)


def test_new_directory_is_durable_although_an_earlier_start_was_killed_after_creating_it() -> None:
    storage = MemoryStorage()
    storage.make_directories(FOLDER, sync=False)
    writer = Writer(storage, seed=1)
    writer.batch(5)
    after_loss = storage.power_cut(former_bytes)
    assert fingerprint(recovered(after_loss)) == fingerprint(writer.state)


def test_name_of_a_new_log_is_durable_and_noted_with_its_first_transactions() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    storage.synced.clear()
    writer.batch(5)
    writer.batch(5)
    [log] = logs(storage)
    assert storage.synced == [log, FOLDER, f"{DIRECTORY}/durable-end", log]


def test_no_more_than_one_batch_is_ever_not_durable() -> None:
    storage = MemoryStorage()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    not_durable = []

    def measure(path: str) -> None:
        content = storage.files.get(path, Content())
        records = len(content.rstrip(b"\0"))
        not_durable.append(records - content.durable)

    storage.before_change = measure
    data = bytes(900_000)
    for first in (1, 8, 15):
        store.append(
            [LoggedTransaction(7, 0, first + i, 1, DataSet("/a", data, i)) for i in range(7)]
        )
    measure(logs(storage)[0])
    assert 3_000_000 < max(not_durable) <= BATCH_BYTES_MAX
    store.close()
    assert recovered(storage).zxid == 21


def test_empty_batch_begins_no_log() -> None:
    storage = MemoryStorage()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    store.append([])
    store.sync()
    assert logs(storage) == []


def test_existing_log_is_never_overwritten() -> None:
    storage = MemoryStorage()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    storage.files[f"{FOLDER}/log.1"] = bytearray(b"unexpected")
    with pytest.raises(CorruptData, match=r"/data/version-2/log\.1 exists"):
        store.append([LoggedTransaction(7, 0, 1, 1, SessionOpened(4000))])


def test_failed_write_and_failed_sync_are_raised() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    writer.append(3)
    storage.fail(FOLDER)
    with pytest.raises(StorageFailed):
        writer.store.sync()
    with pytest.raises(StorageFailed):
        writer.append(30)


def test_transactions_since_the_snapshot_are_counted_over_restarts() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    writer.batch(40)
    written = writer.state.zxid
    assert writer.store.transactions_since_roll == written
    writer.store.close()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    assert store.transactions_since_roll == written
    store.roll()
    assert store.transactions_since_roll == 0


def test_purge_keeps_three_snapshots_and_the_logs_after_the_oldest() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    for _ in range(6):
        writer.batch(10)
        writer.snapshot()
    writer.batch(10)
    snapshots = [name for name in storage.names(FOLDER) if name.startswith("snapshot.")]
    assert len(snapshots) == 3
    assert len(logs(storage)) == 3
    for damaged in range(3):
        image = storage.clone()
        newest = sorted(snapshots, key=lambda name: int(name.rpartition(".")[2], 16))
        for name in newest[3 - damaged :]:
            image.files[f"{FOLDER}/{name}"][-1] ^= 1
        assert fingerprint(recovered(image)) == fingerprint(writer.state)


def test_purge_may_stop_at_any_file() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    for _ in range(6):
        writer.batch(10)
        writer.store.roll()
        writer.store.write_snapshot(writer.state)
    images: list[MemoryStorage] = []
    storage.before_change = lambda path: images.append(storage.clone())
    writer.store.purge()
    assert len(images) > 5
    for image in images:
        assert fingerprint(recovered(image)) == fingerprint(writer.state)


def test_snapshots_that_failed_do_not_fill_the_disk() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    writer.batch(5)
    unfinished = f"{FOLDER}/snapshot.{writer.state.zxid:x}.tmp"
    storage.before_change = lambda path: (
        storage.fail(FOLDER) if unfinished in storage.files else None
    )
    with pytest.raises(StorageFailed):
        writer.store.write_snapshot(writer.state)
    assert unfinished in storage.files
    storage.before_change = lambda path: None
    storage.heal()
    writer.batch(5)
    writer.snapshot()
    assert unfinished not in storage.files


def test_snapshot_needs_its_transactions_in_the_log() -> None:
    writer = Writer(MemoryStorage(), seed=1)
    writer.state.open_session(9000, 0, 0)
    with pytest.raises(AssertionError):
        writer.store.write_snapshot(writer.state)
