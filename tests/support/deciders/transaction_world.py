"""A transaction coordinator without a broker: appends are committed at once, or when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from support.deciders.coordinator_world import CoordinatorWorld

from minikafka.base.coordinators import (
    KeyValue,
    LeadershipBegun,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
)
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Answer, Outcome
from minikafka.deciders.transactions.commands import (
    AllocateProducerId,
    DescribedTransaction,
    DropMarkers,
    SendMarkers,
)
from minikafka.deciders.transactions.context import TransactionSettings
from minikafka.deciders.transactions.coordinator import TransactionCoordinator
from minikafka.deciders.transactions.events import (
    AddPartitionsRequest,
    DescribeTransactionsRequest,
    EndRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MarkersWritten,
    VerifyRequest,
)
from minikafka.deciders.transactions.records import (
    transaction_key,
    transaction_value,
)
from minikafka.deciders.transactions.states import TransactionMetadata

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


class TransactionWorld(CoordinatorWorld):
    """A coordinator and its log. `loads`: it serves its only partition from the start, in epoch 7.

    `holds`: appends and allocations wait for `finish`. The first producer id is 40.
    """

    def __init__(self, *records: KeyValue, loads: bool = True, **settings: int) -> None:
        super().__init__(now=5_000)
        self.settings = settings
        self.partition_count = 1
        self.advanced_ms = 0
        self.log: list[KeyValue] = list(records)
        self.markers: list[SendMarkers] = []
        self.dropped: list[int] = []
        self._producer_ids = count(40)
        self.start()
        if loads:
            self.load(7)

    def start(self) -> None:
        """Begin with another coordinator, which knows nothing."""
        settings = TransactionSettings(**self.settings)
        self.coordinator = TransactionCoordinator(
            settings, self.wall_ms, self.partition_count, self.machine_ms
        )

    def wall_ms(self) -> int:
        return super().wall_ms() + self.advanced_ms

    def machine_ms(self) -> int:
        """Return the wall time without the time by which the clock was advanced."""
        return self.wall_ms() - self.advanced_ms

    def load(self, epoch: int) -> None:
        """Let the coordinator load the log."""
        commands = self.coordinator.handle(LeadershipBegun(0, epoch), self.now)
        assert commands == [LoadPartition(0, epoch)]
        self.handle(RecordsRead(0, epoch, [LoadedRecord(key, value) for key, value in self.log]))
        self.handle(LoadFinished(0, epoch, 1))

    def run(self, commands: Sequence[Any]) -> None:
        """Carry out commands."""
        for command in commands:
            if isinstance(command, Answer):
                self.keep_answer(command)
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
            producer_id = ErrorCode(error) if error else next(self._producer_ids)
            self.handle(Outcome(command.token, producer_id))
            return
        if not error:
            self.log.extend(command.records)
        self.handle(Outcome(command.token, error))

    # Requests. Each returns the response, or None while the coordinator has not answered.

    def ask(self, request: type[Any], *values: Any) -> Any:
        caller = next(self.callers)
        self.handle(request(*values, caller=caller))
        return self.answers.get(caller)

    def init(
        self, name: str = "copy", producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000
    ) -> Any:
        return self.ask(InitProducerIdRequest, name, timeout_ms, *producer)

    def add(
        self, producer: tuple[int, int], *tps: TopicPartition, name: str = "copy"
    ) -> int | None:
        return one_error(self.ask(AddPartitionsRequest, name, *producer, tps or (T0,), ""))

    def verify(self, producer: tuple[int, int], *tps: TopicPartition, name: str = "copy") -> Any:
        return self.ask(VerifyRequest, name, *producer, tps or (T0,)).errors

    def end(
        self, producer: tuple[int, int], committed: bool = True, name: str = "copy"
    ) -> int | None:
        response = self.ask(EndRequest, name, *producer, committed)
        return None if response is None else response.error

    def write_markers(self, *tps: TopicPartition) -> None:
        """Report the markers of the last command as written; those of all its partitions by default."""
        command = self.markers[-1]
        self.handle(MarkersWritten(command.ended, tps or command.partitions))

    def describe(self, name: str = "copy") -> DescribedTransaction:
        (found,) = self.ask(DescribeTransactionsRequest, [name]).transactions
        return found

    def list(
        self, states: Sequence[str] = (), producer_ids: Sequence[int] = (), min_age_ms: int = -1
    ) -> Any:
        return self.ask(ListTransactionsRequest, states, producer_ids, min_age_ms)


def one_error(response: Any) -> int | None:
    """Return the error of all partitions of a response."""
    if response is None:
        return None
    (error,) = set(response.errors.values())
    return int(error)


def record(metadata: TransactionMetadata, name: str = "copy") -> KeyValue:
    """Return a record of a transactional id."""
    return transaction_key(name), transaction_value(metadata)
