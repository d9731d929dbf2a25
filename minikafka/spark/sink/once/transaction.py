"""One transaction of the driver: rows of any partitions and a marker, which is the offset of a group.

Invariant: a `SinkTransaction` exists only after the coordinator has ended every earlier transaction of the same id, and
after the leaders refuse the earlier epochs of the producer. So the marker that it reads is final.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.names import parse_json
from minikafka.spark.records.encode import Producer
from minikafka.spark.sink.options import ID_PREFIX, TRANSACTION_TIMEOUT
from minikafka.spark.wire import producing, transactions
from minikafka.spark.wire.coordinators import Answered, Coordinator
from minikafka.spark.wire.leaders import LeaderConnections, Unreachable

Answer = TypeVar("Answer", bound=Answered)

MARKER: Final = TopicPartition("__consumer_offsets", 0)
"""The partition whose offset in the group is the marker. It exists wherever groups have offsets."""
FENCED: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
"""Errors that say that the id has a newer epoch: another process uses it, or the transaction timed out."""
_ENDED: Final = (
    *FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.TRANSACTION_ABORTABLE,
)
_ABANDON_S: Final = 5.0
_NEEDED: Final = (
    transactions.ADD_PARTITIONS,
    transactions.ADD_OFFSETS,
    transactions.END,
    transactions.TXN_OFFSET_COMMIT,
    transactions.OFFSET_FETCH,
)


class TransactionLost(MinikafkaError):
    """The transaction cannot be continued. Whether it was committed, the marker says."""

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(str(cause))
        self.is_fenced = cause.code in FENCED


@dataclass(frozen=True)
class CommittedBatch:
    """The last micro-batch that was committed, with the write that committed it."""

    batch: int
    query: str | None
    run: str | None
    """The run of the query, which Spark begins when the query starts."""
    write: str
    """A name that each write of a table or micro-batch makes up."""
    content: str | None = None
    """What the micro-batch contained (`Staged`); None in a marker of a version that recorded only the number."""
    rows: int = 0
    """The number of rows that the run has committed, with this micro-batch."""
    topic: str | None = None
    """The option `topic` of the write; None if a column named the topics, and in a marker of an older version."""


class SinkTransaction:
    """An open transaction of a transactional id, and of the group with the same name.

    All methods raise `TransactionLost`, `KafkaError` and `Unreachable`.
    """

    def __init__(
        self, leaders: LeaderConnections, name: str, timeout_ms: int, patience_s: float
    ) -> None:
        """Raise the epoch of the id. A transaction that an earlier epoch has left open is aborted or completed."""
        self._leaders = leaders
        self._name = name
        self._group = Coordinator(leaders, transactions.OF_GROUPS, name, patience_s)
        self._coordinator = Coordinator(leaders, transactions.OF_TRANSACTIONS, name, patience_s)
        body = producing.init_producer_request(name, timeout_ms)
        try:
            found = self._coordinator.call(
                producing.INIT_PRODUCER_ID, body, producing.parse_init_producer
            )
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigError(
                    f"option {TRANSACTION_TIMEOUT} must be at most transaction.max.timeout.ms of the brokers,"
                    f" not {timeout_ms}"
                ) from error
            raise
        self.producer = Producer(found.id, found.epoch)
        self._identity = transactions.Identity(name, found.id, found.epoch)
        self.is_first = found.epoch == 0
        """True if the coordinator did not know the id before."""

    def marker(self) -> CommittedBatch | None:
        """Return the marker that the last committed transaction has written; None if there is none."""
        return read_marker(self._group, self._name)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions a part of the transaction. Must be done before batches are sent to them."""
        body = transactions.add_partitions_request(self._identity, partitions)
        self._call(transactions.ADD_PARTITIONS, body, transactions.parse_add_partitions)

    def mark(self, marker: CommittedBatch) -> None:
        """Make the marker a part of the transaction."""
        body = transactions.add_offsets_request(self._identity, self._name)
        self._call(transactions.ADD_OFFSETS, body, transactions.parse_add_offsets)
        facts = asdict(marker)
        body = transactions.txn_offset_commit_request(
            self._identity, self._name, MARKER, facts.pop("batch"), json.dumps(facts)
        )
        with as_lost():
            self._group.call(
                transactions.TXN_OFFSET_COMMIT, body, transactions.parse_txn_offset_commit
            )

    def commit(self) -> None:
        """Commit the transaction. After any error, the outcome is unknown."""
        body = transactions.end_request(self._identity, commit=True)
        self._call(transactions.END, body, transactions.parse_end)

    def abandon(self) -> None:
        """Abort the transaction if the coordinator answers soon. Otherwise the transaction ends at its timeout."""
        brief = Coordinator(self._leaders, transactions.OF_TRANSACTIONS, self._name, _ABANDON_S)
        try:
            body = transactions.end_request(self._identity, commit=False)
            brief.call(transactions.END, body, transactions.parse_end)
        except (KafkaError, Unreachable):
            return

    def _call(
        self, api: tuple[int, int], body: bytes, parse: Callable[[memoryview], Answer]
    ) -> Answer:
        with as_lost():
            return self._coordinator.call(api, body, parse)


def read_marker(group: Coordinator, name: str) -> CommittedBatch | None:
    """Return the marker of a transactional id; None if there is none. Raises `ConfigError` for any other offset."""
    body = transactions.offset_fetch_request(name, MARKER)
    found = group.call(transactions.OFFSET_FETCH, body, transactions.parse_offset_fetch)
    if found.offset < 0:
        return None
    try:
        return CommittedBatch(batch=found.offset, **parse_json(found.metadata.encode()))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"group {name} has an offset of {MARKER} that this sink did not write: set another {ID_PREFIX}"
        ) from error


@contextmanager
def as_lost() -> Iterator[None]:
    """Raise `TransactionLost` in place of an error that says that the transaction has ended."""
    try:
        yield
    except KafkaError as error:
        if error.code in _ENDED:
            raise TransactionLost(error) from error
        raise


def are_served(leaders: LeaderConnections) -> bool:
    """True if the brokers serve the requests of transactions. Raises `Unreachable`."""
    served = leaders.call_any(transactions.API_VERSIONS, b"", transactions.parse_api_versions)
    return all(served.get(key, -1) >= version for key, version in _NEEDED)
