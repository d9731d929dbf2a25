"""The clocks of simulated brokers, and of tests of single parts. None of them depends on real time by itself.

A `LoopClock` shows the time of the running event loop, which is virtual in a `SeededLoop`. The time of a `ManualClock`
changes only when `advance` is called. All times are milliseconds.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

WALL_MS = 1_700_000_000_000


class LoopClock:
    """The Clock port over the running event loop, whose time is virtual in a `SeededLoop`.

    `skipped_ms` is added to the wall-clock time. Raising it sets the wall clocks of all brokers forward.
    """

    def __init__(self) -> None:
        self.skipped_ms = self.advanced_ms = 0

    def now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        """Return the wall-clock time, which advances with the loop's time."""
        return WALL_MS + self.skipped_ms + self.advanced_ms + self.now()

    async def sleep(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)

    def call_later(self, ms: float, callback: Callable[[], None]) -> Any:
        return asyncio.get_running_loop().call_later(ms / 1000, callback)


class SkewedClock(LoopClock):
    """The clock of one broker: its wall-clock time is that of `base` plus `offset_ms`, which a test can change."""

    def __init__(self, base: LoopClock, offset_ms: int) -> None:
        super().__init__()
        self._base = base
        self.offset_ms = offset_ms

    def wall_ms(self) -> int:
        return self._base.wall_ms() + self.offset_ms + self.advanced_ms


class ManualTimer:
    """A callback that a `ManualClock` calls when it is due, unless it was cancelled."""

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
        self.advanced_ms = 0
        self._due: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    def wall_ms(self) -> int:
        return self._wall_offset + self.advanced_ms + self._now

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
        """Move the time forward, and call the timers that become due on the way."""
        end = self._now + ms
        while self._due and self._due[0][0] <= end:
            at, _, timer = heapq.heappop(self._due)
            self._now = max(self._now, int(at))
            if not timer.cancelled:
                timer.callback()
        self._now = end
