"""The scheduler of a broker: which work is done next in the event loop, how much of it, and when a tick ends.

Work that takes long is divided into *slices*, and a job asks for one slice at a time. A *turn* is one callback of the
event loop that serves every class of jobs once. Between two turns the event loop reads the sockets, so produce,
fetch and the control plane wait for at most one turn. What is fair: each class has a budget of its own in every
turn, so no class waits for another one, and within a class no job waits for the second slice of another job.

| class | jobs | budget in one turn | order |
|---|---|---|---|
| `checks` | the checks of produced records (`replicas/record_walks.py`) | 2 ms | a step of each check in rotation |
| `requests` | cold requests, requests left in receive buffers, slices of large requests | 2 ms | least served first |
| `large` | large cold requests and fetches | slices of `requests` | one request at a time, for at most 10 s |
| `large_produce` | Produce requests of many partitions | slices of `requests` | one request at a time, at most 10 s |
| `replication` | unsent responses to followers | one send of 1 MiB | in rotation |
| `sending` | unsent responses to consumers | one send of 16 or 128 KiB | in rotation |
| `parts` | administrators' requests that await ZooKeeper or the controller | one part, about 1 ms | in rotation |
| `orders` | requests of the controller | one slice of 50 ms | in rotation |
| `loading` | the state of coordinators, read after an election | one step of 200 records, about 2 ms | in rotation |
| `upkeep` | retention, the search for logs to compact | one slice of 2 ms | in rotation |

A tick ends in two places: when a connection has handled what it received, and in each turn, after the requests. Then
the logs are written, and the ready responses are sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, Final, Protocol, TypeVar

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


Item = TypeVar("Item")

PART_ITEMS: Final = 256
"""Number of items in one part, if each item takes a few microseconds: a part then takes about 1 ms."""
STEPS_MAX: Final = 64
"""Maximum number of steps in one slice, even if the clock stands still."""


class Scheduler:
    """The classes of jobs of one broker. `finish_tick(now)` ends a tick (`Purgatory.finish_tick`)."""

    def __init__(self, clock: Clock, finish_tick: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish_tick = finish_tick
        self._is_due = False
        self._will_finish = False
        """True in the part of a turn that is followed by the end of the tick."""
        self.checks = Rotation(self.wake)
        self.requests = FairQueue(clock, self.wake)
        self.large = OneAtATime(clock, self.requests.ask)
        self.large_produce = OneAtATime(clock, self.requests.ask)
        self.replication = Rotation(self.wake)
        self.sending = Rotation(self.wake)
        self.parts = Pauses(self.wake)
        self.orders = Pauses(self.wake)
        self.loading = Pauses(self.wake)
        self.upkeep = Pauses(self.wake)
        self._after_tick = (
            self.replication,
            self.sending,
            self.parts,
            self.orders,
            self.loading,
            self.upkeep,
        )

    def wake(self) -> None:
        """Make sure that a turn follows."""
        if not self._is_due:
            self._is_due = True
            self._clock.call_later(0, self._turn)

    def finish_soon(self) -> None:
        """End the tick in this turn, or else in the next iteration of the event loop."""
        if not self._will_finish:
            self.wake()

    def slices(self) -> Slices:
        """Return the slices of a new job of the class `upkeep`."""
        return Slices(self._clock, self.upkeep)

    def _turn(self) -> None:
        self._is_due = False
        self._will_finish = True
        self.checks.serve()
        self.requests.serve()
        self._will_finish = False
        self._finish_tick(self._clock.now())
        for jobs in self._after_tick:
            jobs.serve()


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
    """The jobs of one class that share a budget of time. `wake()` makes sure that a turn follows.

    A cold request, which is a request of any API but Produce and Fetch, can take a thousand times as long as a record.
    A client can send thousands of them at once. Therefore the connection for which the least work was done comes first.

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
