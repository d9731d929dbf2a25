"""What the two coordinators share: the events and commands of an internal topic, and the errors of its appends.

A coordinator is a decider (`deciders/decider.py`) that keeps its state in the records of an internal topic. Each
partition of the topic has one part of the state, and the leader of the partition coordinates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import ErrorCode

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record that a coordinator appends. The value None is a tombstone."""
NO_TRANSACTION: Final = -1

# ---- events


class LoadedRecord(NamedTuple):
    """A record of the internal topic, as a new coordinator reads it."""

    key: bytes | None
    value: bytes | None
    producer_id: int = NO_TRANSACTION
    """The producer in whose transaction the record was written. A `TransactionEnded` reports the transaction's end."""


class LeadershipBegun(NamedTuple):
    """This broker leads a partition of the topic in this leader epoch.

    The coordinator returns the command `LoadPartition`, unless it has loaded the partition in an earlier epoch.
    """

    partition: int
    epoch: int


class RecordsRead(NamedTuple):
    """The next records of a partition that is being loaded, in the order of the log."""

    partition: int
    epoch: int
    records: Iterable[LoadedRecord]


class LoadFinished(NamedTuple):
    """Every record that an earlier leader acknowledged was read: from now on, the coordinator serves the partition."""

    partition: int
    epoch: int
    partition_count: int
    """The number of partitions of the topic."""


class TransactionEnded(NamedTuple):
    """The marker of a transaction was read during a load, or this broker has appended it and it is committed."""

    partition: int
    producer_id: int
    committed: bool


class LeadershipEnded(NamedTuple):
    """This broker no longer leads a partition. The coordinator drops it, and answers NOT_COORDINATOR."""

    partition: int


TopicEvent: TypeAlias = (
    LeadershipBegun | RecordsRead | LoadFinished | TransactionEnded | LeadershipEnded
)

# ---- commands


class LoadPartition(NamedTuple):
    """Read a partition from its beginning: pass on its records, and then `LoadFinished`.

    A load of an earlier epoch ends.
    """

    partition: int
    epoch: int


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction a coordinator appends records.

    `guard`: the guard of the partition's verification, 0 if the transaction is open in the partition's log.
    """

    producer_id: int
    producer_epoch: int
    guard: int = 0


class Append(NamedTuple):
    """A question: append records to a partition of the topic with acks=all.

    The value of its outcome is the error code, 0 if the records are committed. Every append has exactly one outcome,
    also if the leadership has ended. The records of a partition are appended in the order of their tokens. After
    REQUEST_TIMED_OUT, they may still be committed. `producer`: append the records in this producer's transaction.
    """

    partition: int
    records: Sequence[KeyValue]
    token: int
    producer: TransactionalProducer | None = None


# ---- the errors of appends, as in Kafka's GroupMetadataManager and TransactionStateManager

_ALL: Final[Mapping[int, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
TRANSACTION_ERRORS: Final[Mapping[int, ErrorCode]] = {
    **_ALL,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The record of a transactional id: error of the append -> error for the client. Other errors stay as they are."""
ASSIGNMENT_ERRORS: Final[Mapping[int, ErrorCode]] = {
    **_ALL,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The record of a group: its members' assignments, or the new id of a static member."""
OFFSET_ERRORS: Final[Mapping[int, ErrorCode]] = {
    **_ALL,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Committed or removed offsets; also the errors of the verification of a transaction."""
MAY_BE_APPENDED: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the records may be in the log, and may be committed later."""


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
