"""The transaction indexes of a log: written with abort markers, truncated, rebuilt, removed with their segments."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from support.storage.aborted import check_indexes, indexed
from support.storage.cleaning import carry_out, task, varied_log
from support.storage.logs import (
    DIRECTORY,
    append,
    batch,
    end_marker,
    open_log,
    read_all,
    remove_below,
    replace_segments,
    replicate,
    transactional_batch,
)

from minikafka.base.errors import StorageFailed
from minikafka.kafka.records.batch import end_of_transaction
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    COUNT,
    LAST_OFFSET_DELTA,
    OVERHEAD,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from minikafka.kafka.records.transactions import ABORT, Aborted, AbortedBatches
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log
from minikafka.storage.log.replay import batches_from
from minikafka.storage.log.segments.transaction_index import ENTRY

SIZE = len(batch())


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def write(log: Log, *batches: bytearray) -> None:
    for data in batches:
        append(log, data)
        log.flush()


def two_transactions(storage: MemoryStorage, **settings: Any) -> Log:
    """Return a log of two overlapping aborted transactions, of producers 7 and 8, and a committed one."""
    log = open_log(storage, **settings)
    write(log, transactional_batch(0), transactional_batch(0, producer=8))
    write(log, end_marker(commit=False), end_marker(commit=False, producer=8))
    write(log, transactional_batch(1), end_marker())
    return log


ABORTED = [Aborted(7, 0, 2, 1), Aborted(8, 1, 3, 4)]


def test_marker_of_an_abort_adds_an_entry_to_the_index(storage: MemoryStorage) -> None:
    assert indexed(two_transactions(storage)) == ABORTED


def test_marker_without_a_transaction_adds_no_entry(storage: MemoryStorage) -> None:
    log = open_log(storage)
    write(log, end_marker(commit=False))
    assert indexed(log) == []


def test_marker_of_a_later_epoch_aborts_the_transaction(storage: MemoryStorage) -> None:
    log = open_log(storage)
    write(log, transactional_batch(0), end_marker(commit=False, epoch=1))
    assert indexed(log) == [Aborted(7, 0, 1, 2)]


def test_follower_has_the_index_of_its_leader(storage: MemoryStorage) -> None:
    leader = two_transactions(storage)
    follower = open_log(MemoryStorage())
    replicate(follower, read_all(leader))
    assert indexed(follower) == ABORTED


def test_each_marker_is_indexed_in_its_segment(storage: MemoryStorage) -> None:
    log = two_transactions(storage, segment_bytes=2 * SIZE)
    assert [len(segment.transactions) for segment in log.segments][:3] == [0, 2, 0]
    assert log.aborted_transactions(0, 1) == [(7, 0)]
    assert log.aborted_transactions(1, 2) == [(7, 0), (8, 1)]
    assert log.aborted_transactions(3, 6) == [(8, 1)]
    assert log.aborted_transactions(4, 6) == []


@pytest.mark.parametrize("clean", [False, True])
def test_index_is_the_same_after_a_restart(storage: MemoryStorage, clean: bool) -> None:
    log = two_transactions(storage, segment_bytes=2 * SIZE)
    if clean:
        log.close()
    assert indexed(open_log(storage, clean=clean, segment_bytes=2 * SIZE)) == ABORTED


@pytest.mark.parametrize("damage", [b"", bytes(34), b"?"], ids=["missing", "zeros", "cut off"])
@pytest.mark.parametrize("recovery_point", [0, 3])
def test_recovery_rebuilds_a_damaged_index(
    storage: MemoryStorage, damage: bytes, recovery_point: int
) -> None:
    two_transactions(storage, segment_bytes=4 * SIZE)
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    if damage:
        storage.write_atomically(path, damage)
    else:
        storage.remove(path)
    log = open_log(storage, clean=False, segment_bytes=4 * SIZE, recovery_point=recovery_point)
    assert indexed(log) == ABORTED


def test_damaged_index_is_rebuilt_after_a_clean_stop(storage: MemoryStorage) -> None:
    two_transactions(storage, segment_bytes=2 * SIZE).close()
    (path,) = (path for path in storage.files if path.endswith(".txnindex"))
    storage.write_atomically(path, bytes(34))
    assert indexed(open_log(storage, segment_bytes=2 * SIZE)) == ABORTED


def test_rebuilt_index_has_a_transaction_that_began_in_an_earlier_segment(
    storage: MemoryStorage,
) -> None:
    log = two_transactions(storage, segment_bytes=2 * SIZE)
    assert [segment.base_offset for segment in log.segments][:2] == [0, 2]
    assert f"{DIRECTORY}/{2:020d}.snapshot" in storage.files
    again = open_log(storage, clean=False, segment_bytes=2 * SIZE, recovery_point=2)
    assert indexed(again) == ABORTED


@pytest.mark.parametrize(
    ("end", "expected"), [(5, ABORTED), (3, ABORTED[:1]), (2, []), (1, []), (0, [])]
)
@pytest.mark.parametrize("segment_bytes", [2 * SIZE, 100 * SIZE])
def test_truncation_removes_entries_of_removed_markers(
    storage: MemoryStorage, end: int, expected: list[Aborted], segment_bytes: int
) -> None:
    log = two_transactions(storage, segment_bytes=segment_bytes)
    log.truncate_to(end)
    assert indexed(log) == expected
    open_ = {7: 0, 8: 1}
    for one in expected:
        del open_[one.producer_id]
    for producer in open_ if end >= 2 else ():
        write(log, end_marker(commit=False, producer=producer))
    assert sorted(one.first_offset for one in indexed(log)) == ([0, 1] if end >= 2 else [])
    assert indexed(open_log(storage, clean=False, segment_bytes=segment_bytes)) == indexed(log)


def test_new_log_at_the_same_offset_has_an_empty_index(storage: MemoryStorage) -> None:
    log = two_transactions(storage)
    log.truncate_fully_and_start_at(0)
    assert indexed(log) == []
    assert not [path for path in storage.files if path.endswith(".txnindex")]


def test_index_is_removed_with_its_segment(storage: MemoryStorage) -> None:
    log = two_transactions(storage, segment_bytes=2 * SIZE)
    remove_below(log, 4)
    names = [path for path in storage.files if ".txnindex" in path]
    assert names == [f"{DIRECTORY}/{2:020d}.txnindex.deleted"]
    assert indexed(log) == []


def test_index_of_a_sealed_segment_is_durable_before_the_recovery_point_passes_it(
    storage: MemoryStorage,
) -> None:
    log = two_transactions(storage, segment_bytes=2 * SIZE)
    log.sync()
    assert log.recovery_point == 6
    assert f"{DIRECTORY}/{2:020d}.txnindex" in storage.synced


def test_index_is_durable_after_a_clean_stop(storage: MemoryStorage) -> None:
    two_transactions(storage).close()
    assert f"{DIRECTORY}/{0:020d}.txnindex" in storage.synced


def test_log_refuses_further_use_if_an_index_cannot_be_written(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(storage)
    write(log, transactional_batch(0))
    storage_open = storage.open

    def full(path: str, *, create: bool = False) -> Any:
        if path.endswith(".txnindex"):
            raise StorageFailed(path, OSError(28, "no space left"))
        return storage_open(path, create=create)

    monkeypatch.setattr(storage, "open", full)
    with pytest.raises(StorageFailed):
        append(log, end_marker(commit=False))
    assert log.log_end_offset == log.written_log_end_offset == 1
    with pytest.raises(StorageFailed):
        write(log, batch())


@pytest.mark.parametrize("seed", range(5))
def test_indexes_of_a_varied_log_agree_with_its_batches(seed: int) -> None:
    storage = MemoryStorage()
    log = varied_log(storage, DIRECTORY, Random(seed), 20_000_000)
    check_indexes(log)
    before = indexed(log)
    assert len(before) > 3
    for recovery_point in (0, log.log_end_offset // 2, log.log_end_offset):
        again = open_log(
            storage.clone(), clean=False, segment_bytes=6_000, recovery_point=recovery_point
        )
        assert indexed(again) == before
    cut = Random(seed).randrange(log.log_end_offset)
    log.truncate_to(cut)
    check_indexes(log)
    end = log.log_end_offset
    assert indexed(log) == [one for one in before if one.last_offset < end]


@pytest.mark.parametrize("is_cleaned", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_reader_of_any_range_hides_exactly_the_aborted_batches(seed: int, is_cleaned: bool) -> None:
    """The reader gets the aborted transactions of its range and filters batches as consumers do."""
    chance, storage = Random(seed), MemoryStorage()
    log = varied_log(storage, DIRECTORY, chance, 20_000_000, open_from=200)
    stable = log.producers.first_unstable_offset(log.log_end_offset)
    hidden = hidden_batches(log)
    assert stable is not None
    if is_cleaned:
        groups, _ = carry_out(storage, task(log, 20_000_000, stable))
        segments = {segment.base_offset: segment for segment in log.segments}
        for group in groups:
            replace_segments(log, [segments[base] for base in group.bases])
    batches = [
        header
        for _, _, header in batches_from(log.segments, 0, log.written_position)
        if header[BASE_OFFSET] < stable
    ]
    assert len(hidden) > 5
    for _ in range(200):
        first = chance.randrange(len(batches))
        read = batches[first : first + chance.randrange(1, 40)]
        begin = read[0][BASE_OFFSET]
        end = read[-1][BASE_OFFSET] + read[-1][LAST_OFFSET_DELTA] + 1
        found = AbortedBatches(Aborted(*one) for one in log.aborted_transactions(begin, end))
        for header in read:
            is_hidden = header[BASE_OFFSET] in hidden
            assert found.is_aborted(header) == is_hidden or not header[COUNT], (header, begin, end)


def hidden_batches(log: Log) -> set[int]:
    """Return the base offset of every batch whose producer's next marker aborts its transaction."""
    open_: dict[int, list[int]] = {}
    hidden: set[int] = set()
    for segment, position, header in batches_from(log.segments, 0, log.written_position):
        if header[ATTRIBUTES] & CONTROL:
            batch = segment.file.pread(OVERHEAD + header[BATCH_LENGTH], position)
            mine = open_.pop(header[PRODUCER_ID], [])
            hidden.update(mine if end_of_transaction(batch)[0] == ABORT else ())
        elif header[ATTRIBUTES] & TRANSACTIONAL:
            open_.setdefault(header[PRODUCER_ID], []).append(header[BASE_OFFSET])
    return hidden


def test_copy_without_aborted_records_has_an_empty_index_if_the_first_segment_has_an_index(
    storage: MemoryStorage,
) -> None:
    """Otherwise, the index of the replaced segment could be taken for that of the copy after a power loss."""
    log = open_log(storage, segment_bytes=4 * SIZE, cleanup_policy=("compact",))
    write(log, transactional_batch(0), end_marker(commit=False), *(batch() for _ in range(6)))
    write(log, transactional_batch(1), end_marker())
    assert len(log.segments[0].transactions) == 1
    for _ in range(2):  # the first cleaning removes the aborted records, but not their entry
        groups, _ = carry_out(storage, task(log, 0, uncleanable=log.segments[-1].base_offset))
        data = storage.read(f"{DIRECTORY}/{0:020d}.txnindex.cleaned")
        replace_segments(
            log, [segment for segment in log.segments if segment.base_offset in groups[0].bases]
        )
    assert data == b""
    assert not log.segments[0].transactions


def test_index_with_an_entry_of_the_next_segment_is_rebuilt_at_the_start(
    storage: MemoryStorage,
) -> None:
    log = two_transactions(storage, segment_bytes=3 * SIZE)
    end = log.log_end_offset
    first, second = log.segments[:2]
    both = [*first.transactions, *second.transactions]
    assert first.transactions
    assert second.transactions
    log.close()
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    storage.files[path] = bytearray(b"".join(ENTRY.pack(0, *one) for one in both))
    again = open_log(storage, clean=True, recovery_point=end, segment_bytes=3 * SIZE)
    assert indexed(again) == ABORTED
    check_indexes(again)
