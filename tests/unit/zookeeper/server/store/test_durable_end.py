"""What was acknowledged must be there at the next start: no lost, renamed or older file goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pytest
from support.zookeeper.data import DIRECTORY, FOLDER, Writer, last_log, logs, recovered
from support.zookeeper.server_states import fingerprint, new_state

from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.messages.codes import CREATE
from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.server.core.changes import Created, LoggedTransaction
from minikafka.zookeeper.server.store import durable_end
from minikafka.zookeeper.server.store.durable_end import DurableEnd
from minikafka.zookeeper.server.store.files import CorruptData
from minikafka.zookeeper.server.store.moving import CopiedDirectory, copy
from minikafka.zookeeper.server.store.store import Store

NOTE: Final = f"{DIRECTORY}/{durable_end.NAME}"
Change: TypeAlias = Callable[[MemoryStorage], object]


def written() -> tuple[MemoryStorage, Store]:
    """Return the storage of a server that has acknowledged ten creates, one by one."""
    storage = MemoryStorage()
    store = Store(storage, DIRECTORY)
    store.recover(new_state())
    for zxid in range(1, 11):
        change = Created(CREATE, f"/n{zxid}", b"", ANYONE, False, zxid)
        store.append([LoggedTransaction(7, 0, zxid, 1, change)])
        store.sync()
    return storage, store


def without_second_line(storage: MemoryStorage) -> MemoryStorage:
    """Return what a loss of power leaves if the note of the last flushes was not on the disk."""
    return storage.power_cut(lambda path, data, former: b"" if path == NOTE else data)


def ten_creates(*, stops: bool = True) -> MemoryStorage:
    """Return the files of such a server, which has stopped or was killed."""
    storage, store = written()
    if stops:
        store.close()
    return storage.clone()


def many_files(*, stops: bool) -> tuple[MemoryStorage, MemoryStorage, Writer]:
    """Return a backup, the files of a server some transactions later, and its writer."""
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    backup = storage
    for number in range(5):
        for _ in range(3):
            writer.batch(2)
        if number < 4:
            writer.snapshot()
        if number == 3:
            backup = storage.clone()
    if stops:
        writer.store.close()
    return backup, storage.clone(), writer


def refusal(storage: MemoryStorage) -> str:
    with pytest.raises(CorruptData) as refused:
        recovered(storage)
    return str(refused.value)


def swap(one: str, other: str, storage: MemoryStorage) -> None:
    storage.files[one], storage.files[other] = storage.files[other], storage.files[one]


def changes(storage: MemoryStorage, backup: MemoryStorage) -> Iterator[tuple[str, Change]]:
    """Yield what can happen to the files, each with its name."""
    paths = [path for path in storage.files if not path.endswith(".lock")]
    for path in paths:
        size = len(storage.files[path].rstrip(b"\0"))
        yield f"{path} is deleted", lambda image, path=path: image.remove(path)
        for kept in (0, 16, size // 3, size // 2, size - 1):
            yield (
                f"{path} is cut at {kept}",
                lambda image, path=path, kept=kept: image.files[path].__delitem__(
                    slice(kept, None)
                ),
            )
        yield (
            f"{path} is zeroed",
            lambda image, path=path: image.files[path].__setitem__(
                slice(None), bytes(len(image.files[path]))
            ),
        )
        for at in range(3, size, max(size // 20, 1)):
            yield (
                f"a bit of {path} flips at {at}",
                lambda image, path=path, at=at: image.files[path].__setitem__(
                    at, image.files[path][at] ^ 4
                ),
            )
        if path in backup.files:
            yield (
                f"{path} is older",
                lambda image, path=path: image.files[path].__setitem__(
                    slice(None), backup.files[path]
                ),
            )
        for name in ("log.1", "log.2", "log.fff", "snapshot.2", "snapshot.fff"):
            yield (
                f"{path} is renamed to {name}",
                lambda image, path=path, name=name: image.rename(path, f"{FOLDER}/{name}"),
            )
            yield (
                f"{path} is copied to {name}",
                lambda image, path=path, name=name: image.files.__setitem__(
                    f"{FOLDER}/{name}", bytearray(image.files[path])
                ),
            )
        for other in paths:
            yield (
                f"{path} and {other} are swapped",
                lambda image, path=path, other=other: swap(path, other, image),
            )
    yield "all logs are deleted", lambda image: [image.remove(log) for log in logs(image)]
    yield "the folder is deleted", lambda image: image.remove_tree(FOLDER)
    yield (
        "the folder is older",
        lambda image: (
            [image.remove(path) for path in paths if path.startswith(FOLDER)],
            image.files.update(
                {path: bytearray(old) for path, old in backup.files.items() if FOLDER in path}
            ),
        ),
    )
    yield (
        "all logs are older",
        lambda image: (
            [image.remove(log) for log in logs(image)],
            image.files.update({log: bytearray(backup.files[log]) for log in logs(backup)}),
        ),
    )


@pytest.mark.parametrize("stops", [True, False], ids=["stopped", "killed"])
def test_no_change_of_a_file_loses_anything_without_a_refusal(stops: bool) -> None:
    backup, storage, writer = many_files(stops=stops)
    expected = writer.after[writer.durable]
    assert fingerprint(recovered(storage.clone())) == expected
    refused, silent = 0, []
    for name, change in changes(storage, backup):
        image = storage.clone()
        change(image)
        try:
            state = recovered(image)
        except CorruptData:
            refused += 1
        else:
            if fingerprint(state) != expected:
                silent.append(name)
    assert silent == []
    assert refused > 50


def test_deleted_last_log_is_refused_with_what_it_had() -> None:
    storage = ten_creates()
    storage.remove(f"{FOLDER}/log.1")
    assert refusal(storage) == (
        f"{FOLDER}/log.1 is missing, so that transactions 0x1 to 0xa cannot be read; restore {FOLDER}/log.1 from a copy"
        f" of the directory. Without one, for a Kafka cluster: move {DIRECTORY} away, and run 'minikafka zk recover';"
        f" for other clients: copy what is left with 'minikafka zk import {DIRECTORY} NEW_DIRECTORY', and use the copy"
    )


def test_log_that_is_not_named_after_its_first_transaction_is_refused() -> None:
    _, storage, _ = many_files(stops=True)
    [*_, one, other] = logs(storage)
    swap(one, other, storage)
    zxid = one.rpartition(".")[2]
    assert f"{other} begins with transaction 0x{zxid} (is it log.{zxid}?)" in refusal(storage)


def test_snapshot_that_is_not_named_after_its_last_transaction_is_not_used() -> None:
    storage = ten_creates()
    storage.rename(f"{FOLDER}/snapshot.0", f"{FOLDER}/snapshot.5")
    text = refusal(storage)
    assert f"{FOLDER}/snapshot.5 is damaged (it has the state after 0x0" in text
    assert "transactions 0x1 to 0xa cannot be read" in text


@pytest.mark.parametrize("stops", [True, False], ids=["stopped", "killed"])
def test_every_transaction_that_was_acknowledged_is_noted(stops: bool) -> None:
    storage = ten_creates(stops=stops)
    end = durable_end.read(storage, DIRECTORY)
    size = len(storage.files[f"{FOLDER}/log.1"].rstrip(b"\0"))
    assert end == DurableEnd("log.1", size, 10)
    storage.files[f"{FOLDER}/log.1"][size - 3] ^= 1
    assert "so that transactions 0xa to 0xa cannot be read" in refusal(storage)


@pytest.mark.parametrize("remains", [b"", b"\xff" * 9_000, bytes(9_000)])
def test_note_survives_a_power_loss_that_leaves_any_bytes(remains: bytes) -> None:
    storage, _ = written()
    left = storage.power_cut(lambda path, data, former: remains if path == NOTE else data)
    assert durable_end.read(left, DIRECTORY) == DurableEnd("log.1", 104, 1)
    assert recovered(left).zxid == 10


def test_flipped_bit_costs_no_more_than_the_last_flush_without_a_note_of_the_flushes() -> None:
    storage = without_second_line(written()[0])
    log = storage.files[f"{FOLDER}/log.1"]
    lost = []
    for at in range(len(log.rstrip(b"\0"))):
        image = storage.clone()
        image.files[f"{FOLDER}/log.1"][at] ^= 16
        try:
            lost.append(10 - recovered(image).zxid)
        except CorruptData:
            continue
    assert max(lost) == 1  # the last record, behind which nothing says that it was on the disk


def test_write_that_a_power_loss_has_torn_anywhere_is_not_taken_for_damage() -> None:
    storage, store = written()
    log = storage.files[f"{FOLDER}/log.1"]
    whole = len(log.rstrip(b"\0"))
    for first in (11, 14):  # two writes without an fsync
        changes = (
            Created(CREATE, f"/m{i}", b"", ANYONE, False, i) for i in range(first, first + 3)
        )
        store.append(
            [LoggedTransaction(7, 0, first + i, 1, change) for i, change in enumerate(changes)]
        )
    end = len(log.rstrip(b"\0"))
    for at in range(whole, end):
        image = storage.clone()
        image.files[f"{FOLDER}/log.1"][at : at + 40] = bytes(40)
        assert recovered(image).zxid >= 10


def test_missing_note_is_refused() -> None:
    storage = ten_creates()
    storage.remove(NOTE)
    assert refusal(storage).startswith(f"{NOTE} is missing, so that nobody can tell whether")


def test_damaged_note_is_refused() -> None:
    storage = ten_creates()
    storage.files[NOTE][7] ^= 1
    assert refusal(storage).startswith(f"{NOTE} is damaged, so that nobody can tell whether")


def test_note_of_an_earlier_version_still_protects_its_log() -> None:
    storage = ten_creates()
    size = len(storage.files[f"{FOLDER}/log.1"].rstrip(b"\0"))
    storage.files[NOTE][:] = f"log.1 {size}\n".encode()
    assert recovered(storage.clone()).zxid == 10
    missing = storage.clone()
    missing.remove(f"{FOLDER}/log.1")
    assert f"{FOLDER}/log.1 is missing" in refusal(missing)
    del storage.files[f"{FOLDER}/log.1"][size - 1 :]
    assert "is damaged at byte" in refusal(storage)


def test_copy_is_the_way_to_give_up_what_is_lost() -> None:
    storage = ten_creates()
    storage.remove(f"{FOLDER}/log.1")
    copied = copy(storage, CopiedDirectory(DIRECTORY), "/new", lambda step, done, total: None)
    assert copied.notes == ("transactions 0x1 to 0xa are missing, which were acknowledged",)
    assert recovered(storage, "/new").zxid == 0


def test_new_log_is_noted_before_its_transactions_are_acknowledged() -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed=1)
    for _ in range(3):
        writer.batch(5)
        writer.store.roll()
        image = storage.power_cut(lambda path, data, former: b"")
        image.remove(last_log(image))
        assert "is missing, so that transactions" in refusal(image)
