"""Jobs that share a budget of time in each turn. The job for which the least was done so far comes first.

A cold request, which is a request of any API but Produce and Fetch, can take a thousand times as long as a record. A
client can send thousands of cold requests at once, so the order is decided by the work done for each connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from minikafka.base.config.keys import INT_MAX
from minikafka.base.ports import Clock, Timer

logger = logging.getLogger(__name__)

TURN_MS: Final = 2
"""Time (ms) that all jobs of one queue take in a turn. A job that takes longer is continued in a later turn."""
LARGE_MS: Final = 10_000
"""Time (ms) after which the next large request begins, even if the current one is still in progress."""
WAIT_MS: Final = 30_000
"""Maximum time (ms) that a large request waits before its connection is closed. Kafka's clients wait no longer."""
_SLICE_COST: Final = 1
_COST_PER_MS: Final = 10
"""`Job.used` grows by `_SLICE_COST` per slice, and by `_COST_PER_MS` per ms that the slice takes."""
_HEAD_START: Final = 100
"""Priority of a job after a long pause, in units of `Job.used`: enough for the first few requests of a connection."""


def take_steps(
    steps: Generator[Any, None, Any], clock: Clock, until: int, size_max: int = INT_MAX
) -> bool:
    """Take at least one step, until the time `until` (monotonic ms) or until a step yields more than `size_max`.

    Return True if a step has yielded more than `size_max`. Raises StopIteration after the last step.
    """
    while True:
        if (next(steps) or 0) > size_max:
            return True
        if clock.now() >= until:
            return False


class Job(Protocol):
    """One kind of work for one connection, such as its cold requests.

    `used`: the cost of the slices done so far.
    """

    used: int

    def work(self, until: int) -> None:
        """Do a slice: one request, or steps of a long request until the time `until` (monotonic ms).

        If work is left, ask for another slice.
        """

    def give_up(self, reason: str) -> None:
        """Close the connection."""


class FairQueue:
    """The jobs of one class that wait for a slice. `wake()` makes sure that a turn follows.

    After a long pause, the `used` of a job is raised to the largest `used` served so far minus `_HEAD_START`. Without
    this, the job would have priority for a long time. Invariant: a turn does at most one slice of each job.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._queue: list[tuple[int, int, Job]] = []
        self._next: list[Job] = []
        """The jobs that asked for a slice since the last turn began."""
        self._asked = 0
        self._served = 0
        """The largest `used` of any job served so far."""

    def ask(self, job: Job) -> None:
        """Queue a job for one slice, in a later turn."""
        self._next.append(job)
        self._wake()

    def serve(self) -> None:
        """Do slices for about `TURN_MS`."""
        if not (self._next or self._queue):
            return
        for job in self._next:
            job.used = max(job.used, self._served - _HEAD_START)
            self._asked += 1
            heappush(self._queue, (job.used, self._asked, job))
        self._next.clear()
        now = self._clock.now()
        end = now + TURN_MS
        while self._queue:
            used, _, job = heappop(self._queue)
            self._served = max(self._served, used)
            try:
                job.work(end)
            except Exception:  # a bug in the broker, which must not affect other clients
                logger.exception("a connection's requests could not be handled")
                job.give_up("the broker failed")
            after = self._clock.now()
            job.used += _SLICE_COST + _COST_PER_MS * (after - now)
            now = after
            if now >= end:
                break
        if self._queue:
            self._wake()


class OneAtATime:
    """The limit of a class of large requests: they are handled one at a time, to save memory.

    A decoded request takes up to a hundred times as much memory as the encoded request. A client can keep
    its request in progress for any length of time. Therefore the next request begins after `LARGE_MS` even if
    the current request is not finished. `begin(job)` queues the request for its first slice.
    """

    def __init__(self, clock: Clock, begin: Callable[[Job], None]) -> None:
        self._clock = clock
        self._begin = begin
        self._current: Job | None = None
        self._limit: Timer | None = None
        self._waiting: dict[Job, int] = {}
        """The time at which each connection began to wait (monotonic ms)."""

    def ask(self, job: Job) -> None:
        """Begin the connection's large request if no other one is in progress; otherwise let the connection wait."""
        if self._current is None:
            self._current = job
            self._limit = self._clock.call_later(LARGE_MS, lambda: self.end(job))
            self._begin(job)
        else:
            self._waiting[job] = self._clock.now()

    def sweep(self) -> None:
        """Close the connections that have waited for `WAIT_MS`, because their clients have given up."""
        longest = self._clock.now() - WAIT_MS
        for job in [waiting for waiting, since in self._waiting.items() if since < longest]:
            job.give_up("its large request has waited for too long")

    def end(self, job: Job) -> None:
        """Remove the connection. If its large request has begun, begin the request of the next connection."""
        if self._current is job:
            self._current = None
            assert self._limit is not None
            self._limit.cancel()
            for waiting in self._waiting:
                del self._waiting[waiting]
                self.ask(waiting)
                return
        else:
            self._waiting.pop(job, None)
