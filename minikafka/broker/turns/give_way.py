"""The division of long administrative requests into parts. Other connections are served between two parts.

Invariant: one part of one request is done in each turn of the event loop, however many requests are in progress.
A handler that awaits nothing does not use this module: it returns `services.Steps`, which `ColdTurns` runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, TypeVar

from minikafka.base.ports import Clock

Item = TypeVar("Item")

PART_ITEMS: Final = 256
"""Number of items in one part, if each item takes a few microseconds: a part then takes about 1 ms."""


class GiveWay:
    """A queue of long requests. In each turn of the event loop, the first one does its next part."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def each(self, items: Iterable[Item], at_once: int = PART_ITEMS) -> AsyncIterator[Item]:
        """Yield the items one by one. After every `at_once` items, wait while other requests are served."""
        for number, item in enumerate(items, 1):
            yield item
            if not number % at_once:
                await self.turn()

    async def parts(
        self, items: Sequence[Item], size: int = PART_ITEMS
    ) -> AsyncIterator[Sequence[Item]]:
        """Yield the items in parts of `size`, at least one part. Between parts, let other requests be served."""
        for start in range(0, len(items) or 1, size):
            if start:
                await self.turn()
            yield items[start : start + size]

    async def turn(self) -> None:
        """Wait until the next part of this request may be done."""
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(due)
        if len(self._waiting) == 1:
            self._clock.call_later(0, self._next)
        await due

    def _next(self) -> None:
        due = self._waiting.popleft()
        if not due.done():  # done if the waiting task was cancelled
            due.set_result(None)
        if self._waiting:
            self._clock.call_later(0, self._next)
