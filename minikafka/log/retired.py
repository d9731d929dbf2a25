"""The segments that were removed from their logs and whose files are deleted later, after `file.delete.delay.ms`.

Their files have the suffix `.deleted`, so that the next start deletes those that are left. Until the delay is
over the segments can be read: a response that names records of a removed segment is still sent.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from minikafka.log.segment import Segment


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
        """Keep a removed segment until its delay is over; its files are already renamed."""
        self._new.append((delay_ms, segment))

    def take_due(self, now: int, most: int) -> list[Segment]:
        """Return at most `most` segments whose delay is over at this time (monotonic ms), and forget them."""
        for delay_ms, segment in self._new:
            heappush(self._delayed, (now + delay_ms, next(self._order), segment))
        self._new.clear()
        due: list[Segment] = []
        while len(due) < most and self._delayed and self._delayed[0][0] <= now:
            due.append(heappop(self._delayed)[-1])
        return due

    def close(self, directory: str = "") -> None:
        """Close and forget the segments of this log directory, or all segments; their files stay."""
        every = [*(segment for *_, segment in self._delayed), *(item[-1] for item in self._new)]
        self._delayed = [row for row in self._delayed if directory not in ("", row[-1].directory)]
        self._new = [row for row in self._new if directory not in ("", row[-1].directory)]
        heapify(self._delayed)
        for segment in every:
            if directory in ("", segment.directory):
                segment.close()
