"""A Produce request of many partitions, handled in steps. The broker handles other connections between steps.

Invariants: the batches that were appended in a step are written before the next step. The batches of the last step
are written at the end of the turn, before the receive buffer is used again. No step is taken while the check of a
batch is awaited: the step would append the batch unchecked, and nothing would continue the request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Clock
from minikafka.broker.turns import Scheduler
from minikafka.storage.replication.purgatory import Purgatory

Steps: TypeAlias = Generator[bool, None, None]
"""The steps of one request. A step yields True if the next step must wait until `LargeProduce.resume` is called."""


class LargeProduce:
    """The large Produce requests of one connection, handled one after the other.

    A request stays in the connection's buffer until its last step. `done()` is called after the last step,
    `close(reason)` after a failure.
    """

    __slots__ = (
        "_clock",
        "_close",
        "_done",
        "_is_waiting",
        "_purgatory",
        "_turns",
        "steps",
        "used",
    )

    def __init__(
        self,
        turns: Scheduler,
        clock: Clock,
        purgatory: Purgatory,
        done: Callable[[], None],
        close: Callable[[str], None],
    ) -> None:
        self._turns = turns
        self._clock = clock
        self._purgatory = purgatory
        self._done = done
        self._close = close
        self.steps: Steps | None = None
        """The steps left of the request in progress; None if there is none."""
        self._is_waiting = False
        self.used = 0
        """Cost so far of the large Produce requests of this connection (see `Job.used`)."""

    def begin(self, steps: Steps, *, has_many: bool) -> None:
        """Handle a request, whose steps are taken in later turns of the event loop.

        `has_many`: the request has many partitions. Such requests of different connections are handled one at a
        time. The next request begins when the current request has ended or has taken too long (`OneAtATime`).
        """
        self.steps = steps
        if has_many:
            self._turns.large_produce.ask(self)
        else:
            self.proceed()

    def cancel(self) -> None:
        """Drop the request, because the connection has ended."""
        self.steps = None
        self._turns.large_produce.end(self)

    def give_up(self, reason: str) -> None:
        """Drop the request, and close the connection."""
        self._end()
        self._close(reason)

    def resume(self) -> None:
        """Continue the current request, if it waits."""
        if self._is_waiting:
            self._is_waiting = False
            self.proceed()

    def proceed(self) -> None:
        """Ask the scheduler for a slice, if the current request has steps left to take now."""
        if self.steps is not None and not self._is_waiting:
            self._turns.requests.ask(self)

    def work(self, until: int) -> None:
        """Continue the request until it is done, waits, or the time `until` is reached."""
        now = -1
        try:
            while self.steps is not None and not self._is_waiting and now < until:
                self._is_waiting = next(self.steps)
                now = self._clock.now()
                self._purgatory.finish_tick(now)
        except StopIteration:
            self._end()
            self._done()
        except ProtocolViolation as violation:
            self.give_up(str(violation))
        else:
            self.proceed()

    def _end(self) -> None:
        self.steps = None
        self._turns.large_produce.end(self)
