"""The turns in which cold requests, large requests, and requests left in receive buffers are handled.

A turn is one callback of the event loop that serves some of the waiting connections. A cold request, which is a
request of any API but Produce and Fetch, can take a thousand times as long as a record. A client can send
thousands of cold requests at once.
Invariant: a turn takes about `TURN_MS` and handles at most one slice of work for each connection. Between two turns
the event loop reads other sockets, so produce, fetch and the control plane wait for at most one turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from minikafka.base.keys import INT_MAX
from minikafka.base.ports import Clock, Timer
from minikafka.replication.purgatory import Purgatory

logger = logging.getLogger(__name__)

TURN_MS: Final = 2
"""Time (ms) after which a turn ends. A request that takes longer is continued in a later turn."""
LARGE_MS: Final = 10_000
"""Time (ms) after which the next large request begins, even if the current one is still in progress."""
WAIT_MS: Final = 30_000
"""Maximum time (ms) that a large request waits before its connection is closed. Kafka's clients wait no longer."""
_REQUEST_COST: Final = 1
_COST_PER_MS: Final = 10
"""`Worker.used` grows by `_REQUEST_COST` per call of `work`, and by `_COST_PER_MS` per ms that the call takes."""
_HEAD_START: Final = 100
"""Priority of a connection after a long pause, in units of `Worker.used`: enough for the first few requests."""


def take_steps(
    steps: Generator[Any, None, Any], clock: Clock, until: int, size_max: int = INT_MAX
) -> bool:
    """Take one step, then further steps until the time `until` (monotonic ms), or until one yields a larger size.

    Return True if a step has yielded a size above `size_max`. Raises StopIteration after the last step.
    """
    while True:
        if (next(steps) or 0) > size_max:
            return True
        if clock.now() >= until:
            return False


class Worker(Protocol):
    """One kind of work for one connection, such as its cold requests.

    `used`: the cost of the work done so far; grows with each call of `work`.
    """

    used: int

    def work(self) -> None:
        """Handle one request, or a part of a long request. Ask for another turn if work is left."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""


class OneAtATime:
    """The connections that have a large request. Large requests are handled one at a time, to save memory.

    A decoded request takes up to a hundred times as much memory as the encoded request. A client can keep
    its request in progress for any length of time. Therefore the next request begins after `LARGE_MS` even if
    the current request is not finished. `begin(worker)` queues the connection for a turn.
    """

    def __init__(self, clock: Clock, begin: Callable[[Worker], None]) -> None:
        self._clock = clock
        self._begin = begin
        self._current: Worker | None = None
        self._limit: Timer | None = None
        self._waiting: dict[Worker, int] = {}
        """The time at which each connection began to wait (monotonic ms)."""

    def ask(self, worker: Worker) -> None:
        """Begin the connection's large request if no other one is in progress; otherwise let the connection wait."""
        if self._current is None:
            self._current = worker
            self._limit = self._clock.call_later(LARGE_MS, lambda: self.end(worker))
            self._begin(worker)
        else:
            self._waiting[worker] = self._clock.now()

    def sweep(self) -> None:
        """Close the connections that have waited for `WAIT_MS`, because their clients have given up."""
        longest = self._clock.now() - WAIT_MS
        for worker in [waiting for waiting, since in self._waiting.items() if since < longest]:
            worker.give_up("its large request has waited for too long")

    def end(self, worker: Worker) -> None:
        """Remove the connection. If its large request has begun, begin the request of the next connection."""
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
    """The connections that wait for a turn to handle their requests. Those with the least work so far come first.

    `Worker.used` counts this work. A connection with few requests has a smaller `used` than connections that
    keep the broker busy, so it is served earlier. After a long pause, the `used` of a connection is raised to
    the largest `used` served so far minus `_HEAD_START`. Without this, the connection would have priority for
    a long time.
    """

    def __init__(self, clock: Clock, purgatory: Purgatory) -> None:
        self._clock = clock
        self._purgatory = purgatory
        self._queue: list[tuple[int, int, Worker]] = []
        self._next: list[Worker] = []
        """The connections that asked since the last turn began."""
        self._asked = 0
        self._served = 0
        """The largest `used` of any connection served so far."""
        self._is_due = False
        self.large = OneAtATime(clock, self.ask)
        """The connections with a large cold request or a large fetch."""
        self.large_produce = OneAtATime(clock, self.ask)

    def ask(self, worker: Worker) -> None:
        """Queue a connection for one slice of work, in a later turn."""
        self._next.append(worker)
        if not self._is_due:
            self._is_due = True
            self._clock.call_later(0, self._turn)

    def _admit(self) -> None:
        for worker in self._next:
            worker.used = max(worker.used, self._served - _HEAD_START)
            self._asked += 1
            heappush(self._queue, (worker.used, self._asked, worker))
        self._next.clear()

    def _turn(self) -> None:
        self._admit()
        begun = now = self._clock.now()
        while self._queue and now - begun < TURN_MS:
            used, _, worker = heappop(self._queue)
            self._served = max(self._served, used)
            try:
                worker.work()
            except Exception:  # a bug in the broker, which must not affect other clients
                logger.exception("a connection's requests could not be handled")
                worker.give_up("the broker failed")
            after = self._clock.now()
            worker.used += _REQUEST_COST + _COST_PER_MS * (after - now)
            now = after
        self._purgatory.finish_tick(now)
        self._is_due = bool(self._queue or self._next)
        if self._is_due:
            self._clock.call_later(0, self._turn)
