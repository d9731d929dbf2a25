"""Producer ids for idempotent producers, unique in the cluster (R72).

Invariant: an id is returned to at most one producer. Brokers claim blocks of ids from the coordination service. A
broker does not use a block if the outcome of its claim is uncertain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from minikafka.base.errors import CoordinationError


class ProducerIds:
    """The source of new producer ids on one broker.

    `claim` claims a block of ids and returns the first and the last id of the block.
    """

    def __init__(self, claim: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._claim = claim
        self._lock = asyncio.Lock()
        self._next = 0
        self._last = -1

    async def prepare(self) -> None:
        """Claim the first block, so that producers can start even if the coordination service fails later.

        A failed claim is ignored. `next` claims again and raises the error if this claim fails too.
        """
        async with self._lock:
            if self._next > self._last:
                with suppress(CoordinationError, ValueError):
                    self._next, self._last = await self._claim()

    async def next(self) -> int:
        """Return an unused producer id. Raises CoordinationError or ValueError if a claim fails."""
        async with self._lock:
            if self._next > self._last:
                self._next, self._last = await self._claim()
            producer_id = self._next
            self._next += 1
            return producer_id
