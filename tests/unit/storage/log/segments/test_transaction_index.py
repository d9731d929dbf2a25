"""The file `.txnindex` and the search in it."""

from __future__ import annotations

import struct

import pytest

from minikafka.base.errors import StorageFailed
from minikafka.kafka.records.transactions import Aborted
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.segments.transaction_index import TransactionIndex, decode

PATH = "/d/00000000000000000010.txnindex"
ENTRIES = [Aborted(7, 10, 20, 15), Aborted(8, 15, 30, 31), Aborted(7, 35, 40, 41)]


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    storage.make_directories("/d")
    return storage


@pytest.fixture
def index(storage: MemoryStorage) -> TransactionIndex:
    index = TransactionIndex(storage, PATH)
    for aborted in ENTRIES:
        index.add(aborted)
    return index


def loaded(storage: MemoryStorage, end_offset: int | None = None) -> TransactionIndex:
    index = TransactionIndex(storage, PATH)
    index.load(end_offset)
    return index


def test_entry_is_written_in_kafkas_format_when_it_is_added(storage: MemoryStorage) -> None:
    index = TransactionIndex(storage, PATH)
    assert not storage.exists(PATH)
    for count, aborted in enumerate(ENTRIES, 1):
        index.add(aborted)
        data = storage.read(PATH)
        assert data == b"".join(struct.pack(">hqqqq", 0, *one) for one in ENTRIES[:count])


@pytest.mark.parametrize(
    ("offset", "end", "expected", "is_complete"),
    [
        (0, 10, [], True),
        (0, 11, [(7, 10)], True),
        (0, 16, [(7, 10), (8, 15)], True),
        (0, 36, [(7, 10), (8, 15), (7, 35)], True),
        (0, 42, [(7, 10), (8, 15), (7, 35)], False),
        (20, 21, [(7, 10), (8, 15)], True),
        (21, 30, [(8, 15)], True),
        (31, 50, [(7, 35)], False),
        (41, 50, [], False),
    ],
)
def test_search_returns_the_transactions_with_batches_in_a_range(
    index: TransactionIndex,
    offset: int,
    end: int,
    expected: list[tuple[int, int]],
    is_complete: bool,
) -> None:
    found: list[tuple[int, int]] = []
    assert index.collect(offset, end, found) == is_complete
    assert found == expected


def test_truncation_removes_the_entries_of_removed_markers(
    index: TransactionIndex, storage: MemoryStorage
) -> None:
    index.truncate(31)
    assert list(index) == list(loaded(storage)) == ENTRIES[:2]
    index.truncate(20)
    assert list(index) == []
    assert not storage.exists(PATH)
    index.add(ENTRIES[0])
    assert list(loaded(storage)) == ENTRIES[:1]


def test_entry_that_found_no_free_descriptor_is_written_with_the_next(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = TransactionIndex(storage, PATH)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "open", _without_descriptors)
        index.add(ENTRIES[0])
    assert not storage.exists(PATH)
    index.add(ENTRIES[1])
    assert list(loaded(storage)) == ENTRIES[:2]


def test_failure_of_the_disk_is_raised(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "open", _without_room)
    with pytest.raises(StorageFailed):
        TransactionIndex(storage, PATH).add(ENTRIES[0])


def _without_descriptors(path: str, *, create: bool = False) -> None:
    raise StorageFailed(path, OSError(24, "too many open files"))


def _without_room(path: str, *, create: bool = False) -> None:
    raise StorageFailed(path, OSError(28, "no space left"))


VALID = b"".join(struct.pack(">hqqqq", 0, *one) for one in ENTRIES)


@pytest.mark.parametrize(
    "data",
    [
        VALID[:-1],
        bytes(68),
        VALID + VALID,
        b"\0\1" + VALID[2:],
        struct.pack(">hqqqq", 0, 7, 20, 20, 21),
        struct.pack(">hqqqq", 0, 7, -1, 20, 21),
    ],
    ids=["cut off", "zeros", "twice", "version 1", "marker is the first offset", "negative offset"],
)
def test_invalid_file_leaves_the_index_incomplete(storage: MemoryStorage, data: bytes) -> None:
    storage.write_atomically(PATH, data)
    index = loaded(storage)
    assert (index.is_complete, list(index)) == (False, [])
    assert decode(data) is None


def test_file_with_a_marker_of_the_next_segment_is_invalid(storage: MemoryStorage) -> None:
    storage.write_atomically(PATH, VALID)
    assert not loaded(storage, 40).is_complete
    assert loaded(storage, 41).is_complete
