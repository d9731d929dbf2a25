"""A data directory after a crash at any byte of the last records, and at any write and fsync."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import pytest
from support.memory_storage import MemoryStorage
from support.server_states import RandomWrites, fingerprint, new_state

from minikafka.zk.core.state import ServerState
from minikafka.zk.store.store import Store

DIRECTORY: Final = "/data"
FOLDER: Final = "/data/version-2"


class Writer:
    """A state whose random writes go to a store, with the fingerprint after each zxid."""

    def __init__(self, storage: MemoryStorage, seed: int) -> None:
        self.state = new_state()
        self.store = Store(storage, DIRECTORY)
        self.after: dict[int, object] = {}
        self.durable = -1
        """The last zxid that has been acknowledged."""
        self.store.recover(self.state)
        self._acknowledge()
        self.writes = RandomWrites(self.state, Random(seed))
        self._note()

    def _note(self) -> None:
        self.after[self.state.zxid] = fingerprint(self.state)

    def _acknowledge(self) -> None:
        self._note()
        self.durable = self.state.zxid

    def batch(self, count: int) -> None:
        """Write a batch and make it durable."""
        for _ in range(count):
            self.writes.step()
            self._note()
        self.store.append(self.state.journal)
        self.state.journal.clear()
        self.store.sync()
        self._acknowledge()

    def snapshot(self) -> None:
        self.store.roll()
        self.store.write_snapshot(self.state)
        self.store.purge()


def recovered(storage: MemoryStorage) -> ServerState:
    """Return the state that a new server has."""
    state = new_state()
    store = Store(storage, DIRECTORY)
    store.recover(state)
    store.close()
    return state


def check_recovery(image: MemoryStorage, expected: Callable[[int], object]) -> int:
    """Recover twice, write on, and recover again; return the zxid of the first recovery."""
    first = recovered(image)
    assert fingerprint(first) == expected(first.zxid)
    assert fingerprint(recovered(image)) == fingerprint(first), "recovery is not idempotent"
    writer = Writer(image.clone(), seed=first.zxid)
    writer.batch(3)
    assert fingerprint(recovered(writer.store._storage.clone())) == fingerprint(writer.state)
    return first.zxid


def last_log(storage: MemoryStorage) -> str:
    return max(
        (path for path in storage.files if "/log." in path),
        key=lambda path: int(path.rpartition(".")[2], 16),
    )


def damages(content: bytes, at: int, random: Random) -> list[bytes]:
    """Return the file cut at a byte, with zeros or garbage from there on, and with one bit flipped."""
    rest = len(content) - at
    flipped = bytearray(content)
    flipped[at] ^= 1 << random.randrange(8)
    return [
        content[:at],
        content[:at] + bytes(rest),
        content[:at] + random.randbytes(rest),
        bytes(flipped),
    ]


@pytest.mark.parametrize("seed", range(2))
def test_damage_at_any_byte_of_the_last_records_ends_the_log_there(seed: int) -> None:
    storage = MemoryStorage()
    writer = Writer(storage, seed)
    log, ends = "", {}
    for _ in range(30):
        writer.batch(1)
        log = last_log(storage)
        ends[len(storage.files[log])] = writer.state.zxid
    content, random = bytes(storage.files[log]), Random(seed)
    for at in range(sorted(ends)[-8], len(content)):
        kept = max(end for end in ends if end <= at)
        for damaged in damages(content, at, random):
            image = storage.clone()
            image.files[log][:] = damaged
            assert check_recovery(image, writer.after.__getitem__) == ends[kept]


def remains(random: Random) -> list[Callable[[str, bytes], bytes]]:
    """Return what a power loss may leave of bytes that were not fsynced."""
    cut = random.random()
    return [
        lambda path, data: data,
        lambda path, data: b"",
        lambda path, data: data[: int(len(data) * cut)],
        lambda path, data: bytes(len(data)),
        lambda path, data: random.randbytes(len(data)),
        lambda path, data: bytes(len(data) // 2) + data[len(data) // 2 :],
    ]


@pytest.mark.parametrize("seed", range(4))
def test_crash_at_any_write_or_fsync_loses_nothing_acknowledged(seed: int) -> None:
    storage, random = MemoryStorage(), Random(seed)
    images: list[tuple[MemoryStorage, int]] = []
    writers: list[Writer] = []

    def take_images(path: str) -> None:
        durable = writers[0].durable if writers else -1
        images.extend((storage.power_cut(left), durable) for left in remains(random))

    storage.before_change = take_images
    writers.append(Writer(storage, seed))
    for _ in range(6):
        for _ in range(3):
            writers[0].batch(random.randrange(1, 4))
        writers[0].snapshot()
    take_images("")
    assert len(images) > 300
    for image, durable in images:
        image.before_change = lambda path: None
        assert (
            check_recovery(image, lambda zxid: writers[0].after.get(zxid, fingerprint(new_state())))
            >= durable
        )
