"""Clock, processor and random numbers of in-memory brokers: the running loop's time, and a seeded generator."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

WALL_MS = 1_700_000_000_000


class LoopClock:
    """The Clock port over the running event loop, whose time is virtual in a `SeededLoop`.

    `skipped_ms` is added to the wall-clock time. Raising it sets the wall clocks of all brokers forward.
    """

    def __init__(self) -> None:
        self.skipped_ms = 0

    def now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        """Return the wall-clock time, which advances with the loop's time."""
        return WALL_MS + self.skipped_ms + self.now()

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
        return self._base.wall_ms() + self.offset_ms


class IdleProcessor:
    """The Processor port when no other process waits for the processor."""

    def yield_ns(self) -> int:
        return 0


class SeededRng:
    """The Rng port with a seed: every run gets the same numbers."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        return self._random.sample(items, len(items))
