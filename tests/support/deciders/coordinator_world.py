"""A group or transaction coordinator without a broker: its callers, its appends, and its timers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from minikafka.deciders.decider import Answer, TimerDue

START_WALL_MS = 1_700_000_000_000


class CoordinatorWorld:
    """A coordinator whose time a test passes. Every call checks that a caller is answered at most once."""

    coordinator: Any
    """The decider, which a subclass makes."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.callers = count(1)
        self.answers: dict[Any, Any] = {}
        """The response to each caller that was answered."""
        self.holds = False
        self.held: list[Any] = []
        """Appends whose outcome is not reported yet. They wait while `holds` is True."""

    def wall_ms(self) -> int:
        return START_WALL_MS + self.now

    def handle(self, event: Any) -> None:
        """Pass an event to the coordinator, and carry out its commands."""
        self.run(self.coordinator.handle(event, self.now))

    def run(self, commands: Sequence[Any]) -> None:
        """Carry out commands, and those that their outcomes cause."""
        raise NotImplementedError

    def keep_answer(self, answer: Answer) -> None:
        assert answer.caller not in self.answers, f"answered twice: {answer}"
        self.answers[answer.caller] = answer.response

    def advance(self, ms: int) -> None:
        """Advance the time by `ms`, and wake the coordinator at its deadlines."""
        end = self.now + ms
        while (due := self.coordinator.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.wake()
        self.now = end

    def wake(self) -> None:
        self.handle(TimerDue())
