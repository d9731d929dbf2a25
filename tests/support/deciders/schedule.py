"""A random schedule in virtual time for coordinators that are deciders. One seed always gives the same schedule."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from minikafka.deciders.decider import TimerDue


class Timed(Protocol):
    """A host of a coordinator, to which the schedule reports the end of timers."""

    coordinator: Any
    alarm: int | None


Host = TypeVar("Host", bound=Timed)


class Schedule(Generic[Host]):
    """The calls that are due, in the order of their times. A subclass adds hosts, clients, faults and invariants."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000
        self.callers = count()
        self.answers = 0
        """Number of requests that were answered."""
        self.is_over = False
        """True after the last fault: what was begun is completed, and nothing new begins."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def step_until(self, end: int) -> None:
        """Carry out all calls that are due until `end`, and those that they cause."""
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def later(self, ms: int, call: Callable[..., None], *values: Any) -> None:
        at = self.now + ms
        heapq.heappush(self._events, (at, next(self._order), lambda: call(*values)))

    def travel(self, call: Callable[..., None], *values: Any) -> None:
        """Make a call after the time that a request or response is on its way."""
        self.later(self.rng.choice((0, 1, 3, 50)), call, *values)

    def handle(self, host: Host, event: Any) -> None:
        """Pass an event to a coordinator, and carry out its commands."""
        raise NotImplementedError

    def is_alive(self, host: Host) -> bool:
        """True if the host still gets the end of its timers."""
        return True

    def set_alarm(self, host: Host) -> None:
        """Wake the coordinator at its next deadline."""
        due = host.coordinator.next_deadline()
        if due is not None and (host.alarm is None or due < host.alarm):
            host.alarm = due
            self.later(max(due - self.now, 0), self._ring, host, due)

    def _ring(self, host: Host, at: int) -> None:
        if not self.is_alive(host) or host.alarm != at:
            return
        host.alarm = None
        due = host.coordinator.next_deadline()
        if due is not None and due <= self.now:
            self.handle(host, TimerDue())
        self.set_alarm(host)
