"""A Clock whose time changes only when a test calls `advance`."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """A clock whose `advance` runs the timers that become due, in order of their times."""

    def __init__(self, wall_ms: int = 1_800_000_000_000) -> None:
        self._now = 0
        self._wall_offset = wall_ms
        self._due: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    def wall_ms(self) -> int:
        return self._wall_offset + self._now

    async def sleep(self, ms: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_later(ms, lambda: None if woken.done() else woken.set_result(None))
        await woken

    def call_later(self, ms: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._due, (self._now + ms, next(self._order), timer))
        return timer

    def waiting(self) -> int:
        """Return the number of timers that have neither run nor been cancelled."""
        return sum(not timer.cancelled for _, _, timer in self._due)

    def advance(self, ms: int) -> None:
        end = self._now + ms
        while self._due and self._due[0][0] <= end:
            at, _, timer = heapq.heappop(self._due)
            self._now = max(self._now, int(at))
            if not timer.cancelled:
                timer.callback()
        self._now = end
