"""Freed memory is returned to the system only when the process has grown."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress

from minikafka.runtime.memory import GROWTH, find_trim, resident, return_freed_memory
from minikafka.simulation.clocks import LoopClock


class Process:
    """A process whose size in memory takes the next value of `sizes` at each measurement; a negative one fails."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)
        self.trimmed: list[int] = []

    def measure(self) -> int:
        if not self.sizes:
            raise asyncio.CancelledError
        self.now = self.sizes.pop(0)
        if self.now < 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return self.now

    def trim(self) -> None:
        self.trimmed.append(self.now)


class Clock(LoopClock):
    async def sleep(self, ms: float) -> None:
        await asyncio.sleep(0)


async def test_heap_is_trimmed_only_after_growth_since_the_smallest_size() -> None:
    process = Process(100, 50, GROWTH + 49, GROWTH + 50, GROWTH + 40, GROWTH + 60, 3 * GROWTH, 90)
    with suppress(asyncio.CancelledError):
        await return_freed_memory(Clock(), process.trim, process.measure)
    assert process.trimmed == [GROWTH + 50, 3 * GROWTH]


async def test_measurement_without_a_free_descriptor_is_tried_again() -> None:
    process = Process(-1, 100, -1, GROWTH + 100, -1, 2 * GROWTH, GROWTH)
    with suppress(asyncio.CancelledError):
        await return_freed_memory(Clock(), process.trim, process.measure)
    assert process.trimmed == [GROWTH + 100, 2 * GROWTH]


def test_heap_trim_keeps_the_process_usable() -> None:
    trim = find_trim()
    if trim is not None:
        trim()
        assert resident() > 1 << 20
