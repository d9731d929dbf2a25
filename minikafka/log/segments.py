"""The segments of one log as a list, and which of them may not be durable yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter
from typing import Final

from minikafka.log.segment import Segment
from minikafka.record.batch import BASE_OFFSET, HEADER, HEADER_BYTES

_base_offset: Final = attrgetter("base_offset")
_start: Final = attrgetter("start")


class Segments(list[Segment]):
    """The segments by rising base offset, the active one last; each begins at the byte position where the one before
    it ends.

    `unsynced`: sealed segments that are not known to be durable. `removals` counts changes to `unsynced` other than
    at its end, so that the result of an fsync that ran meanwhile can be told from a stale one.
    """

    __slots__ = ("removals", "unsynced")

    def __init__(self, segments: Iterable[Segment], recovery_point: int) -> None:
        super().__init__(segments)
        self.removals = 0
        self.unsynced = [
            sealed for sealed, following in pairwise(self) if following.base_offset > recovery_point
        ]

    def slot_of(self, offset: int) -> int:
        """Return the index of the segment that holds the offset, 0 for an offset below all of them."""
        return max(bisect_right(self, offset, key=_base_offset) - 1, 0)

    def at(self, position: int, end: int) -> tuple[Segment, int] | None:
        """Return the sealed segment at this byte position and where it ends; None if it was deleted.

        A position inside the active segment is the caller's case.
        """
        slot = bisect_right(self, position, key=_start) - 1
        return (self[slot], self.end_of(slot, end)) if slot >= 0 else None

    def end_of(self, slot: int, end: int) -> int:
        """Return the byte position where a segment ends: for the last one `end`, the end of the log."""
        return self[slot + 1].start if slot + 1 < len(self) else end

    def locate(self, offset: int, end: int) -> int:
        """Return the byte position of the batch that holds the offset, or of the first one above it."""
        slot = self.slot_of(offset)
        segment = self[slot]
        return segment.start + segment.find(offset, self.end_of(slot, end) - segment.start)

    def batch_begin(self, offset: int) -> int:
        """Return the base offset of the batch that holds the offset; the offset if none does."""
        segment = self[self.slot_of(offset)]
        size = segment.file.size()
        position = segment.find(offset, size)
        if position >= size:
            return offset
        header = HEADER.unpack_from(segment.file.pread(HEADER_BYTES, position))
        return min(offset, int(header[BASE_OFFSET]))

    def delete(self, slot: int) -> None:
        """Take a segment out of the list and delete its files. Raises StorageFailed."""
        segment = self.pop(slot)
        self.forget_unsynced(segment)
        segment.delete()

    def replace(self, slot: int, cleaned: Segment, size: int) -> None:
        """Put the compacted copy, of `size` bytes, in the place of a sealed segment.

        The starts of this segment and of those before it move up, so that every position behind it stays valid.
        """
        self.forget_unsynced(self[slot])
        self[slot] = cleaned
        saved = self[slot + 1].start - cleaned.start - size
        for segment in self[: slot + 1]:
            segment.start += saved

    # ---- durability

    def forget_unsynced(self, segment: Segment) -> None:
        """Strike a segment off `unsynced`: it changes, or is gone."""
        if segment in self.unsynced:
            self.unsynced.remove(segment)
            self.removals += 1

    def all_synced(self) -> None:
        """Note that every sealed segment is durable."""
        self.unsynced = []
        self.removals += 1

    def synced(self, count: int, removals: int) -> int:
        """Note that the first `count` of `unsynced` are durable; return the offset up to which the log is.

        Return 0 if a segment was struck off since the fsync began, when `removals` had this value.
        """
        if self.removals != removals:
            return 0
        last = self.unsynced[count - 1]
        del self.unsynced[:count]
        return self[self.index(last) + 1].base_offset
