"""Time, processor and randomness of this machine: the Clock, Processor and Rng ports in production.

Invariant: `now` never decreases, even when the machine's clock is set. Random values cannot be
predicted, so they are suitable for ids and secrets.
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
    """The Clock port, implemented with the running event loop."""

    def __init__(self, advanced_ms: int = 0) -> None:
        self.advanced_ms = advanced_ms

    def now(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS

    def wall_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS + self.advanced_ms

    async def sleep(self, ms: float) -> None:
        await asyncio.sleep(ms / _MS_PER_S)

    def call_later(self, ms: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(ms / _MS_PER_S, callback)


class SystemProcessor:
    """The Processor port, implemented with `sched_yield`."""

    def yield_ns(self) -> int:
        before = time.perf_counter_ns()
        os.sched_yield()
        return time.perf_counter_ns() - before

    def time_ns(self) -> int:
        return time.perf_counter_ns()


class SystemRng:
    """The Rng port, implemented with the operating system's source of randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        return self._random.sample(items, len(items))
