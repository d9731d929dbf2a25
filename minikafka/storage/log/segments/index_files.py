"""The index files of a segment: reading them, and comparing their last entries with the log file.

After a power loss, a file system may return zeros for what was written without an fsync, or an earlier, shorter file.
So nothing is decided by an index file until its last entries agree with the batches at the end of the log file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from minikafka.base.ports import Storage
from minikafka.kafka.records.header import BASE_OFFSET, LAST_OFFSET_DELTA, MAX_TIMESTAMP, Header
from minikafka.storage.log.segments.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex

ALL: Final = 0
"""Number of entries that stands for every entry of a file."""

Range = tuple[int, int]
"""A byte range of a log file: its first position, and the position after its last byte."""
NOTHING: Final[Range] = (0, 0)

Headers = Callable[[int, int], Iterator[tuple[int, Header]]]
"""Yields (position, header) of each batch between two positions of the log file."""


class CheckedIndexes(NamedTuple):
    """The entries of both index files, which agree with the end of the log file.

    `unread`: the batches in this byte range may have a larger timestamp than the last entry of `times`. The batch of
    that entry, which lies before this range, and the last batches, which lie after it, were compared.
    """

    positions: OffsetIndex
    times: TimeIndex
    unread: Range


def read_entries(storage: Storage, path: str, entry_size: int, newest: int = ALL) -> bytes | None:
    """Return the entries of an index file, at most the `newest` last ones. Raises StorageFailed.

    Return None if the file is missing, or if its size is not a multiple of the entry size.
    """
    if not storage.exists(path):
        return None
    file = storage.open(path)
    try:
        size = file.size()
        start = max(size - newest * entry_size, 0) if newest else 0
        return None if size % entry_size else file.pread(size - start, start)
    finally:
        file.close()


def read_checked(
    storage: Storage,
    paths: tuple[str, str],
    base_offset: int,
    size: int,
    interval: int,
    headers: Headers,
    newest: int,
) -> CheckedIndexes | None:
    """Return the last entries of an offset index and of a time index, at most `newest` of each.

    `base_offset`: of the segment. `size`: of its log file. `interval`: bytes between two index entries. Return None if
    a file is missing or contradicts the log file. An empty file counts as missing, because a power loss may leave an
    empty file. Raises StorageFailed.
    """
    entries = read_entries(storage, paths[0], OFFSET_ENTRY.size, newest)
    timed = read_entries(storage, paths[1], TIME_ENTRY.size, newest)
    if entries is None or timed is None:
        return None
    index, times = OffsetIndex.decode(entries, size), TimeIndex.decode(timed)
    if index is None or times is None:
        return None
    if (size > interval and not len(index)) or (size and not len(times)):
        return None
    is_part = newest != ALL and len(index) == newest
    unread = unread_range(index, times, base_offset, size, headers, is_part=is_part)
    return None if unread is None else CheckedIndexes(index, times, unread)


def sync_files(storage: Storage, paths: Iterable[str]) -> None:
    """Fsync the files that exist. Raises StorageFailed."""
    for path in paths:
        if storage.exists(path):
            file = storage.open(path)
            try:
                file.sync()
            finally:
                file.close()


def unread_range(
    index: OffsetIndex,
    times: TimeIndex,
    base_offset: int,
    size: int,
    headers: Headers,
    *,
    is_part: bool,
) -> Range | None:
    """Compare the last entries with the log file, which has `size` bytes; return `CheckedIndexes.unread`.

    Return None if the entries contradict the log file. `is_part`: entries before `index` were not read, so None is also
    returned if they are needed.

    An entry of `index` must name the last offset of a batch at its position or later, because Kafka writes one entry
    for several batches. An entry of `times` must name the largest timestamp of the batch that holds its offset. No
    batch at the end of the log file may have a larger timestamp than the last entry.
    """
    tail_start = index.positions[-1] if len(index) else 0
    tail = list(headers(tail_start, size))
    if not tail:
        return NOTHING if not size else None
    last_offsets = [_last_offset(header) for _, header in tail]
    if len(index) and base_offset + index.lasts[-1] not in last_offsets:
        return None
    largest, last = times.last
    if max(header[MAX_TIMESTAMP] for _, header in tail) > largest:
        return None
    if last < 0:
        return (0, tail_start)
    rows = (
        [(largest, last)] if is_part else [(largest, last), (times.timestamps[0], times.offsets[0])]
    )
    begins = [_begin(index, offset, is_part) for _, offset in rows]
    for (timestamp, offset), begin in zip(rows, begins, strict=True):
        if begin < 0 or not _has_timestamp(headers(begin, size), base_offset + offset, timestamp):
            return None
    return (begins[0], tail_start)


def _begin(index: OffsetIndex, offset: int, is_part: bool) -> int:
    """Return the position from which to search for an offset, -1 if an entry that was not read is needed."""
    slot = index.slot_before(offset)
    if slot >= 0:
        return index.positions[slot]
    return -1 if is_part else 0


def _has_timestamp(batches: Iterable[tuple[int, Header]], offset: int, timestamp: int) -> bool:
    """True if `timestamp` is the largest timestamp of the batch that holds the offset, or else of the next batch."""
    following = (header for _, header in batches if _last_offset(header) >= offset)
    header = next(following, None)
    return header is not None and header[MAX_TIMESTAMP] == timestamp


def _last_offset(header: Header) -> int:
    return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
