"""Classes of jobs that get one slice in each turn, in the order in which they asked."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, TypeVar

from minikafka.base.ports import Clock
from minikafka.broker.turns.fair_queue import TURN_MS

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

PART_ITEMS: Final = 256
"""Number of items in one part, if each item takes a few microseconds: a part then takes about 1 ms."""
STEPS_MAX: Final = 64
"""Maximum number of steps in one slice, even if the clock stands still."""


class Rotation:
    """The waiting slices of one class of jobs.

    Each turn does the oldest slice. `wake()` makes sure that a turn follows.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[Callable[[], None]] = deque()

    def ask(self, work: Callable[[], None]) -> None:
        """Queue one slice, which calls `work` in a later turn."""
        self._waiting.append(work)
        self._wake()

    def serve(self) -> None:
        """Do one slice."""
        if self._waiting:
            work = self._waiting.popleft()
            if self._waiting:
                self._wake()
            try:
                work()
            except Exception:  # a bug in the broker, which must not stop the other jobs
                logger.exception("a slice of work failed")


class Pauses(Rotation):
    """The coroutines of one class that wait between two slices. Each turn lets one of them do its next slice.

    Invariant: however many coroutines there are, one slice of one of them is done between two turns.
    """

    async def pause(self) -> None:
        """Wait until the next slice may be done."""
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ask(lambda: None if due.done() else due.set_result(None))  # done if cancelled
        await due

    async def each(self, items: Iterable[Item], at_once: int = PART_ITEMS) -> AsyncIterator[Item]:
        """Yield the items one by one. After every `at_once` items, wait while other requests are served."""
        for number, item in enumerate(items, 1):
            yield item
            if not number % at_once:
                await self.pause()

    async def parts(
        self, items: Sequence[Item], size: int = PART_ITEMS
    ) -> AsyncIterator[Sequence[Item]]:
        """Yield the items in parts of `size`, at least one part. Between parts, let other requests be served."""
        for start in range(0, len(items) or 1, size):
            if start:
                await self.pause()
            yield items[start : start + size]


class Slices:
    """The slices of one coroutine that works in short steps: each has `STEPS_MAX` steps, or takes `TURN_MS`."""

    def __init__(self, clock: Clock, pauses: Pauses) -> None:
        self._clock = clock
        self._pauses = pauses
        self.begin()

    def begin(self) -> None:
        """Begin a slice."""
        self._steps, self._end = 0, self._clock.now() + TURN_MS

    async def end_step(self) -> None:
        """Count one finished step. At the end of the slice, wait until the next one may be done."""
        self._steps += 1
        if self._steps >= STEPS_MAX or self._clock.now() >= self._end:
            await self._pauses.pause()
            self.begin()
