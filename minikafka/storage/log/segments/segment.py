"""One segment of a log: the file `<base offset>.log` with its offset index and time index.

Invariant: the indexes only speed up searches; all their data can be derived from the log file, so an
index file that is missing or contradicts the log file is rebuilt. The indexes of the active segment are
in memory; their files are written when the segment is sealed, at a checkpoint and at close. A new log
has no files until its first batch. Positions in this module are relative to the segment file; `start`
is the absolute position of the segment in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from minikafka.base.ports import File, Storage
from minikafka.kafka.records.batch import records, valid_run, whole_batches
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP,
    OVERHEAD,
    Header,
)
from minikafka.storage.log.producers import SUFFIX as SNAPSHOT
from minikafka.storage.log.segments.index import OFFSET_ENTRY, UNKNOWN_BASE, OffsetIndex, TimeIndex
from minikafka.storage.log.segments.index_files import (
    ALL,
    NOTHING,
    CheckedIndexes,
    read_checked,
    read_entries,
)
from minikafka.storage.log.segments.stand_ins import UnmadeFile, create_files, undone
from minikafka.storage.log.segments.transaction_index import TXN_INDEX, TransactionIndex

logger = logging.getLogger(__name__)

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
DELETED: Final = ".deleted"
"""Suffix of the files of a segment that was removed from its log. The files are deleted later."""
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
RECORD_OFFSET: Final = 1
"""Index of the offset in the tuple that `Segment.record_since` returns."""

_WALK_BYTES: Final = 64 * 1024
_FIND_BYTES: Final = 8 * 1024
_SCAN_BYTES: Final = 1024 * 1024
_unpack_header: Final = HEADER.unpack_from
_NO_ENTRIES: Final = (0, 0)
_NEWEST_ENTRIES: Final = 1024
"""Number of entries that are read from the end of an index file if the indexes are not loaded."""


class Segment:
    """A segment of the log. The first batch after the log position `next_index_position` gets the next index entry.

    `version` increases when written bytes change or can no longer be read. `_unread`: the byte range of the log file
    that may contradict `max_timestamp`, because `max_timestamp` comes from an index file.
    """

    __slots__ = (
        "_end_is_checked",
        "_entries_on_disk",
        "_first_timestamp",
        "_index",
        "_index_is_loaded",
        "_times",
        "_unread",
        "base_offset",
        "directory",
        "file",
        "interval",
        "max_timestamp",
        "max_timestamp_offset",
        "next_index_position",
        "start",
        "storage",
        "transactions",
        "version",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        base_offset: int,
        start: int,
        interval: int,
        made: Callable[[], None] | None = None,
        file: File | None = None,
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.base_offset = base_offset
        self.start = start
        self.interval = interval
        self._index = OffsetIndex()
        self._times = TimeIndex()
        self.transactions = TransactionIndex(storage, self.path(TXN_INDEX))
        self._index_is_loaded = self._end_is_checked = False
        self._unread = NOTHING
        self._entries_on_disk = (-1, -1)
        self._first_timestamp = -1
        self.version = 0
        self.max_timestamp = self.max_timestamp_offset = -1
        self.next_index_position = start + interval
        self.file: File
        if made:
            self.file = UnmadeFile(self.path(LOG), partial(self._make_files, made))
        else:
            self.file = file or storage.open(self.path(LOG), create=True)

    @classmethod
    def create(
        cls, storage: Storage, directory: str, base_offset: int, start: int, interval: int
    ) -> Segment:
        """Create an empty segment; replace the files of an earlier segment with the same base offset."""
        segment = cls(storage, directory, base_offset, start, interval)
        with undone(segment.delete):
            segment.file.truncate(0)
            storage.remove(segment.path(TXN_INDEX))
            segment._use(OffsetIndex(), TimeIndex())
            segment.write_index_files(sealed=False)
        return segment

    @classmethod
    def first(
        cls,
        storage: Storage,
        directory: str,
        base_offset: int,
        interval: int,
        made: Callable[[], None],
        start: int = 0,
    ) -> Segment:
        """Return the first segment of an empty log. The first batch creates its files, then `made` is called."""
        segment = cls(storage, directory, base_offset, start, interval, made)
        segment._use(OffsetIndex(), TimeIndex())
        segment._entries_on_disk = _NO_ENTRIES
        return segment

    @property
    def is_made(self) -> bool:
        """True if the log file exists. The file of a new log is created by the first batch."""
        return type(self.file) is not UnmadeFile

    def _make_files(self, made: Callable[[], None]) -> File:
        """Create the log file and the two indexes that Kafka's tools expect; return the log file."""
        self.file = create_files(self.storage, self.paths()[1:], made)
        return self.file

    def make(self) -> None:
        """Create the files of the segment if they do not exist. Raises StorageFailed, and then leaves no file."""
        if isinstance(self.file, UnmadeFile):
            self.file.make()

    def path(self, suffix: str) -> str:
        """Return the path of the segment file with this suffix."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    def paths(self) -> list[str]:
        """Return the paths of the segment's files, the log file last: no crash during deletion leaves only indexes."""
        return [self.path(suffix) for suffix in (TXN_INDEX, INDEX, TIME_INDEX, LOG)]

    def derived_paths(self, end_offset: int) -> list[str]:
        """Return the paths of the index files, and of the producer snapshot at the end of the segment."""
        return [*self.paths()[:3], f"{self.directory}/{end_offset:020d}{SNAPSHOT}"]

    # Indexes.

    @property
    def index(self) -> OffsetIndex:
        """Return the offset index, loaded or rebuilt at the first call."""
        self.load_index()
        return self._index

    @property
    def times(self) -> TimeIndex:
        """Return the time index, loaded or rebuilt at the first call."""
        self.load_index()
        return self._times

    def note(self, base_offset: int, last_offset: int, timestamp: int, position: int) -> bool:
        """Add a batch at this absolute position to the indexes; return True if the offset index got an entry.

        `timestamp` is the batch's largest timestamp. The indexes must be loaded.
        """
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position <= self.next_index_position:
            return False
        base = self.base_offset
        index = self._index
        index.lasts.append(last_offset - base)
        index.positions.append(position - self.start)
        index.bases.append(base_offset - base)
        if self.max_timestamp > self._times.last_timestamp:
            self._times.maybe_add(self.max_timestamp, self.max_timestamp_offset - base)
        self.next_index_position = position + self.interval
        return True

    def _note_found(self, header: Header, position: int) -> int:
        """Add the batch at this position in the file to the indexes; return the batch's last offset."""
        base_offset = header[BASE_OFFSET]
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        self.note(base_offset, last_offset, header[MAX_TIMESTAMP], self.start + position)
        return last_offset

    def write_index_files(self, *, sealed: bool, suffix: str = "", sync: bool = False) -> None:
        """Write the index files if they have changed.

        `sealed`: no batch will follow, so the largest timestamp is added to the time index. `suffix` is added
        to the file names. `sync`: fsync the files.
        """
        index, times = self.index, self.times
        if sealed:
            times.maybe_add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        if (len(index), len(times)) != self._entries_on_disk:
            self._entries_on_disk = (-1, -1)
            for kind, entries in ((INDEX, index), (TIME_INDEX, times)):
                path = self.path(kind + suffix)
                self.storage.write_atomically(path, entries.encode(), sync=sync)
            self._entries_on_disk = (len(index), len(times))
        self.transactions.write(suffix=suffix, sync=sync)

    def _use(self, index: OffsetIndex, times: TimeIndex) -> None:
        """Replace both indexes; set the largest timestamp and the next index position from their last entries.

        The caller sets `_unread` if the log file may contradict the entries.
        """
        self._index, self._times = index, times
        self._index_is_loaded = self._end_is_checked = True
        self._unread = NOTHING
        self.max_timestamp, last = times.last
        self.max_timestamp_offset = self.base_offset + last if last >= 0 else -1
        self.next_index_position = (
            self.start + self.interval + (index.positions[-1] if len(index) else 0)
        )

    def load_index(self) -> None:
        """Load or rebuild both indexes, unless they are loaded."""
        if self._index_is_loaded:
            return
        size = self.file.size()
        if not size and not any(map(self.storage.exists, self.paths()[1:3])):
            self._use(OffsetIndex(), TimeIndex())
            self._entries_on_disk = _NO_ENTRIES
            return
        loaded = self._read_index_files(size)
        if loaded is None:
            self._rebuild_index()
        else:
            index, times, unread = loaded
            self._use(index, times)
            self._unread = unread
            self._entries_on_disk = (len(index), len(times))

    def _rebuild_index(self) -> None:
        """Rebuild the indexes from the batch headers."""
        logger.info("rebuilding the indexes of %s", self.path(LOG))
        self._use(OffsetIndex(), TimeIndex())
        for position, header in self.headers(0, self.file.size()):
            self._note_found(header, position)
        self._entries_on_disk = (-1, -1)
        self.write_index_files(sealed=True, sync=True)

    def _read_index_files(self, size: int, newest: int = ALL) -> CheckedIndexes | None:
        interval, paths = self.interval, (self.path(INDEX), self.path(TIME_INDEX))
        headers = partial(self.headers, chunk_bytes=_FIND_BYTES)
        return read_checked(self.storage, paths, self.base_offset, size, interval, headers, newest)

    def largest_timestamp(self) -> int:
        """Return the largest record timestamp (Unix ms) of the segment, -1 if there is none. Raises StorageFailed.

        If the indexes are not loaded, only the ends of the index files and of the log file are read.
        """
        if not self._end_is_checked:
            end = self._read_index_files(self.file.size(), _NEWEST_ENTRIES)
            if end is None:
                self.load_index()
            else:
                self._end_is_checked = True
                self.max_timestamp, self._unread = end.times.last[0], end.unread
        return self.max_timestamp

    @property
    def is_confirmed(self) -> bool:
        """True if no batch of the log file can have a larger timestamp than `largest_timestamp` has returned."""
        begin, end = self._unread
        return begin >= end

    def confirm(self, max_bytes: int) -> int:
        """Compare batches in about `max_bytes` of the log file with the largest timestamp; return the bytes read.

        Call this after `largest_timestamp`. If a batch has a larger timestamp, the indexes are rebuilt.
        """
        begin, end = self._unread
        after = begin
        self._unread = NOTHING
        for position, header in self.headers(begin, end):
            if header[MAX_TIMESTAMP] > self.max_timestamp:
                self._rebuild_index()
                break
            after = position + OVERHEAD + header[BATCH_LENGTH]
            if after - begin >= max_bytes:
                self._unread = (after, end)
                break
        return after - begin

    def timestamp_at(self, offset: int) -> int:
        """Return the timestamp (Unix ms) of the first record in the batch that holds the offset.

        If no batch holds the offset, return the timestamp of the next batch, -1 if there is no next batch.
        Raises StorageFailed.
        """
        if offset > self.base_offset:
            return self._timestamp_from(self.find(offset, self.file.size()))
        if self._first_timestamp < 0:
            self._first_timestamp = self._timestamp_from(0)
        return self._first_timestamp

    def _timestamp_from(self, position: int) -> int:
        for _, header in self.headers(position, self.file.size(), HEADER_BYTES):
            is_appends = header[ATTRIBUTES] & LOG_APPEND_TIME
            return int(header[MAX_TIMESTAMP if is_appends else BASE_TIMESTAMP])
        return -1

    def modified_ms(self) -> int:
        """Return the time (Unix ms) of the last write to the log file. Raises StorageFailed."""
        return self.storage.modified_ms(self.file.path)

    # Reads.

    def headers(
        self, position: int, end: int, chunk_bytes: int = _WALK_BYTES
    ) -> Iterator[tuple[int, Header]]:
        """Yield (position, header) of each whole batch between `position`, a batch boundary, and `end`."""
        chunk = b""
        chunk_start = position
        while end - position >= HEADER_BYTES:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk = self.file.pread(min(chunk_bytes, end - position), position)
                chunk_start, at = position, 0
                if len(chunk) < HEADER_BYTES:
                    return
            header = _unpack_header(chunk, at)
            after = position + OVERHEAD + header[BATCH_LENGTH]
            if after > end or after - position < HEADER_BYTES or header[MAGIC] != 2:
                return
            yield position, header
            position = after

    def find(self, offset: int, end: int) -> int:
        """Return the position of the first batch below `end` whose last offset is `offset` or above.

        Return `end` if there is no such batch.
        """
        slot = self._sound_slot(lambda index: index.slot_before(offset - self.base_offset))
        nearby = self.index.positions[slot] if slot >= 0 else 0
        for position, header in self.headers(nearby, end, _FIND_BYTES):
            if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= offset:
                return position
        return end

    def read_up_to(self, position: int, end: int, max_bytes: int) -> tuple[bytes, int]:
        """Return (data, offset after the data): whole batches from the start of the byte range [position, end).

        The data has at most `max_bytes`, or is one larger batch. The range must be longer than `max_bytes`. If an index
        entry lies within `max_bytes`, the data ends at the last such entry.
        """
        cut, base_offset = self.entry_at_or_before(position + max_bytes)
        if cut > position:
            return self.file.pread(cut - position, position), base_offset
        data = self.file.pread(min(max(max_bytes, HEADER_BYTES), end - position), position)
        first_bytes = OVERHEAD + _unpack_header(data)[BATCH_LENGTH]
        if first_bytes > len(data):
            data = self.file.pread(first_bytes, position)
        stop, next_offset = whole_batches(data, max(max_bytes, first_bytes))
        return data[:stop], next_offset

    def extent(self, position: int, end: int, max_bytes: int) -> tuple[int, int]:
        """Choose whole batches to read from `position` on. Return (their size, the offset after their last record).

        The size is at most `max_bytes`, unless the first batch is larger. If an index entry lies above `position` and
        within `max_bytes`, the batches end at the last such entry. `end`: the position after the last batch that can
        be read. The caller ensures that `end` is more than `max_bytes` above `position`.
        """
        entry, base_offset = self.entry_at_or_before(position + max_bytes)
        if entry > position:
            return entry - position, base_offset
        size, next_offset = 0, -1
        for at, header in self.headers(position, end, _FIND_BYTES):
            after = at + OVERHEAD + header[BATCH_LENGTH] - position
            if size and after > max_bytes:
                break
            size, next_offset = after, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        return size, next_offset

    def offset_at(self, end: int) -> int:
        """Return the first offset after the batch that ends at this byte position."""
        position, next_offset = self.entry_at_or_before(end)
        for _, header in self.headers(position, end, _FIND_BYTES):
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        return next_offset

    def offset_after(self, data: bytes, position: int) -> int:
        """Return the offset after the whole batches in `data`, which was read at this byte position of the file."""
        known, base_offset = self.entry_at_or_before(position + len(data))
        walk_from = max(known - position, 0)
        if walk_from == len(data):
            return base_offset
        return whole_batches(memoryview(data)[walk_from:], len(data))[1]

    def record_since(
        self, timestamp: int, from_offset: int, end: int
    ) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record whose timestamp is at least `timestamp`.

        Records below `from_offset`, and records after the byte position `end`, are ignored. Return None if
        every remaining record is older. Raises CorruptBatch, StorageFailed.
        """
        self.load_index()
        if self.max_timestamp < timestamp:
            return None
        first = max(self._offset_before(timestamp, end), from_offset)
        for position, header in self.headers(self.find(first, end), end):
            if header[MAX_TIMESTAMP] < timestamp:
                continue
            for record in records(
                self.file.pread(OVERHEAD + header[BATCH_LENGTH], position), control=True
            ):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return record.timestamp, record.offset, header[LEADER_EPOCH]
        return None

    def _offset_before(self, timestamp: int, end: int) -> int:
        """Return an offset below which every record is earlier than the timestamp, according to the time index.

        If the index entry contradicts its batch, the index is rebuilt.
        """
        earlier, offset = self.times.entry_before(timestamp)
        if earlier >= 0:
            position = self.find(self.base_offset + offset, end)
            _, header = next(self.headers(position, end, HEADER_BYTES), (0, None))
            if header is None:
                return self.base_offset
            if header[MAX_TIMESTAMP] != earlier:
                self._rebuild_index()
                _, offset = self.times.entry_before(timestamp)
        return self.base_offset + offset

    def entry_at_or_before(self, position: int) -> tuple[int, int]:
        """Return (position, base offset) of the last indexed batch at or before the position.

        Return (0, the segment's base offset) if there is no such batch.
        """
        slot = self._sound_slot(lambda index: index.slot_at_or_before(position))
        if slot < 0:
            return 0, self.base_offset
        index = self.index
        return index.positions[slot], self.base_offset + index.bases[slot]

    def _sound_slot(self, choose: Callable[[OffsetIndex], int]) -> int:
        """Return the list index of the entry that `choose` selects from the offset index; -1 if it selects none.

        At its first use, an entry from an index file is compared with its batch in the log file. If both agree, the
        base offset of the batch is stored in `bases`, and the entry is not compared again. If they differ, the index
        is rebuilt and `choose` is called again.
        """
        index = self.index
        slot = choose(index)
        if slot < 0 or index.bases[slot] != UNKNOWN_BASE:
            return slot
        position = index.positions[slot]
        _, header = next(self.headers(position, self.file.size(), HEADER_BYTES), (0, None))
        if (
            header is not None
            and header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            == self.base_offset + index.lasts[slot]
        ):
            index.bases[slot] = header[BASE_OFFSET] - self.base_offset
            return slot
        self._rebuild_index()
        return choose(self.index)

    def end_offset(self) -> int:
        """Return the offset after the last whole batch. The indexes are not loaded."""
        size = self.file.size()
        entry = read_entries(self.storage, self.path(INDEX), OFFSET_ENTRY.size, 1)
        last, position = OFFSET_ENTRY.unpack(entry) if entry else _NO_ENTRIES
        ends = self._ends(position, size) if 0 < position < size else []
        if not ends or ends[0] != self.base_offset + last + 1:
            ends = self._ends(0, size)
        return ends[-1] if ends else self.base_offset

    def _ends(self, position: int, size: int) -> list[int]:
        """Return the offset after each batch from this position on."""
        return [
            header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            for _, header in self.headers(position, size)
        ]

    # Changes.

    def renamed(self, directory: str) -> None:
        """Use the new path of the log's directory."""
        self.directory = directory
        self.file.path = self.path(LOG)
        self.transactions.path = self.path(TXN_INDEX)

    def resume(self) -> tuple[int, int]:
        """Scan the file from the last index entry; return (end position, next offset) of the last whole batch."""
        size = self.file.size()
        slot = self._sound_slot(lambda index: len(index) - 1)
        end = self.index.positions[slot] if slot >= 0 else 0
        end_offset = self.base_offset
        for position, header in self.headers(end, size):
            end_offset = self._note_found(header, position) + 1
            end = position + OVERHEAD + header[BATCH_LENGTH]
        return end, end_offset

    def recover(self, on_batch: Callable[[Header], None], accept_gaps: bool) -> tuple[int, int]:
        """Check every batch and rebuild the indexes; return (size of the valid part, offset after it).

        The caller truncates the file to this size. `on_batch` is called with the header of every valid batch, in
        order. `accept_gaps`: offsets may be missing between batches, because the log is or was compacted.
        """
        self._use(OffsetIndex(), TimeIndex())
        size = self.file.size()
        position, offset = 0, self.base_offset
        count = _SCAN_BYTES
        while size - position >= HEADER_BYTES:
            chunk = self.file.pread(min(count, size - position), position)
            headers, _, _ = valid_run(chunk, memoryview(chunk), 0, len(chunk), offset, accept_gaps)
            if not headers:
                count = OVERHEAD + _unpack_header(chunk)[BATCH_LENGTH]
                if count <= len(chunk) or count > size - position:
                    break
                continue
            for header in headers:
                offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
                if offset - 1 - self.base_offset > RELATIVE_OFFSET_MAX:
                    return position, header[BASE_OFFSET]
                self._note_found(header, position)
                on_batch(header)
                position += OVERHEAD + header[BATCH_LENGTH]
            count = _SCAN_BYTES
        return position, offset

    def truncate(self, position: int) -> tuple[int, int]:
        """Truncate the file and the indexes at `position`; return (new size, offset after the last batch)."""
        index, times = self.index, self.times
        self.version += 1
        self._first_timestamp = -1
        size = self.file.size()
        cut_offset = next((header[BASE_OFFSET] for _, header in self.headers(position, size)), None)
        self.file.truncate(position)
        index.truncate(position)
        if cut_offset is not None:
            times.truncate(cut_offset - self.base_offset)
        self._use(index, times)
        self._unread = (0, position)
        end = self.resume()
        self._entries_on_disk = (-1, -1)
        self.transactions.truncate(end[1])
        self.write_index_files(sealed=False)
        return end

    def close(self) -> None:
        """Close the file."""
        self.version += 1
        self.file.close()

    def mark_deleted(self) -> None:
        """Rename the files to `….deleted`; the segment can be read until it is closed. Raises StorageFailed."""
        for path in self.paths():
            if self.storage.exists(path):
                self.storage.rename(path, path + DELETED, sync=False)

    def delete(self) -> None:
        """Close the segment and delete its files."""
        self.close()
        for path in self.paths():
            self.storage.remove(path)
