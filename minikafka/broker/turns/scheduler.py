"""The scheduler of a broker: which work is done next in the event loop, how much of it, and when a tick ends.

Work that takes long is divided into *slices*, and a job asks for one slice at a time. A *turn* is one callback of the
event loop that serves every class of jobs once. Between two turns the event loop reads the sockets, so produce,
fetch and the control plane wait for at most one turn. What is fair: each class has a budget of its own in every
turn, so no class waits for another one, and within a class no job waits for the second slice of another job.

| class | jobs | budget in one turn | order |
|---|---|---|---|
| `checks` | the checks of produced records (`record_walks.py`) | 2 ms | a step of each check in rotation |
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

from collections.abc import Callable

from minikafka.base.ports import Clock
from minikafka.broker.turns.fair_queue import FairQueue, OneAtATime
from minikafka.broker.turns.rotation import Pauses, Rotation, Slices


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
