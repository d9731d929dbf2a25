"""The sparse indexes of one segment, in memory: offset -> position and timestamp -> offset.

Invariant: entries increase strictly in both columns. An entry of the offset index holds the position
of a batch and the last offset of that batch. Kafka writes the same entry for a single batch, so
Kafka's dump tool accepts the file. Offsets are relative to the segment's base offset, positions to
the start of the segment file.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import islice
from operator import ge
from struct import Struct
from typing import Final

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
UNKNOWN_BASE: Final = -1
"""Base offset of an entry that was read from an index file, which holds only last offsets and positions."""


class OffsetIndex:
    """Entries (last offset, position, base offset) in three columns. The file holds only the first two columns."""

    __slots__ = ("bases", "lasts", "positions")

    def __init__(self) -> None:
        self.lasts = array("i")
        self.positions = array("i")
        self.bases = array("i")

    def __len__(self) -> int:
        return len(self.lasts)

    def slot_before(self, offset: int) -> int:
        """Return the list index of the last entry whose last offset is at most `offset`, -1 if there is none."""
        return bisect_right(self.lasts, offset) - 1

    def slot_at_or_before(self, position: int) -> int:
        """Return the list index of the last entry at or before this position, -1 if there is none."""
        return bisect_right(self.positions, position) - 1

    def truncate(self, position: int) -> None:
        """Remove the entries at or above this byte position."""
        slot = bisect_left(self.positions, position)
        del self.lasts[slot:], self.positions[slot:], self.bases[slot:]

    def encode(self) -> bytes:
        """Return the bytes of Kafka's `.index` file, without the zeros that Kafka preallocates."""
        columns = array("i", bytes(8 * len(self.lasts)))
        columns[0::2] = self.lasts
        columns[1::2] = self.positions
        if sys.byteorder == "little":
            columns.byteswap()
        return columns.tobytes()

    @classmethod
    def decode(cls, data: bytes, segment_size: int) -> OffsetIndex | None:
        """Return the index in a file's content; None if the content does not fit a segment of this size.

        If the result is None, the caller must rebuild the index.
        """
        if len(data) % OFFSET_ENTRY.size:
            return None
        columns = array("i", data)
        if sys.byteorder == "little":
            columns.byteswap()
        index = cls()
        index.lasts = columns[0::2]
        index.positions = columns[1::2]
        index.bases = array("i", [UNKNOWN_BASE]) * len(index.lasts)
        if not len(index):
            return index
        if index.positions[0] < 0 or index.lasts[0] < 0 or index.positions[-1] >= segment_size:
            return None
        return index if _rises(index.lasts) and _rises(index.positions) else None


class TimeIndex:
    """Entries (timestamp ms, offset). No record up to an entry's offset has a later timestamp than the entry."""

    __slots__ = ("last_timestamp", "offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")
        self.last_timestamp = -1

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """Return the last entry, which has the largest timestamp and offset; (-1, -1) if there is none."""
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else (-1, -1)

    def maybe_add(self, timestamp: int, offset: int) -> None:
        """Add an entry if both timestamp and offset are larger than in every existing entry."""
        if timestamp > self.last_timestamp and (not self.offsets or offset > self.offsets[-1]):
            self.timestamps.append(timestamp)
            self.offsets.append(offset)
            self.last_timestamp = timestamp

    def entry_before(self, timestamp: int) -> tuple[int, int]:
        """Return the last entry that is earlier than the timestamp, (-1, 0) if there is none."""
        slot = bisect_left(self.timestamps, timestamp) - 1
        return (self.timestamps[slot], self.offsets[slot]) if slot >= 0 else (-1, 0)

    def truncate(self, offset: int) -> None:
        """Remove the entries at or above the relative offset."""
        slot = bisect_left(self.offsets, offset)
        del self.timestamps[slot:], self.offsets[slot:]
        self.last_timestamp = self.timestamps[-1] if slot else -1

    def encode(self) -> bytes:
        """Return the bytes of Kafka's `.timeindex` file, without preallocated zeros."""
        timestamps, offsets = array("q", self.timestamps), array("i", self.offsets)
        if sys.byteorder == "little":
            timestamps.byteswap()
            offsets.byteswap()
        halves = array("i", timestamps.tobytes())
        columns = array("i", bytes(TIME_ENTRY.size * len(offsets)))
        columns[0::3], columns[1::3], columns[2::3] = halves[0::2], halves[1::2], offsets
        return columns.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex | None:
        """Return the index in a file's content, None if the content is invalid and the index must be rebuilt."""
        if len(data) % TIME_ENTRY.size:
            return None
        index = cls()
        columns = array("i", data)
        halves = array("i", bytes(8 * (len(columns) // 3)))
        halves[0::2], halves[1::2] = columns[0::3], columns[1::3]
        index.timestamps, index.offsets = array("q", halves.tobytes()), columns[2::3]
        if sys.byteorder == "little":
            index.timestamps.byteswap()
            index.offsets.byteswap()
        if not len(index):
            return index
        index.last_timestamp = index.timestamps[-1]
        if index.timestamps[0] < 0 or index.offsets[0] < 0:
            return None
        return index if _rises(index.timestamps) and _rises(index.offsets) else None


def _rises(column: array[int]) -> bool:
    following: Iterable[int] = islice(column, 1, None)
    return not any(map(ge, column, following))
