"""The cleaning of one log, as steps that a separate process carries out (`CleaningTask`).

The first pass maps the keys of the dirty (not yet cleaned) records. The second pass copies every group of segments,
without the records that are obsolete according to the map. After copying a group, the process reports the group, and
the broker replaces the segments of the group by their copy (`storage/log/segments/swap.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch
from minikafka.base.ports import Buffer, File, Storage
from minikafka.kafka.records.entries import PADDING, entries_of
from minikafka.kafka.records.header import (
    BASE_OFFSET,
    BATCH_LENGTH,
    COUNT,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    MAGIC,
    OVERHEAD,
    Header,
)
from minikafka.kafka.records.transactions import Aborted, is_control, marker_type
from minikafka.storage.log.cleaner.batches import (
    BatchFilter,
    KeepRules,
    LastBatch,
    Transactions,
    check_crc,
)
from minikafka.storage.log.cleaner.offset_map import OffsetMap
from minikafka.storage.log.cleaner.task import CleanedGroup, CleaningOutcome, CleaningTask
from minikafka.storage.log.segments.segment import (
    INDEX,
    LOG,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX,
    Segment,
)
from minikafka.storage.log.segments.swap import CLEANED
from minikafka.storage.log.segments.transaction_index import ENTRY, TXN_INDEX, decode

Steps = Generator[int | CleanedGroup, None, CleaningOutcome]
"""A step is the number of bytes read and written since the last step, or a finished group."""

_IO_BYTES_MIN: Final = 16 << 10
_unpack_header: Final = HEADER.unpack_from

Batches = Iterator[list[tuple[memoryview, Header]]]


def clean(storage: Storage, task: CleaningTask) -> Steps:
    """Clean the log in steps. Yield after each step, and return the outcome at the end.

    Raises CorruptBatch for a damaged log, and StorageFailed.
    """
    return _Cleaning(storage, task).steps()


class _Cleaning:
    def __init__(self, storage: Storage, task: CleaningTask) -> None:
        self._storage = storage
        self._task = task
        self._bases = task.segments
        self._offsets = OffsetMap(task.dedupe_bytes, task.load_factor)
        self._bytes_read = self._bytes_written = 0

    def steps(self) -> Steps:
        task = self._task
        is_full = yield from self._map_keys()
        end_offset = self._offsets.latest_offset + 1
        producers = {
            producer: LastBatch(last_offset, epoch)
            for producer, last_offset, epoch in task.producers
        }
        rules = KeepRules(task.now_ms, task.delete_retention_ms, producers, task.kept_end)
        transactions = Transactions(self._find_aborted)
        kept = BatchFilter(self._offsets, transactions, rules)
        for group in self._groups(end_offset):
            yield from self._copy(group, kept, transactions.needed_markers)
        return CleaningOutcome(
            end_offset,
            is_full,
            self._bytes_read,
            self._bytes_written,
            kept.records_read,
            kept.records_kept,
            len(self._offsets),
        )

    # ---- the first pass

    def _map_keys(self) -> Generator[int, None, bool]:
        """Map the keys of the dirty records; return True if the map was full before the last record."""
        task, offsets = self._task, self._offsets
        offsets.latest_offset = task.first_dirty_offset - 1
        transactions = Transactions(self._find_aborted)
        dirty = [base for base in self._bases if base >= task.first_dirty_offset]
        before = [base for base in self._bases if base < task.first_dirty_offset]
        dirty = before[-1:] + dirty
        for base, end in zip(dirty, [*dirty[1:], task.uncleanable_offset], strict=True):
            for batches in self._read(base):
                size = 0
                for batch, header in batches:
                    size += len(batch)
                    if self._map_batch(batch, header, transactions):
                        return True
                yield size
            offsets.latest_offset = end - 1
        return False

    def _map_batch(self, batch: memoryview, header: Header, transactions: Transactions) -> bool:
        offsets, start = self._offsets, self._task.first_dirty_offset
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        if is_control(header):
            check_crc(batch, header)
            transactions.is_marker_needless(header, _kind_of(batch, header))
        elif not transactions.is_aborted(header) and last_offset >= start and header[COUNT]:
            check_crc(batch, header)
            if offsets.put_all(entries_of(batch, header).decoded, header[COUNT], start):
                return True
        offsets.latest_offset = max(offsets.latest_offset, last_offset)
        return False

    def _find_aborted(self) -> Iterable[Aborted]:
        """Yield the aborted transactions of the log, from the transaction indexes of its segments.

        Every transaction with batches in the segments that are cleaned has ended: these segments lie below the last
        stable offset, where the first open transaction begins. Its marker may be in a later segment.
        """
        for base in self._bases:
            yield from self._aborted_in(base)
        for base in self._task.later_segments:
            yield from self._aborted_in(base, is_growing=True)

    def _aborted_in(self, base: int, *, is_growing: bool = False) -> list[Aborted]:
        """Return the aborted transactions whose markers are in a segment. Raises CorruptBatch for an invalid index.

        `is_growing`: entries are still being written, so a partial entry at the end is ignored.
        """
        path = self._path(base, TXN_INDEX)
        if not self._storage.exists(path):
            return []
        data = self._storage.read(path)
        if is_growing:
            data = data[: len(data) - len(data) % ENTRY.size]
        entries = decode(data)
        if entries is None:
            raise CorruptBatch(f"{path} has an invalid entry")
        return entries

    # ---- the second pass

    def _groups(self, end_offset: int) -> list[list[int]]:
        """Return the segments below `end_offset` as groups of base offsets. Each group is copied to one segment."""
        task = self._task
        sizes = [
            Size(
                base, *(self._size(self._path(base, suffix)) for suffix in (LOG, INDEX, TIME_INDEX))
            )
            for base in self._bases
            if base < end_offset
        ]
        return grouped(sizes, task.segment_bytes, task.index_bytes, task.uncleanable_offset)

    def _size(self, path: str) -> int:
        if not self._storage.exists(path):
            return 0
        file = self._storage.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _copy(
        self, bases: list[int], kept: BatchFilter, needed_markers: Set[int]
    ) -> Generator[int | CleanedGroup]:
        """Write the kept batches of these segments to one new segment with indexes, and fsync the files.

        The copy gets the modification time of the last segment. Retention uses this time if no record is left.
        """
        path = self._path(bases[0], LOG + CLEANED)
        self._storage.remove(path)
        target = self._storage.open(path, create=True)
        try:
            size = 0
            for base in bases:
                for batches in self._read(base):
                    read = sum(len(batch) for batch, _ in batches)
                    out: list[Buffer] = [kept.kept(batch, header) for batch, header in batches]
                    data = b"".join(out)
                    if data:
                        target.pwritev((data,), size)
                    size += len(data)
                    self._bytes_read += read
                    self._bytes_written += len(data)
                    yield read + len(data)
            target.sync()
            self._write_indexes(bases, target, needed_markers)
        finally:
            target.close()
        modified_ms = self._storage.modified_ms(self._path(bases[-1], LOG))
        self._storage.set_modified_ms(path, modified_ms)
        yield CleanedGroup(bases, size)

    def _write_indexes(self, bases: list[int], file: File, needed_markers: Set[int]) -> None:
        """Read and check the written copy of these segments, and write its index files. Raises CorruptBatch.

        The transaction index of the copy has the entries of the needed markers.
        """
        task = self._task
        segment = Segment(
            self._storage, task.directory, bases[0], 0, task.index_interval_bytes, file=file
        )
        size, _ = segment.recover(_no_action, accept_gaps=True)
        if size != file.size():
            raise CorruptBatch(f"the copy of {segment.path(LOG)} has an invalid batch")
        aborted = [one for base in bases for one in self._aborted_in(base)]
        segment.transactions.replace(one for one in aborted if one.last_offset in needed_markers)
        segment.write_index_files(sealed=True, suffix=CLEANED, sync=True)
        if not len(segment.transactions) and self._storage.exists(segment.path(TXN_INDEX)):
            # The swap must replace the index of the first segment, although the copy needs none.
            self._storage.write_atomically(segment.path(TXN_INDEX + CLEANED), b"")

    # ---- reading

    def _path(self, base: int, suffix: str) -> str:
        return f"{self._task.directory}/{base:020d}{suffix}"

    def _read(self, base: int) -> Batches:
        """Yield the batches of a segment, about `io_bytes` at a time. Raises CorruptBatch, StorageFailed."""
        path = self._path(base, LOG)
        file = self._storage.open(path)
        try:
            position, end = 0, file.size()
            count = wanted = max(self._task.io_bytes, _IO_BYTES_MIN)
            while position < end:
                data = file.pread(min(count, end - position), position)
                batches, size = _batches_of(data)
                if batches:
                    yield batches
                    position += size
                    count = wanted
                else:
                    count = _size_of_first(data)
                    if count <= len(data) or position + count > end:
                        raise CorruptBatch(f"{path} has no whole batch at byte {position}")
        finally:
            file.close()


def _batches_of(data: bytes) -> tuple[list[tuple[memoryview, Header]], int]:
    """Return the whole batches at the beginning of the data, each with its header, and their total size."""
    view = memoryview(data + PADDING)
    found = []
    at, end = 0, len(data)
    while end - at >= HEADER_BYTES:
        header = _unpack_header(view, at)
        stop = at + OVERHEAD + header[BATCH_LENGTH]
        if stop > end or stop - at < HEADER_BYTES or header[MAGIC] != 2:
            break
        found.append((view[at:stop], header))
        at = stop
    return found, at


def _size_of_first(data: bytes) -> int:
    """Return the size of the first batch according to its header, 0 if the data is shorter than a header."""
    if len(data) < HEADER_BYTES:
        return 0
    return int(OVERHEAD + _unpack_header(data)[BATCH_LENGTH])


def _kind_of(batch: memoryview, header: Header) -> int | None:
    """Return the type of a control batch, such as `ABORT`, or None if the batch has no record."""
    decoded = entries_of(batch, header).decoded if header[COUNT] else ()
    return marker_type(decoded[0].key) if decoded else None


def _no_action(header: Header) -> None:
    """Do nothing with a batch of the copy: `Segment.recover` has already added the batch to the indexes."""


class Size(NamedTuple):
    """One segment: its base offset, and the sizes (in bytes) of its records and of its two indexes."""

    base_offset: int
    records: int
    offset_index: int
    time_index: int


def grouped(
    sizes: Sequence[Size], segment_bytes: int, index_bytes: int, end_offset: int
) -> list[list[int]]:
    """Return the base offsets in groups, each of which a cleaning joins to one segment, as in Kafka.

    The segments of a group fit into one segment even before cleaning. Without joining, the segments would become
    smaller with every cleaning.

    `end_offset` is the offset after the last segment.
    """
    groups: list[list[int]] = []
    records = index = times = 0
    for slot, size in enumerate(sizes):
        records, index, times = (
            records + size.records,
            index + size.offset_index,
            times + size.time_index,
        )
        last_offset = (sizes[slot + 1].base_offset if slot + 1 < len(sizes) else end_offset) - 1
        if (
            groups
            and records <= segment_bytes
            and index <= index_bytes
            and times <= index_bytes
            and (not size.records or last_offset - groups[-1][0] <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(size.base_offset)
        else:
            groups.append([size.base_offset])
            _, records, index, times = size
    return groups
