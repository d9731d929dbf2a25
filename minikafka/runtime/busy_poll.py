"""Busy polling: under dense traffic the loop looks at its sockets again and again instead of sleeping.

Waking a processor that sleeps costs 20 to 40 microseconds on a virtual machine, as much as a broker's
whole work for a record, and an acks=all produce wakes four processes one after the other. Invariant: only
time that nobody else wants is polled away. Traffic with pauses never polls, and every look gives way
first; when somebody held the processor long, the loop sleeps as usual for the next reads, and for twice as many
if that happens again soon.
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
"""How many reads more than usual come before the next attempt then, the first time."""
HELD_READS_MAX: Final = 4096
"""The same, at most: a machine that computes beside the brokers is asked so rarely."""
FORGET_NS: Final = 1_000_000_000
"""The first pause so long after the processor was held begins anew: whoever computed then (it was the start of the
cluster, say) may be done."""
LASTING_READS: Final = 256
"""Polling that lasted so long before it was held is not counted against the next attempt."""


class BusyPoll:
    """The busy polling of one loop; `after_read` is called after each read of a socket. `now`: nanoseconds."""

    __slots__ = (
        "_give_way", "_held_at", "_last", "_looked", "_loop", "_now", "_polled", "_polling", "_reads", "_wait",
    )  # fmt: skip

    def __init__(
        self,
        loop: AbstractEventLoop,
        now: Callable[[], int] = perf_counter_ns,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._loop = loop
        self._now = now
        self._give_way = give_way
        self._last = self._looked = self._held_at = 0
        self._reads = 0
        self._wait = HELD_READS
        self._polling = False
        self._polled = 0

    def after_read(self) -> None:
        """Start polling after enough reads without a pause between them."""
        now = self._now()
        pause = now - self._last
        self._last = now
        if self._polling:
            self._polled += 1
            return
        if pause > PAUSE_NS:
            if now - self._held_at > FORGET_NS:
                self._reads = 0
                self._wait = HELD_READS
            self._reads = min(self._reads, 0)
        self._reads += 1
        if self._reads > DENSE_READS:
            self._polling = True
            self._polled = 0
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Keeps the loop from sleeping for one more look at its sockets."""
        before = self._now()
        if before - self._last <= PAUSE_NS:
            self._give_way()
            self._looked = self._now()
            if self._looked - before <= HELD_NS:
                self._loop.call_soon(self._turn)
                return
            self._wait_longer()
        self._polling = False

    def _wait_longer(self) -> None:
        if self._polled >= LASTING_READS:
            self._wait = HELD_READS
        self._reads = -self._wait
        self._held_at = self._looked
        self._wait = min(2 * self._wait, HELD_READS_MAX)
