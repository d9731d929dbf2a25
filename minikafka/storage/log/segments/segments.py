"""The segments of one log as a list, and the sealed segments that may not be durable yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from operator import attrgetter
from typing import Final

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Storage
from minikafka.kafka.records.batch import records
from minikafka.kafka.records.header import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER,
    HEADER_BYTES,
    MAX_TIMESTAMP,
    OVERHEAD,
)
from minikafka.storage.log.segments.segment import Segment

_base_offset: Final = attrgetter("base_offset")
_start: Final = attrgetter("start")


class Segments(list[Segment]):
    """The segments of a log in order of base offset, the active segment last, with contiguous byte positions.

    `unsynced` holds the sealed segments that are not known to be durable. `removals` counts the removals from
    `unsynced`. If `removals` changes while an fsync runs, the result of the fsync is out of date.
    """

    __slots__ = ("removals", "unsynced")

    def __init__(self, segments: Iterable[Segment], recovery_point: int) -> None:
        super().__init__(segments)
        self.removals = 0
        self.unsynced = [
            sealed
            for sealed, following in pairwise(self)
            if following.base_offset >= recovery_point
        ]

    def slot_of(self, offset: int) -> int:
        """Return the list index of the segment that holds the offset, 0 for an offset below all segments."""
        return max(bisect_right(self, offset, key=_base_offset) - 1, 0)

    def at(self, position: int, end: int) -> tuple[Segment, int] | None:
        """Return (segment at this byte position, position where the segment ends); None if the segment was deleted.

        `end`: the byte position where the whole log ends.
        """
        slot = bisect_right(self, position, key=_start) - 1
        return (self[slot], self.end_of(slot, end)) if slot >= 0 else None

    def end_of(self, slot: int, end: int) -> int:
        """Return the byte position where a segment ends. The last segment ends at `end`, the end of the log."""
        return self[slot + 1].start if slot + 1 < len(self) else end

    def locate(self, offset: int, end: int) -> int:
        """Return the byte position of the batch that holds the offset, or of the first batch above it."""
        slot = self.slot_of(offset)
        segment = self[slot]
        return segment.start + segment.find(offset, self.end_of(slot, end) - segment.start)

    def record_since(
        self, timestamp: int, from_offset: int, end: int
    ) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record whose timestamp is at least `timestamp`.

        Records below `from_offset` are skipped. The log ends at byte position `end`. Return None if there is
        no such record.
        """
        for slot, segment in enumerate(self):
            found = segment.record_since(
                timestamp, from_offset, self.end_of(slot, end) - segment.start
            )
            if found is not None:
                return found
        return None

    def latest_record(self, from_offset: int, end: int) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record with the largest timestamp.

        Records below `from_offset` are skipped. The log ends at byte position `end`. Return None if there is
        no record.
        """
        slot = self.slot_of(from_offset)
        largest = [segment.largest_timestamp() for segment in self[slot:]]
        found = self.record_since(max(largest), from_offset, end)
        if found is None and from_offset > self[slot].base_offset:
            # The record with the largest timestamp lies below `from_offset`, in the same segment.
            end_of_segment = self.end_of(slot, end) - self[slot].start
            largest[0] = _largest_timestamp(self[slot], from_offset, end_of_segment)
            found = self.record_since(max(largest), from_offset, end)
        return found

    def aborted_transactions(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with batches from `offset` to below `end`.

        Every transaction with such batches must have ended.
        """
        found: list[tuple[int, int]] = []
        for slot in range(self.slot_of(offset), len(self)):
            if self[slot].transactions.collect(offset, end, found):
                break
        return found

    def batch_begin(self, offset: int) -> int:
        """Return the base offset of the batch that holds `offset`; `offset` if no batch holds it."""
        segment = self[self.slot_of(offset)]
        size = segment.file.size()
        position = segment.find(offset, size)
        if position >= size:
            return offset
        header = HEADER.unpack_from(segment.file.pread(HEADER_BYTES, position))
        return min(offset, int(header[BASE_OFFSET]))

    def count_below(self, offset: int) -> int:
        """Return the number of segments that lie wholly below the offset. The last segment is never counted."""
        return bisect_right(self, offset, 1, key=_base_offset) - 1

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the first `count` segments from the list and return them; their files stay."""
        removed = self[:count]
        del self[:count]
        for segment in removed:
            self.forget_unsynced(segment)
        return removed

    def delete(self, slot: int) -> None:
        """Remove a segment from the list and delete its files. Raises StorageFailed."""
        segment = self.pop(slot)
        self.forget_unsynced(segment)
        segment.delete()

    def replace(self, slot: int, count: int, cleaned: Segment) -> None:
        """Replace `count` sealed segments, from list index `slot` on, by their compacted copy. Raises StorageFailed.

        Byte positions after the copy do not change. Because the copy is smaller than the segments that it replaces,
        the copy and all segments before it move to higher byte positions.
        """
        saved = self[slot + count].start - cleaned.start - cleaned.file.size()
        for segment in self[slot : slot + count]:
            self.forget_unsynced(segment)
        self[slot : slot + count] = [cleaned]
        for segment in self[: slot + 1]:
            segment.start += saved

    # ---- durability

    def forget_unsynced(self, segment: Segment) -> None:
        """Remove a segment from `unsynced`, because it changes or is deleted."""
        if segment in self.unsynced:
            self.unsynced.remove(segment)
            self.removals += 1

    def unsynced_derived(self) -> list[str]:
        """Return the paths of the index files of the segments in `unsynced`, and of the snapshots at their ends."""
        return [
            path
            for segment in self.unsynced
            for path in segment.derived_paths(self[self.index(segment) + 1].base_offset)
        ]

    def all_synced(self) -> None:
        """Record that every sealed segment is durable."""
        self.unsynced = []
        self.removals += 1

    def synced(self, count: int, removals: int) -> int:
        """Record that the first `count` segments of `unsynced` are durable.

        Return the offset below which the log is durable. `removals`: the value of `self.removals` when the fsync
        began. If the value has changed since, do nothing and return 0.
        """
        if self.removals != removals:
            return 0
        last = self.unsynced[count - 1]
        del self.unsynced[:count]
        return self[self.index(last) + 1].base_offset


def _largest_timestamp(segment: Segment, from_offset: int, end: int) -> int:
    """Return the largest timestamp of the records from `from_offset` on and before byte position `end`.

    Return -1 if there is no such record. Raises CorruptBatch, StorageFailed.
    """
    largest = -1
    for position, header in segment.headers(segment.find(from_offset, end), end):
        latest = header[MAX_TIMESTAMP]
        if header[BASE_OFFSET] < from_offset:
            batch = segment.file.pread(OVERHEAD + header[BATCH_LENGTH], position)
            kept = (row for row in records(batch, control=True) if row.offset >= from_offset)
            latest = max((row.timestamp for row in kept), default=-1)
        largest = max(largest, latest)
    return largest


def create_or_plan(
    storage: Storage,
    directory: str,
    base_offset: int,
    start: int,
    interval: int,
    made: Callable[[], None],
) -> Segment:
    """Create the only segment of an empty log. If no descriptor is free, the first batch creates its files.

    `made` is called after the first batch has created them. Raises StorageFailed.
    """
    try:
        return Segment.create(storage, directory, base_offset, start, interval)
    except StorageFailed as failure:
        if not failure.lacks_descriptors:
            raise
    return Segment.first(storage, directory, base_offset, interval, made, start)


class RetiredSegments:
    """The segments that were removed from the logs of one directory, until `file.delete.delay.ms` is over.

    Their files have the suffix `.deleted`; the next start deletes all files with this suffix. Until the delay is over,
    the segments can be read, so that responses with records of a removed segment can still be sent.
    """

    __slots__ = ("_delayed", "_new", "_order")

    def __init__(self) -> None:
        self._new: list[tuple[int, Segment]] = []
        """(delay in ms, segment): the delay begins with the next call of `take_due`."""
        self._delayed: list[tuple[int, int, Segment]] = []
        """A heap of (monotonic time in ms from which the files may be deleted, sequence number, segment)."""
        self._order = count()

    def add(self, segment: Segment, delay_ms: int) -> None:
        """Keep a removed segment, whose files are already renamed, until its delay is over."""
        self._new.append((delay_ms, segment))

    def take_due(self, now: int, most: int) -> list[Segment]:
        """Remove and return at most `most` segments whose delay is over at this time (monotonic ms)."""
        for delay_ms, segment in self._new:
            heappush(self._delayed, (now + delay_ms, next(self._order), segment))
        self._new.clear()
        due: list[Segment] = []
        while len(due) < most and self._delayed and self._delayed[0][0] <= now:
            due.append(heappop(self._delayed)[-1])
        return due

    def close(self, directory: str = "") -> None:
        """Close and forget the segments of the log in `directory`, or all segments if `directory` is "".

        The files of the segments stay.
        """
        every = [*(segment for *_, segment in self._delayed), *(item[-1] for item in self._new)]
        self._delayed = [row for row in self._delayed if directory not in ("", row[-1].directory)]
        self._new = [row for row in self._new if directory not in ("", row[-1].directory)]
        heapify(self._delayed)
        for segment in every:
            if directory in ("", segment.directory):
                segment.close()
