"""Busy polling: under dense traffic the loop looks at its sockets again and again instead of sleeping.

Waking a processor that sleeps costs 20 to 40 microseconds on a virtual machine, as much as a broker's
whole work for a record, and an acks=all produce wakes four processes one after the other. Invariant: only
time that nobody else wants is polled away. Traffic with pauses never polls, and every look gives way
first; when somebody held the processor long, the loop sleeps as usual for the next reads.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

PAUSE_NS: Final = 500_000
"""What is longer is a pause; one request in flight comes around in less even when everybody sleeps."""
DENSE_READS: Final = 8
"""So many without a pause between them before polling begins: 1,000 records a second never get so far."""
HELD_NS: Final = 500_000
"""Giving way for so long means that a process which computes has work for this processor."""
HELD_READS: Final = 32
"""How many reads more than usual come before the next attempt then."""


class BusyPoll:
    """Of one loop; `busy` is called after every read of a socket. `now`: nanoseconds."""

    __slots__ = ("_give_way", "_last", "_loop", "_now", "_polling", "_reads")

    def __init__(
        self,
        loop: AbstractEventLoop,
        now: Callable[[], int] = perf_counter_ns,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._loop = loop
        self._now = now
        self._give_way = give_way
        self._last = 0
        self._reads = 0
        self._polling = False

    def busy(self) -> None:
        """Something was read and handled."""
        now = self._now()
        if now - self._last > PAUSE_NS:
            self._reads = min(self._reads, 0)
        self._last = now
        if self._polling:
            return
        self._reads += 1
        if self._reads > DENSE_READS:
            self._polling = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Keeps the loop from sleeping for one more look at its sockets."""
        before = self._now()
        if before - self._last <= PAUSE_NS:
            self._give_way()
            if self._now() - before <= HELD_NS:
                self._loop.call_soon(self._turn)
                return
            self._reads = -HELD_READS
        self._polling = False
