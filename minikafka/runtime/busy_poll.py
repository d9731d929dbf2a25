"""Busy polling: under dense traffic the event loop checks its sockets again instead of sleeping.

Waking a sleeping processor costs as much as a broker's whole work for one record, and an acks=all produce
wakes four processes one after the other (docs/performance.md has the figures). Polling takes only processor
time that no other process wants: it yields the processor before each check of the sockets, and a long yield
stops the polling for a while.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

PAUSE_NS: Final = 500_000
"""Polling ends when no read follows within this time, or when a yield to another process takes longer."""
DENSE_READS: Final = 8
"""Number of reads without a pause before polling begins. Steady 1,000 records/s do not reach it."""
HELD_READS: Final = 1_024
"""Number of reads without polling after a long yield, so that polling seldom delays other processes."""


class BusyPoll:
    """The busy polling of one event loop. `now` counts nanoseconds; `give_way` yields the processor."""

    __slots__ = ("_give_way", "_is_polling", "_last_read", "_loop", "_now", "_reads")

    def __init__(
        self,
        loop: AbstractEventLoop,
        now: Callable[[], int] = perf_counter_ns,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._loop = loop
        self._now = now
        self._give_way = give_way
        self._last_read = 0
        self._reads = 0
        self._is_polling = False

    def after_read(self) -> None:
        """Note that a read of a socket was handled; begin to poll when enough reads came without a pause."""
        now = self._now()
        if now - self._last_read > PAUSE_NS:
            self._reads = min(self._reads, 0)
        self._last_read = now
        self._reads += 1
        if self._reads > DENSE_READS and not self._is_polling:
            self._is_polling = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Yield the processor, then make the loop check its sockets once more without sleeping."""
        before = self._now()
        self._is_polling = before - self._last_read <= PAUSE_NS
        if self._is_polling:
            self._give_way()
            if self._now() - before > PAUSE_NS:
                self._is_polling = False
                self._reads = -HELD_READS
            else:
                self._loop.call_soon(self._turn)
