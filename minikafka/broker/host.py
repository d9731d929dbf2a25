"""The host of a decider (`deciders/decider.py`): it passes events on, carries out commands, and has the timer.

A host has one table, from the type of a command to the method that carries it out. Invariant: the commands of an event
are carried out in their order. An event that a command causes at once is handled before the next command.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from minikafka.base.ports import Clock, Timer
from minikafka.deciders.decider import Answer, Decider, Outcome, TimerDue

logger = logging.getLogger(__name__)

_LATE_MS: Final = 1_000
_GRACE_MS: Final = 500
"""Extra wait (ms) after a timer that fires more than `_LATE_MS` late: pending requests are handled first."""

CommandTable: TypeAlias = Mapping[type, Callable[[Any], None]]
"""Type of a command -> the method that carries it out."""
AwaitedCommands: TypeAlias = Mapping[type, Callable[[Any], Awaitable[Any]]]
"""Type of a command -> the method that carries it out. That of a question returns the value of its outcome."""


class Alarm:
    """A timer for the earliest of several times. `wake(now)` is called when it is due, and sets it again."""

    def __init__(self, clock: Clock, wake: Callable[[int], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._timer: Timer | None = None
        self._wakes_at = 0

    def set(self, deadline: int | None) -> None:
        """Wake at this time (monotonic ms), None for never. An alarm for an earlier time is kept."""
        if deadline is None or (self._timer is not None and self._wakes_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline
        self._timer = self._clock.call_later(max(deadline - self._clock.now(), 0), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._clock.now()
        if now - self._wakes_at > _LATE_MS:
            # The process was paused. Requests that arrived meanwhile are handled before any timer: their members
            # are alive, and their producers have not timed out.
            self._wakes_at = now + _GRACE_MS
            self._timer = self._clock.call_later(_GRACE_MS, self._due)
            return
        self._wake(now)


class Host:
    """The host of one decider. `table` must have every type of command that the decider returns."""

    def __init__(self, decider: Decider, table: CommandTable, clock: Clock) -> None:
        self._decider = decider
        self._table = table
        self._clock = clock
        self._alarm = Alarm(clock, self._wake)

    def handle(self, event: Any) -> None:
        """Pass an event to the decider, carry out its commands in their order, and set the timer."""
        for command in self._decider.handle(event, self._clock.now()):
            self._table[type(command)](command)
        self._alarm.set(self._decider.next_deadline())

    def _wake(self, now: int) -> None:
        deadline = self._decider.next_deadline()
        if deadline is not None and deadline <= now:
            self.handle(TimerDue())
        else:
            self._alarm.set(deadline)


def send_answer(answer: Answer) -> None:
    """Send a response. If that fails, only log the error, so that the next responses are still sent."""
    respond: Any = answer.caller
    try:
        respond(answer.response)
    except Exception:
        logger.exception("a response could not be sent")


class AwaitingHost:
    """The host of a decider whose commands take time: each one is awaited before the next is carried out.

    `decide(event)` passes an event to the decider and returns its commands. `check()` is called after each command: it
    raises when the decider may no longer act. A command with a token is a question: what its method returns is passed
    to the decider as the outcome, before any other event.
    """

    def __init__(
        self,
        decide: Callable[[Any], Sequence[Any]],
        table: AwaitedCommands,
        check: Callable[[], None],
    ) -> None:
        self._decide = decide
        self._table = table
        self._check = check
        self._is_handling = False

    async def handle(self, event: Any) -> None:
        """Pass an event to the decider, and carry out its commands up to the last outcome."""
        assert not self._is_handling, "an event must not overtake the commands of another one"
        self._is_handling = True
        try:
            await self._handle(event)
        finally:
            self._is_handling = False

    async def _handle(self, event: Any) -> None:
        commands = self._decide(event)
        while commands:
            outcome = None
            for command in commands:
                assert outcome is None, "a question must be the last command"
                value = await self._table[type(command)](command)
                # Without this, a controller that was replaced during the command would send the next one.
                self._check()
                if (token := getattr(command, "token", None)) is not None:
                    outcome = Outcome(token, value)
            commands = self._decide(outcome) if outcome is not None else ()
