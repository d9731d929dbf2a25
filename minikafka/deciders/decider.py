"""The shape that all deciders share: events come in, commands go out, and procedures ask questions in between.

A decider is a pure state machine: the controller, the leaders mode, the group coordinator and the transaction
coordinator. Its host (`broker/host.py`) passes it events and carries out the commands that it returns, in order.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

Caller: TypeAlias = Hashable
"""The function with which the host answers a request. A decider only puts it into an `Answer`."""
Result = TypeVar("Result")
Procedure: TypeAlias = Generator[Any, Any, Result]
"""A generator that yields questions, and gets the value of each one's outcome. `Result`: what it returns."""


class Answer(NamedTuple):
    """A command: send a response to a caller. Every caller gets exactly one response."""

    caller: Caller
    response: Any


class Outcome(NamedTuple):
    """An event: the outcome of the question with this token. The type of `value` depends on the question."""

    token: int
    value: Any


class TimerDue(NamedTuple):
    """An event: the time of the decider's `next_deadline` has come."""


class ClockAdvanced(NamedTuple):
    """An event: a user has advanced the wall clock, so that what has expired goes now."""


class Wait(NamedTuple):
    """A question that the decider itself answers later, with `Procedures.resume`. It is no command."""

    token: int


class Decider(Protocol):
    """A pure state machine. `now` is monotonic milliseconds."""

    def handle(self, event: Any, now: int) -> Sequence[Any]:
        """Process an event, and return the commands for the host, in the order in which to carry them out."""

    def next_deadline(self) -> int | None:
        """Return the time at which the decider needs a `TimerDue`; None for never."""


class Procedures:
    """The suspended procedures of a decider, and the commands that the current event has caused so far.

    A procedure asks with `value = yield question`. The question has a `token` of `new_token`, and is a command of the
    host. The procedure continues when the decider passes the `Outcome` with this token to `resume`. Between the two,
    the decider handles other events: what a procedure knew before a question may have changed after it.
    """

    def __init__(self) -> None:
        self._commands: list[Any] = []
        self._suspended: dict[int, Procedure[Any]] = {}
        self._last_token = 0

    @property
    def are_suspended(self) -> bool:
        """True while at least one procedure waits for an outcome."""
        return bool(self._suspended)

    def take(self) -> list[Any]:
        """Return the commands since the last `take`."""
        commands, self._commands = self._commands, []
        return commands

    def emit(self, command: Any) -> None:
        """Add a command."""
        self._commands.append(command)

    def answer(self, caller: Caller, response: Any) -> None:
        """Add the command to answer a caller."""
        self._commands.append(Answer(caller, response))

    def new_token(self) -> int:
        """Return the token of a new question. It is greater than all earlier tokens."""
        self._last_token += 1
        return self._last_token

    def start(self, procedure: Procedure[Any]) -> None:
        """Run a procedure up to its first question, or to its end."""
        self._continue(procedure, None)

    def resume(self, outcome: Outcome) -> None:
        """Continue the procedure that has asked. No effect if it has continued before: then the outcome is late."""
        assert 0 < outcome.token <= self._last_token, "nobody has asked this question"
        procedure = self._suspended.pop(outcome.token, None)
        if procedure is not None:
            self._continue(procedure, outcome.value)

    def _continue(self, procedure: Procedure[Any], value: Any) -> None:
        try:
            question = procedure.send(value)
        except StopIteration:
            return
        assert question.token not in self._suspended, "two questions have the same token"
        self._suspended[question.token] = procedure
        if not isinstance(question, Wait):
            self._commands.append(question)

    def run_all(self, procedures: Iterable[Procedure[None]]) -> Procedure[None]:
        """Run procedures side by side; go on when all of them have ended."""
        all_ended = Wait(self.new_token())
        running = 0

        def counted(procedure: Procedure[None]) -> Procedure[None]:
            nonlocal running
            running += 1
            yield from procedure
            running -= 1
            if not running:
                # Nobody has asked yet if all procedures so far have ended without a question: then it has no effect.
                self.resume(Outcome(all_ended.token, None))

        for procedure in procedures:
            self.start(counted(procedure))
        if running:
            yield all_ended
