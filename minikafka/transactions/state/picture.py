"""The transactional ids that this broker coordinates, and the partitions of `__transaction_state` that have them.

Invariant: a record is in the picture only after its append is committed.
"""

from __future__ import annotations

from collections import defaultdict

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode
from minikafka.transactions.state.loading import Load
from minikafka.transactions.state.metadata import Metadata
from minikafka.transactions.state.transactional_id import TransactionalId
from minikafka.transactions.states import TransactionState


class Picture:
    """The loaded partitions of `__transaction_state`, those that are being loaded, and their transactional ids.

    `partition_count`: the number of partitions of the topic.
    """

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count
        self.ids: dict[str, TransactionalId] = {}
        """The transactional ids of the loaded partitions, and those whose first record is being written."""
        self.open: set[TransactionalId] = set()
        """The ids with an open transaction."""
        self.epochs: dict[int, int] = {}
        """Loaded partition → its leader epoch, which is the coordinator epoch of its markers."""
        self.loads: dict[int, Load] = {}
        self._of: defaultdict[int, set[TransactionalId]] = defaultdict(set)
        """Partition → its transactional ids, so that the end of a leadership need not look at all ids."""

    def refusal(self, name: str) -> ErrorCode:
        """Return the error for a request about an id that `ids` lacks; NONE if this broker is its coordinator."""
        partition = partition_of(name, self.partition_count)
        if partition in self.loads:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self.epochs else ErrorCode.NOT_COORDINATOR

    def find(self, name: str) -> tuple[TransactionalId, Metadata] | ErrorCode:
        """Return an id and its last record. Return NONE if this broker coordinates the id, which does not exist."""
        txn = self.ids.get(name)
        if txn is None:
            return self.refusal(name)
        return ErrorCode.NONE if txn.stored is None else (txn, txn.stored)

    def create(self, name: str) -> TransactionalId:
        """Add a transactional id without a record."""
        return self._add(name, partition_of(name, self.partition_count))

    def _add(self, name: str, partition: int) -> TransactionalId:
        txn = self.ids[name] = TransactionalId(name, partition)
        self._of[partition].add(txn)
        return txn

    def store(self, txn: TransactionalId, metadata: Metadata) -> None:
        """Take over the record of an id, which is committed."""
        txn.store(metadata)
        if metadata.state is TransactionState.ONGOING:
            self.open.add(txn)
        else:
            self.open.discard(txn)

    def add_all(self, load: Load) -> list[TransactionalId]:
        """Serve the partition of a complete load, and return its transactional ids."""
        del self.loads[load.partition]
        self.epochs[load.partition] = load.epoch
        added = []
        for name, metadata in load.ids.items():
            if name in self.ids:  # the number of partitions was changed, so two of them have the id
                self.remove(self.ids[name])
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
