"""The turns in which cold requests, large requests, and requests left in receive buffers are handled.

A turn is one callback of the event loop that serves some of the connections that wait. Cold requests can take
a thousand times as long as a record, and a client can send thousands of them at once.
Invariant: a turn takes about `TURN_MS` and handles at most one slice of work for each connection. Between two turns
the event loop reads other sockets, so produce, fetch and the control plane wait for one turn at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from minikafka.base.ports import Clock, Timer
from minikafka.replication.purgatory import Purgatory

logger = logging.getLogger(__name__)

TURN_MS: Final = 2
"""Time after which a turn ends, and after which a long request is interrupted until a later turn."""
LARGE_MS: Final = 10_000
"""Time after which the next large request begins even if the current one is still in progress."""
WAIT_MS: Final = 30_000
"""Close the connection of a large request that has waited this long: Kafka's clients wait no longer."""
_REQUEST_COST: Final = 1
_COST_PER_MS: Final = 10
"""`Worker.used` grows by `_REQUEST_COST` per call of `work`, and by `_COST_PER_MS` per ms of the call."""
_HEAD_START: Final = 100
"""In units of `Worker.used`: enough for the few requests with which a client begins (see `ColdTurns`)."""


def take_steps(steps: Generator[None, None, Any], clock: Clock, until: int) -> None:
    """Take one step, and further ones until `until` (monotonic ms). Raises StopIteration after the last one."""
    next(steps)
    while clock.now() < until:
        next(steps)


class Worker(Protocol):
    """Work of one kind for one connection, such as its cold requests. `used` counts the work done so far."""

    used: int

    def work(self) -> None:
        """Handle one request, or a part of a long one."""

    def proceed(self) -> None:
        """Queue for another turn if work is left and the client has received the earlier responses."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""


class OneAtATime:
    """The connections with a large request, only one of which is handled at a time, to save memory.

    A decoded request takes up to a hundred times as much memory as its bytes. A client can keep its request
    in progress for any length of time, so the next request begins after `LARGE_MS` in any case.
    `begin(worker)` queues the connection for a turn.
    """

    def __init__(self, clock: Clock, begin: Callable[[Worker], None]) -> None:
        self._clock = clock
        self._begin = begin
        self._current: Worker | None = None
        self._limit: Timer | None = None
        self._waiting: dict[Worker, int] = {}
        """When each connection began to wait (monotonic ms)."""

    def ask(self, worker: Worker) -> None:
        """Begin the connection's large request as soon as no other is in progress."""
        if self._current is None:
            self._current = worker
            self._limit = self._clock.call_later(LARGE_MS, lambda: self.end(worker))
            self._begin(worker)
        else:
            self._waiting[worker] = self._clock.now()

    def sweep(self) -> None:
        """Close the connections that have waited for too long: their clients no longer wait, or have gone."""
        longest = self._clock.now() - WAIT_MS
        for worker in [waiting for waiting, since in self._waiting.items() if since < longest]:
            worker.give_up("its large request has waited for too long")

    def end(self, worker: Worker) -> None:
        """Remove the connection; if its large request has begun, begin that of the next connection."""
        if self._current is worker:
            self._current = None
            assert self._limit is not None
            self._limit.cancel()
            for waiting in self._waiting:
                del self._waiting[waiting]
                self.ask(waiting)
                return
        else:
            self._waiting.pop(worker, None)


class ColdTurns:
    """The connections that wait for a turn. Those with the smallest `used` are served first.

    A connection that asks rarely has a smaller `used` than those that keep the broker busy, and is served
    before them. After a long pause its `used` is raised to the largest `used` served so far minus
    `_HEAD_START`, so that the pause does not give it priority for long.
    """

    def __init__(self, clock: Clock, purgatory: Purgatory) -> None:
        self._clock = clock
        self._purgatory = purgatory
        self._queue: list[tuple[int, int, Worker]] = []
        self._asked = 0
        self._served = 0
        """The largest `used` that a connection had when it was served."""
        self._is_due = False
        self.large = OneAtATime(clock, self.ask)
        """The connections with a large cold request or a large fetch."""
        self.large_produce = OneAtATime(clock, self.ask)

    def ask(self, worker: Worker) -> None:
        """Queue a connection for one turn."""
        worker.used = max(worker.used, self._served - _HEAD_START)
        self._asked += 1
        heappush(self._queue, (worker.used, self._asked, worker))
        if not self._is_due:
            self._is_due = True
            self._clock.call_later(0, self._turn)

    def _turn(self) -> None:
        begun = now = self._clock.now()
        served: list[Worker] = []
        while self._queue and now - begun < TURN_MS:
            used, _, worker = heappop(self._queue)
            self._served = max(self._served, used)
            try:
                worker.work()
            except Exception:  # a defect of the broker, which must cost no other client anything
                logger.exception("the requests of a connection cannot be handled")
                worker.give_up("the broker failed")
            after = self._clock.now()
            worker.used += _REQUEST_COST + _COST_PER_MS * (after - now)
            now = after
            served.append(worker)
        self._purgatory.finish_tick(now)
        for worker in served:
            worker.proceed()
        self._is_due = bool(self._queue)
        if self._is_due:
            self._clock.call_later(0, self._turn)
