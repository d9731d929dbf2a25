"""The interface between a coordinator's pure core and its host in the broker (`broker/coordinators/host.py`).

A coordinator keeps its state in the records of an internal topic, and each partition of the topic has one part of
the state. The host calls the core's methods and carries out the commands that they return, in order. `now` is
monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

Caller: TypeAlias = Hashable
"""The function with which the host answers a request. The core only puts it into an `Answer`."""
KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record that a core appends. The value None is a tombstone."""
NO_TRANSACTION: Final = -1


class Answer(NamedTuple):
    """Send a response to a caller. Every caller gets exactly one response."""

    caller: Caller
    response: Any


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction a core appends records.

    `guard`: the guard of the partition's verification, 0 if the transaction is open in the partition's log.
    """

    producer_id: int
    producer_epoch: int
    guard: int = 0


class Append(NamedTuple):
    """Append records to a partition of the internal topic with acks=all.

    After the append, the host calls `Core.appended(token, error, now)` exactly once, even if the partition has
    been unloaded. The error is 0 on success. Each token is greater than the earlier tokens. The records of a
    partition are appended in the order of their tokens. `producer`: append the records in this producer's transaction.
    """

    partition: int
    records: Sequence[KeyValue]
    token: int
    producer: TransactionalProducer | None = None


class LoadedRecord(NamedTuple):
    """A record of the internal topic, as the core's host reads it after an election."""

    key: bytes | None
    value: bytes | None
    producer_id: int = NO_TRANSACTION
    """The producer in whose transaction the record was written.

    The host reports the end of the transaction with `Core.transaction_ended`.
    """


class Core(Protocol):
    """The logic of a coordinator, for the partitions that its broker leads. The methods return commands.

    A command is an `Answer`, an `Append`, or an object of another type. The creator of the host gives it a function
    that carries out such objects.
    """

    partition_count: int
    """The number of partitions of the internal topic. The host sets the number before each call of `loaded`."""

    def begin_load(self, partition: int, epoch: int) -> bool:
        """Begin to load a partition that this broker leads in this epoch. Return False if it is loaded already."""

    def load(self, partition: int, epoch: int, records: Iterable[LoadedRecord]) -> None:
        """Process the next records of the partition, in the order of the log."""

    def loaded(self, partition: int, epoch: int, now: int) -> Iterable[Any]:
        """Start to serve the partition: every record that an earlier leader acknowledged was loaded."""

    def transaction_ended(self, partition: int, producer_id: int, committed: bool) -> Iterable[Any]:
        """Process the end of a producer's transaction, at its marker in the log: during a load, or committed later."""

    def unload(self, partition: int) -> Iterable[Any]:
        """Drop the state of a partition that this broker no longer leads."""

    def appended(self, token: int, error: int, now: int) -> Iterable[Any]:
        """Process the result of the `Append` with this token."""

    def next_deadline(self) -> int | None:
        """Return the time at which to call `handle_timer`, None for never."""

    def handle_timer(self, now: int) -> Iterable[Any]:
        """Process the timers that are due."""


def partition_of(key: str, count: int) -> int:
    """Return the partition of an internal topic for a group or another key, out of `count` partitions.

    As in Kafka, the number is the hash of the Java String, modulo `count`.
    """
    data = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = (0x100000000 - code) & 0x7FFFFFFF  # as Kafka's Utils.abs, 0 for the smallest int
    return code % count
