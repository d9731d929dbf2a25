"""Deferred records, which are read from disk only when they can be sent.

A deferred read returns the same bytes as an immediate read, or raises an error.
"""

from __future__ import annotations

from itertools import product

import pytest
from support.storage.logs import (
    DIRECTORY,
    append,
    batch,
    clean,
    open_log,
    produce,
    remove_below,
    three_segments,
)

from minikafka.base.errors import RecordsGone, StorageFailed
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.deferred import EAGER_BYTES, Deferred, read_or_defer
from minikafka.storage.log.log import Log

SIZE = len(batch())


def ignored(failure: StorageFailed) -> None:
    """Ignore a disk failure."""


def deferred(log: Log, position: int = 0, max_bytes: int = 1 << 20) -> Deferred:
    """Return the log's records from a file position on, as a `Deferred` (read in pieces)."""
    data, _, _ = read_or_defer(log, position, log.written_position, max_bytes, True, ignored)
    assert isinstance(data, Deferred)
    return data


def contents(data: Deferred | bytes, piece: int = 50) -> bytes:
    if isinstance(data, bytes):
        return data
    out = b""
    while data.left:
        out += data.read(piece)
    return out


@pytest.mark.parametrize("interval", [1, 3 * SIZE, 1 << 30])
def test_deferred_records_equal_the_records_of_an_immediate_read(interval: int) -> None:
    log = open_log(MemoryStorage(), segment_bytes=9 * SIZE, index_interval_bytes=interval)
    for number in range(24):
        produce(log, 1 + number % 3)
    boundaries = [log.locate(offset) for offset in range(log.log_end_offset)]
    limits = [*boundaries[::7], log.written_position]
    for position, limit, max_bytes in product(
        sorted(set(boundaries)), limits, (1, SIZE, 2 * SIZE + 5, 5 * SIZE, 1 << 20)
    ):
        data, *after = log.read(position, limit, max_bytes)
        found, *found_after = read_or_defer(log, position, limit, max_bytes, True, ignored)
        assert (contents(found), found_after) == (data, after), (position, limit, max_bytes)
        assert len(found) == len(data)


def test_few_records_are_read_immediately_and_many_only_when_they_are_sent() -> None:
    log = open_log(MemoryStorage())
    for _ in range(3):
        produce(log, 1, size=EAGER_BYTES - 1_000)
    end = log.written_position
    few, _, position = read_or_defer(log, 0, end, 100_000, False, ignored)
    assert (few, position) == (log.read(0, end, 100_000)[0], end // 3)
    many, _, position = read_or_defer(log, 0, end, 200_000, False, ignored)
    assert (type(many), position) == (Deferred, end)


def test_later_records_and_a_new_segment_do_not_change_deferred_records() -> None:
    log = three_segments(MemoryStorage())
    whole = log.read(20 * SIZE, log.written_position, 1 << 20)[0]
    data = deferred(log, 20 * SIZE)
    first = data.read(10)
    produce(log, *[1] * 10)
    assert log.segments[-1].base_offset > 20
    assert first + contents(data) == whole


def test_deletion_of_another_segment_does_not_change_deferred_records() -> None:
    log = three_segments(MemoryStorage())
    data = deferred(log, 10 * SIZE)
    remove_below(log, 10)
    assert len(contents(data)) == 10 * SIZE


def test_records_of_a_removed_segment_are_read_until_its_files_are_deleted() -> None:
    log = three_segments(MemoryStorage())
    whole = log.read(10 * SIZE, log.written_position, 1 << 20)[0]
    data = deferred(log, 10 * SIZE)
    remove_below(log, 20)
    assert contents(data) == whole


def test_records_of_a_compacted_segment_are_read_until_its_files_are_deleted() -> None:
    log = three_segments(MemoryStorage())
    whole = log.read(10 * SIZE, log.written_position, 1 << 20)[0]
    data = deferred(log, 10 * SIZE)
    clean(log, 1, lambda offset: offset % 2 == 0)
    assert contents(data) == whole
    log.retired.close()
    data = deferred(log, 10 * SIZE)
    assert contents(data) != whole


def _delete(log: Log) -> None:
    remove_below(log, 20)
    log.retired.close()


def _truncate(log: Log) -> None:
    log.truncate_to(19)
    for _ in range(10):
        append(log)
    log.flush()


def _close(log: Log) -> None:
    log.close()


@pytest.mark.parametrize("change", [_delete, _truncate, _close])
def test_deferred_read_raises_records_gone_after_a_deletion_truncation_or_log_close(
    change: object,
) -> None:
    log = three_segments(MemoryStorage())
    data = deferred(log, 10 * SIZE)
    data.read(10)
    change(log)  # type: ignore[operator]
    with pytest.raises(RecordsGone):
        data.read(10)


def test_disk_failure_during_a_deferred_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    log = three_segments(MemoryStorage())
    failures: list[StorageFailed] = []
    data, _, _ = read_or_defer(log, 0, log.written_position, 1 << 20, True, failures.append)
    failure = StorageFailed(DIRECTORY, OSError(5, "a bad sector"))

    def fail(count: int, position: int) -> bytes:
        raise failure

    monkeypatch.setattr(log.segments[0].file, "pread", fail)
    with pytest.raises(RecordsGone, match="a bad sector"):
        contents(data)
    assert failures == [failure]
