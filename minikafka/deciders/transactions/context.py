"""What the transaction coordinator knows: the loaded partitions of `__transaction_state` and their transactional ids.

Invariant: a record is in the context only after its append is committed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from minikafka.base.coordinators import LoadedRecord, partition_of
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.deciders.transactions.commands import EndedTransaction
from minikafka.deciders.transactions.records import read_transaction_key, read_transaction_value
from minikafka.deciders.transactions.states import EPOCH_MAX, TransactionMetadata, TransactionState

logger = logging.getLogger(__name__)

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings of the transaction coordinator.

    `max_timeout_ms`: the longest timeout of a transaction (`transaction.max.timeout.ms`). `expiration_ms`: an unused
    transactional id is removed after this time (`transactional.id.expiration.ms`). The intervals are those of the
    search for transactions that have timed out (`transaction.abort.timed.out.transaction.cleanup.interval.ms`),
    and for expired ids (`transaction.remove.expired.transaction.cleanup.interval.ms`).
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000


class TransactionalId:
    """A transactional id, its last committed record, and what is in progress.

    `partition`: its partition of `__transaction_state`.
    """

    __slots__ = (
        "client",
        "ended",
        "fence_epoch",
        "name",
        "partition",
        "remaining",
        "stored",
        "token",
    )

    def __init__(self, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.client = ""
        """The client that added the last partitions; "" if another coordinator answered it."""
        self.stored: TransactionMetadata | None = None
        """The last committed record. None before the first one: for requests, the id does not exist."""
        self.token: int | None = None
        """Token of the append, or of the allocation of a producer id, that is in progress."""
        self.fence_epoch: int | None = None
        """The raised epoch of an abort that was tried. It fences the producer, even if its append has failed."""
        self.ended: EndedTransaction | None = None
        """What the markers contain that are being sent."""
        self.remaining: set[TopicPartition] = set()
        """The partitions that do not have the marker yet, while the transaction is ending."""

    @property
    def record(self) -> TransactionMetadata:
        """The last committed record of an id that has one."""
        assert self.stored is not None
        return self.stored

    @property
    def is_busy(self) -> bool:
        """True while a change is being written, or the markers of the transaction are: other requests must wait."""
        return self.token is not None or self.is_prepared

    @property
    def is_prepared(self) -> bool:
        """True if the end of the transaction is decided, and not complete."""
        return self.stored is not None and self.stored.state in _PREPARED

    @property
    def producer_epoch(self) -> int:
        """The epoch that a producer's request must have."""
        return self.record.producer_epoch if self.fence_epoch is None else self.fence_epoch

    def raise_fence(self) -> int:
        """Fence the producer of the open transaction with a higher epoch, and return this epoch.

        An epoch whose append has failed is used again: no producer has received it.
        """
        if self.fence_epoch is None:
            self.fence_epoch = min(self.producer_epoch + 1, EPOCH_MAX)
        return self.fence_epoch

    def store(self, metadata: TransactionMetadata) -> None:
        """Take over a record that is committed."""
        former = self.stored
        assert (
            former is None
            or former.producer_id != metadata.producer_id
            or former.producer_epoch <= metadata.producer_epoch
        ), "a fenced producer is back"
        self.stored = metadata
        if self.is_prepared:
            self.fence_epoch = None
            self.remaining = set(metadata.partitions)


class LoadingTransactions:
    """The transactional ids of one partition, while this broker reads its records in the order of the log.

    `epoch`: the partition's leader epoch in which this broker reads the records.
    """

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.ids: dict[str, TransactionMetadata] = {}
        """Transactional id → its last record so far."""

    def add(self, records: Iterable[LoadedRecord]) -> None:
        """Process the next records. Skip unreadable records with a warning."""
        for record in records:
            try:
                self._add(record)
            except ValueError as error:
                logger.warning(
                    "skipping a record of __transaction_state-%d: %s", self.partition, error
                )

    def _add(self, record: LoadedRecord) -> None:
        if record.key is None:
            raise ValueError("it has no key")
        name = read_transaction_key(record.key)
        if record.value is None:
            self.ids.pop(name, None)
        else:
            self.ids[name] = read_transaction_value(record.value)


class Context:
    """The loaded partitions of `__transaction_state`, those that are being loaded, and their transactional ids.

    `partition_count`: the number of partitions of the topic. `wall_ms` returns Unix milliseconds, for the times in
    records and the expiry of ids. `machine_ms` returns them without the time by which a user has advanced the clock,
    for the start of transactions and their timeouts.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        wall_ms: Callable[[], int],
        partition_count: int,
        machine_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.wall_ms = wall_ms
        self.machine_ms = machine_ms
        self.partition_count = partition_count
        self.now = 0
        """The time of the current event, in monotonic milliseconds."""
        self.ids: dict[str, TransactionalId] = {}
        """The transactional ids of the loaded partitions, and those whose first record is being written."""
        self.open: set[TransactionalId] = set()
        """The ids with an open transaction."""
        self.epochs: dict[int, int] = {}
        """Loaded partition → its leader epoch, which is the coordinator epoch of its markers."""
        self.loads: dict[int, LoadingTransactions] = {}
        self._of: defaultdict[int, set[TransactionalId]] = defaultdict(set)
        """Partition → its transactional ids, so that the end of a leadership need not look at all ids."""

    def refusal(self, name: str) -> ErrorCode:
        """Return the error for a request about an id that `ids` lacks; NONE if this broker is its coordinator."""
        partition = partition_of(name, self.partition_count)
        if partition in self.loads:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self.epochs else ErrorCode.NOT_COORDINATOR

    def find(self, name: str) -> tuple[TransactionalId, TransactionMetadata] | ErrorCode:
        """Return an id and its last record. Return NONE if this broker coordinates the id, which does not exist."""
        txn = self.ids.get(name)
        if txn is None:
            return self.refusal(name)
        return ErrorCode.NONE if txn.stored is None else (txn, txn.stored)

    def has(self, txn: TransactionalId) -> bool:
        """True if this broker still coordinates an id that it knew."""
        return self.ids.get(txn.name) is txn

    def create(self, name: str) -> TransactionalId:
        """Add a transactional id without a record."""
        assert name not in self.ids
        return self._add(name, partition_of(name, self.partition_count))

    def _add(self, name: str, partition: int) -> TransactionalId:
        txn = self.ids[name] = TransactionalId(name, partition)
        self._of[partition].add(txn)
        return txn

    def store(self, txn: TransactionalId, metadata: TransactionMetadata) -> None:
        """Take over the record of an id, which is committed."""
        txn.store(metadata)
        if metadata.state is TransactionState.ONGOING:
            self.open.add(txn)
        else:
            self.open.discard(txn)

    def add_all(self, load: LoadingTransactions) -> list[TransactionalId]:
        """Serve the partition of a complete load, and return its transactional ids."""
        assert load.partition not in self.epochs, "a loaded partition is not loaded again"
        del self.loads[load.partition]
        self.epochs[load.partition] = load.epoch
        added = []
        for name, metadata in load.ids.items():
            assert name not in self.ids, "the partition replaces the ids of others first"
            txn = self._add(name, load.partition)
            self.store(txn, metadata)
            added.append(txn)
        return added

    def remove(self, txn: TransactionalId) -> None:
        """Remove a transactional id."""
        self.open.discard(txn)
        self._of[txn.partition].discard(txn)
        del self.ids[txn.name]

    def remove_all(self, partition: int) -> list[TransactionalId]:
        """Remove a partition and its transactional ids, and return the ids."""
        self.loads.pop(partition, None)
        self.epochs.pop(partition, None)
        removed = sorted(self._of.pop(partition, ()), key=lambda txn: txn.name)
        for txn in removed:
            self.open.discard(txn)
            del self.ids[txn.name]
        return removed
