"""The turns in which the cold requests, the large requests and the requests left in buffers are handled.

Cold requests can take a thousand times as long as a record, and a client can send thousands of them at once.
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
"""Time after which a turn ends, and after which a long answer gives way to other connections."""
LARGE_MS: Final = 10_000
"""Time for which a large request keeps others from beginning."""
WAIT_MS: Final = 30_000
"""Close the connection of a large request that has waited this long: Kafka's clients wait no longer."""
_REQUEST_COST: Final = 1
_COST_PER_MS: Final = 10
"""`Worker.used` grows by `_REQUEST_COST` per call of `work`, and by this per millisecond of it."""
_HEAD_START: Final = 100
"""The same units: the work for the few requests with which a client begins."""


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
        """Ask for another turn if there is more to do and the client has received the earlier responses."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""


class OneAtATime:
    """The connections with a large request, of which one is in progress; `begin(worker)` queues it for a turn.

    A decoded request takes up to a hundred times as much memory as its bytes. `LARGE_MS` after a request has
    begun, the next one begins even if it is still in progress, because a client may let its request wait for
    any time.
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
        """End this connection's large request: begin the next one, or stop waiting if it had not begun."""
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

    A connection that asks rarely is served before those that keep the broker busy: its `used` may be smaller
    than theirs, but by at most `_HEAD_START`, however long it has asked for nothing.
    """

    def __init__(self, clock: Clock, purgatory: Purgatory) -> None:
        self._clock = clock
        self._purgatory = purgatory
        self._queue: list[tuple[int, int, Worker]] = []
        self._asked = 0
        self._served = 0
        """The largest `used` with which a connection was served."""
        self._is_due = False
        self.large = OneAtATime(clock, self.ask)
        """The large cold requests and fetches."""
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
