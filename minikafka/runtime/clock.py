"""Time and chance of this machine: the production side of the Clock and Rng ports.

Invariant: `now` never goes back and counts on while the machine's wall clock is set; nothing drawn
here can be predicted (ids and secrets are drawn from it).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from minikafka.base.ports import Timer

_NS_PER_MS: Final = 1_000_000
_MS_PER_S: Final = 1_000


class SystemClock:
    """The Clock port over the running event loop."""

    def now(self) -> int:
        """See Clock."""
        return time.monotonic_ns() // _NS_PER_MS

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // _NS_PER_MS

    async def sleep(self, ms: float) -> None:
        """See Clock."""
        await asyncio.sleep(ms / _MS_PER_S)

    def call_later(self, ms: float, callback: Callable[[], None]) -> Timer:
        """See Clock."""
        return asyncio.get_running_loop().call_later(ms / _MS_PER_S, callback)


class SystemRng:
    """The Rng port over the operating system's source of randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def bytes(self, count: int) -> bytes:
        """See Rng."""
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        """See Rng."""
        return self._random.uniform(low, high)

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """See Rng."""
        return self._random.sample(items, len(items))
