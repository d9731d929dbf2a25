"""A transaction coordinator without a broker: appends are committed at once, or when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from minikafka.base.coordinators import Answer, Append, KeyValue, LoadedRecord
from minikafka.base.model import TopicPartition
from minikafka.transactions.coordinator import TransactionCoordinator
from minikafka.transactions.messages.commands import (
    AllocateProducerId,
    DropMarkers,
    SendMarkers,
)
from minikafka.transactions.messages.requests import (
    AddPartitionsRequest,
    DescribeRequest,
    EndRequest,
    InitProducerIdRequest,
    ListRequest,
    VerifyRequest,
)
from minikafka.transactions.messages.responses import DescribedTransaction
from minikafka.transactions.settings import TransactionSettings
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.state.records import (
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
WALL_MS = 1_700_000_000_000


class TransactionWorld:
    """A coordinator and its log. `loads`: it serves its only partition from the start, in epoch 7.

    `holds`: appends and allocations wait for `finish`. The first producer id is 40.
    """

    def __init__(self, *records: KeyValue, loads: bool = True, **settings: int) -> None:
        self.now = 5_000
        self.settings = TransactionSettings(**settings)
        self.core = TransactionCoordinator(self.settings, self.wall_ms, 1)
        self.log: list[KeyValue] = list(records)
        self.holds = False
        self.held: list[Append | AllocateProducerId] = []
        self.answers: dict[int, Any] = {}
        self.markers: list[SendMarkers] = []
        self.dropped: list[int] = []
        self._callers = count()
        self._producer_ids = count(40)
        if loads:
            self.load(7)

    def wall_ms(self) -> int:
        return WALL_MS + self.now

    def load(self, epoch: int) -> None:
        """Let the coordinator load the log."""
        assert self.core.begin_load(0, epoch)
        self.core.load(0, epoch, [LoadedRecord(key, value) for key, value in self.log])
        self.run(self.core.loaded(0, epoch, self.now))

    def run(self, commands: Sequence[Any]) -> None:
        """Carry out commands."""
        for command in commands:
            if isinstance(command, Answer):
                assert command.caller not in self.answers, "answered twice"
                self.answers[command.caller] = command.response  # type: ignore[index]
            elif isinstance(command, SendMarkers):
                self.markers.append(command)
            elif isinstance(command, DropMarkers):
                self.dropped.append(command.partition)
            else:
                self.held.append(command)
                if not self.holds:
                    self.finish()

    def finish(self, error: int = 0) -> None:
        """Finish the oldest append or allocation that waits."""
        command = self.held.pop(0)
        if isinstance(command, AllocateProducerId):
            producer_id = -1 if error else next(self._producer_ids)
            self.run(self.core.allocated(command.token, producer_id, error, self.now))
            return
        if not error:
            self.log.extend(command.records)
        self.run(self.core.appended(command.token, error, self.now))

    def pass_time(self, ms: int) -> None:
        """Let time pass, and call the coordinator at its deadlines."""
        end = self.now + ms
        while (due := self.core.next_deadline()) is not None and due <= end:
            self.now = max(due, self.now)
            self.run(self.core.handle_timer(self.now))
        self.now = end

    # Requests. Each returns the response, or None while the coordinator has not answered.

    def ask(self, method: str, request: Any, *more: Any) -> Any:
        caller = next(self._callers)
        self.run(getattr(self.core, method)(request, caller, *more))
        return self.answers.get(caller)

    def init(
        self, name: str = "copy", producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000
    ) -> Any:
        request = InitProducerIdRequest(name, timeout_ms, *producer)
        return self.ask("init_producer_id", request, self.now)

    def add(
        self, producer: tuple[int, int], *tps: TopicPartition, name: str = "copy"
    ) -> int | None:
        request = AddPartitionsRequest(name, *producer, tps or (T0,))
        return one_error(self.ask("add_partitions", request, self.now))

    def verify(self, producer: tuple[int, int], *tps: TopicPartition, name: str = "copy") -> Any:
        return self.ask("verify", VerifyRequest(name, *producer, tps or (T0,))).errors

    def end(
        self, producer: tuple[int, int], committed: bool = True, name: str = "copy"
    ) -> int | None:
        response = self.ask("end", EndRequest(name, *producer, committed), self.now)
        return None if response is None else response.error

    def write_markers(self, *tps: TopicPartition) -> None:
        """Report the markers of the last command as written; those of all its partitions by default."""
        command = self.markers[-1]
        self.run(self.core.markers_written(command.ended, tps or command.partitions, self.now))

    def describe(self, name: str = "copy") -> DescribedTransaction:
        response = self.ask("describe", DescribeRequest([name]), self.now)
        (found,) = response.transactions
        return found

    def list(self, *values: Any) -> Any:
        return self.ask("list_transactions", ListRequest(*values), self.now)

    def last_record(self, name: str = "copy") -> Metadata | None:
        """Return the last record of an id in the log, None for a tombstone."""
        for key, value in reversed(self.log):
            if read_transaction_key(key) == name:
                return None if value is None else read_transaction_value(value)
        raise LookupError(name)


def one_error(response: Any) -> int | None:
    """Return the error of all partitions of a response."""
    if response is None:
        return None
    (error,) = set(response.errors.values())
    return int(error)


def record(metadata: Metadata, name: str = "copy") -> KeyValue:
    """Return a record of a transactional id."""
    return transaction_key(name), transaction_value(metadata)
