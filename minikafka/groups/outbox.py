"""The commands that the coordinator's current call will return, and the appends that have not completed yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from minikafka.base.coordinators import Answer, Append, Caller, KeyValue, TransactionalProducer
from minikafka.groups.messages.commands import Command, Note
from minikafka.groups.messages.responses import Response
from minikafka.groups.state.group import Group

OnAppended: TypeAlias = Callable[[int, int], None]
"""A callback for the result of an append: the error code (0 on success) and the time (monotonic ms)."""


class Outbox:
    """The commands of the coordinator's current call, and the callbacks of appends that have not completed yet."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._appends: dict[int, OnAppended] = {}
        self._last_token = 0

    def take(self) -> list[Command]:
        """Return the commands collected since the last `take`."""
        commands, self._commands = self._commands, []
        return commands

    def answer(self, caller: Caller, response: Response) -> None:
        """Add a command to send a response."""
        self._commands.append(Answer(caller, response))

    def note(self, kind: str, group: Group, **fields: Any) -> None:
        """Add a `Note`, the command that records a fact about a group in the ledger."""
        self._commands.append(Note(kind, group.group_id, group.generation, fields))

    def new_token(self) -> int:
        """Return the token of the next append."""
        self._last_token += 1
        return self._last_token

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        on_appended: OnAppended,
        token: int | None = None,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Add a command to append records. `on_appended` is called once with the result."""
        if token is None:
            token = self.new_token()
        self._appends[token] = on_appended
        self._commands.append(Append(partition, records, token, producer))

    def appended(self, token: int, error: int, now: int) -> None:
        """Call the callback of an append with the result. Raises KeyError if it was already called."""
        self._appends.pop(token)(error, now)
