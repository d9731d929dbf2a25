"""Segments that were removed from their logs. Their files are deleted after `file.delete.delay.ms`.

The files have the suffix `.deleted`; the next start deletes all files with this suffix. Until the delay is over,
the segments can be read, so that responses with records of a removed segment can still be sent.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from minikafka.log.segments.segment import Segment


class RetiredSegments:
    """The removed segments of the logs of one directory."""

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
