"""Timers of members and groups, in one heap. Postponing a timer, as each heartbeat does, is cheap.

Postponing or cancelling a timer does not change the timer's heap entry. When the entry of a postponed timer is
due, the timer gets a new entry with the later time. Idle entries are the entries of cancelled timers, and of
timers that also have an earlier entry. Idle entries are removed when more than half of all entries are idle.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

_IDLE_MIN: Final = 64
"""Idle entries are removed only if the heap has more than this number of them."""


class HeapTimer:
    """A timer. `at`: the time at which the timer is due (monotonic ms), None if it is not running."""

    __slots__ = ("at", "queued_at")

    def __init__(self) -> None:
        self.at: int | None = None
        self.queued_at: int | None = None
        """Time of the timer's entry in the heap, None without an entry."""


class Timers:
    """All timers of a coordinator. Timers with equal times are returned in the order of queueing."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, HeapTimer]] = []
        self._order = count()
        self._idle = 0
        """Number of idle entries: their timer was cancelled, or has an earlier entry."""

    def __len__(self) -> int:
        return len(self._heap)

    def start(self, timer: HeapTimer, at: int) -> None:
        """Start the timer, or change the time of a running timer. `at`: when the timer is due (monotonic ms)."""
        queued_at = timer.queued_at
        if queued_at is not None and timer.at is None:
            self._idle -= 1
        timer.at = at
        if queued_at is None or at < queued_at:
            self._idle += queued_at is not None
            self._push(timer, at)
            self._remove_idle()

    def cancel(self, timer: HeapTimer) -> None:
        """Stop the timer. No effect if the timer is not running."""
        if timer.at is not None:
            timer.at = None
            self._idle += 1
            self._remove_idle()

    def next_time(self) -> int | None:
        """Return a time before which no timer is due; None if no timer is running."""
        heap = self._heap
        while heap and (heap[0][2].at is None or heap[0][2].queued_at != heap[0][0]):
            self._drop_first()
        return heap[0][0] if heap else None

    def pop_due(self, now: int) -> HeapTimer | None:
        """Stop and return the first timer that is due; None if no timer is due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            time, _, timer = heap[0]
            if timer.queued_at != time or timer.at is None:
                self._drop_first()
                continue
            heappop(heap)
            timer.queued_at = None
            if timer.at <= now:
                timer.at = None
                return timer
            self._push(timer, timer.at)
        return None

    def _push(self, timer: HeapTimer, at: int) -> None:
        timer.queued_at = at
        heappush(self._heap, (at, next(self._order), timer))

    def _drop_first(self) -> None:
        """Remove the first entry of the heap. The caller has checked that no timer needs this entry."""
        time, _, timer = heappop(self._heap)
        self._idle -= 1
        if timer.queued_at == time:
            timer.queued_at = None

    def _remove_idle(self) -> None:
        assert 0 <= self._idle <= len(self._heap), (self._idle, len(self._heap))
        if self._idle <= _IDLE_MIN or self._idle * 2 <= len(self._heap):
            return
        running = []
        for entry in sorted(self._heap):
            time, _, timer = entry
            if timer.queued_at == time and timer.at is not None:
                running.append(entry)
            elif timer.queued_at == time:
                timer.queued_at = None
        self._heap = running
        heapify(self._heap)
        self._idle = 0
