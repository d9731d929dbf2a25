"""Producer ids for idempotent producers, unique in the cluster (R72).

Invariant: at most one broker hands out an id, and only once. A broker claims blocks of ids, and does not use
a block if the outcome of its claim is uncertain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from minikafka.base.errors import CoordinationError


class ProducerIds:
    """The producer ids that this broker hands out.

    `claim` claims a block and returns its first and last id.
    """

    def __init__(self, claim: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._claim = claim
        self._lock = asyncio.Lock()
        self._next = 0
        self._last = -1

    async def prepare(self) -> None:
        """Claim the first block, so that producers can begin while the coordination service is unreachable.

        A failure is ignored: `next` tries again, and raises the error.
        """
        async with self._lock:
            if self._next > self._last:
                with suppress(CoordinationError, ValueError):
                    self._next, self._last = await self._claim()

    async def next(self) -> int:
        """Return an id that no producer has yet. Raises CoordinationError or ValueError if a claim fails."""
        async with self._lock:
            if self._next > self._last:
                self._next, self._last = await self._claim()
            producer_id = self._next
            self._next += 1
            return producer_id
