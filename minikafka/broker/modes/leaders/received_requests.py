"""The state-change requests to this broker (C5), in the order of its queue.

A request is carried out in the lane of its partition. Requests for different partitions are carried out side by side:
one after the other, a topic with 1,000 partitions takes three times as long. An entry is deleted after that, so that a
crash in between repeats it. While the lease is over, the requests wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from minikafka.base.errors import Closed, CoordinationError
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.modes.leaders.era import Era
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.turns.side_by_side import all_of
from minikafka.leaders.model import StateChange

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 200


class ReceivedRequests:
    """Follows the queue of one broker. `carry_out(era, entry, request)` returns when the request has been handled."""

    def __init__(
        self,
        queue: StateChangeQueue,
        clock: Clock,
        tasks: Tasks,
        carry_out: Callable[[Era, str, StateChange], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._tasks = tasks
        self._carry_out = carry_out
        self._era: Era | None = None
        self._may_act = asyncio.Event()
        self._progress = asyncio.Event()
        self._is_following = False

    async def drain(self, era: Era) -> None:
        """Carry out the requests of this era; return when the queue is empty for the first time (C1)."""
        self._era = era
        self._may_act.set()
        if not self._is_following:
            self._is_following = True
            self._tasks.spawn(self._follow(), "received-requests")
        while not era.is_over:
            self._progress.clear()
            if not await self._queue.has_requests():
                return
            # Another program may delete an entry, which would cause no progress.
            timer = self._clock.call_later(_RETRY_MS, self._progress.set)
            await self._progress.wait()
            timer.cancel()

    async def _follow(self) -> None:
        while True:
            try:
                await self._may_act.wait()
                requests = await self._queue.next_requests()
            except Closed:
                return
            except CoordinationError as error:
                logger.info("the queue cannot be read: %s %s", type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
                continue
            era = self._era
            if era is None or era.is_over:
                self._may_act.clear()  # the next `drain` lets them be carried out
                continue
            await all_of(self._carry_out(era, *one) for one in requests)
            self._progress.set()
