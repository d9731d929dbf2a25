"""The commands that the coordinator's current call will return, and the changes that wait for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from minikafka.base.coordinators import Answer, Append, Caller
from minikafka.base.errors import ErrorCode
from minikafka.transactions.messages.append_errors import client_error
from minikafka.transactions.messages.commands import AllocateProducerId, Command
from minikafka.transactions.messages.requests import NO_PRODUCER_ID
from minikafka.transactions.messages.responses import Response
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.state.picture import Picture
from minikafka.transactions.state.records import transaction_key, transaction_value
from minikafka.transactions.state.transactional_id import TransactionalId

OnWritten: TypeAlias = Callable[[int, int], None]
"""A callback for the result of a write: the error code for clients (0 on success) and the time (monotonic ms)."""
OnAllocated: TypeAlias = Callable[[int, int], None]
"""A callback for a new producer id: the error code (0 on success) and the id."""


class _Write(NamedTuple):
    """A record that is being appended. `metadata` is None for a tombstone."""

    txn: TransactionalId
    metadata: Metadata | None
    on_written: OnWritten


class _Allocation(NamedTuple):
    """A producer id that is being allocated."""

    txn: TransactionalId
    on_allocated: OnAllocated


class Outbox:
    """The commands of the coordinator's current call, and the writes and allocations that are not finished.

    An id has at most one of them in progress (`TransactionalId.token`). A committed record is taken over into the
    picture before the callback.
    """

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._commands: list[Command] = []
        self._writes: dict[int, _Write] = {}
        self._allocations: dict[int, _Allocation] = {}
        self._last_token = 0

    def take(self) -> list[Command]:
        """Return the commands collected since the last `take`."""
        commands, self._commands = self._commands, []
        return commands

    def add(self, command: Command) -> None:
        """Add a command."""
        self._commands.append(command)

    def answer(self, caller: Caller, response: Response) -> None:
        """Add a command to send a response."""
        self._commands.append(Answer(caller, response))

    def write(self, txn: TransactionalId, metadata: Metadata | None, on_written: OnWritten) -> None:
        """Append the next record of an id, or a tombstone. `on_written` is called once with the result."""
        value = None if metadata is None else transaction_value(metadata)
        token = self._begin(txn)
        self._writes[token] = _Write(txn, metadata, on_written)
        self.add(Append(txn.partition, [(transaction_key(txn.name), value)], token))

    def allocate(self, txn: TransactionalId, on_allocated: OnAllocated) -> None:
        """Allocate a producer id for a transactional id. `on_allocated` is called once with the result."""
        token = self._begin(txn)
        self._allocations[token] = _Allocation(txn, on_allocated)
        self.add(AllocateProducerId(token))

    def _begin(self, txn: TransactionalId) -> int:
        assert txn.token is None
        self._last_token += 1
        txn.token = self._last_token
        return self._last_token

    def appended(self, token: int, error: int, now: int) -> None:
        """Process the result of an append. No effect if the partition has been unloaded since."""
        write = self._writes.pop(token, None)
        if write is None:
            return
        write.txn.token = None
        if not error:
            if write.metadata is None:
                self._picture.remove(write.txn)
            else:
                self._picture.store(write.txn, write.metadata)
        write.on_written(client_error(error), now)

    def allocated(self, token: int, producer_id: int, error: int) -> None:
        """Process the result of an allocation. No effect if the partition has been unloaded since."""
        allocation = self._allocations.pop(token, None)
        if allocation is not None:
            allocation.txn.token = None
            allocation.on_allocated(error, producer_id)

    def drop(self, txn: TransactionalId) -> None:
        """End the write or the allocation of an id that this broker no longer coordinates."""
        if txn.token is None:
            return
        write = self._writes.pop(txn.token, None)
        allocation = self._allocations.pop(txn.token, None)
        if write is not None:
            write.on_written(ErrorCode.NOT_COORDINATOR, 0)
        elif allocation is not None:
            allocation.on_allocated(ErrorCode.NOT_COORDINATOR, NO_PRODUCER_ID)
