"""Time and chance for brokers in memory: the clock of the running loop, and numbers from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

WALL_MS = 1_700_000_000_000


class LoopClock:
    """The Clock port over the running event loop; in a `SeededLoop` its time is virtual.

    `skipped_ms` is added to the wall-clock time: raising it sets the clocks of all machines forward.
    """

    def __init__(self) -> None:
        self.skipped_ms = 0

    def now(self) -> int:
        """See Clock."""
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        """See Clock. It goes with the loop's time."""
        return WALL_MS + self.skipped_ms + self.now()

    async def sleep(self, ms: float) -> None:
        """See Clock."""
        await asyncio.sleep(ms / 1000)

    def call_later(self, ms: float, callback: Callable[[], None]) -> Any:
        """See Clock."""
        return asyncio.get_running_loop().call_later(ms / 1000, callback)


class SeededRng:
    """The Rng port with the same numbers in every run."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        """See Rng."""
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        """See Rng."""
        return self._random.uniform(low, high)

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """See Rng."""
        return self._random.sample(items, len(items))
