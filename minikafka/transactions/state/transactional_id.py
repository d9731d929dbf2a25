"""A transactional id in the memory of its coordinator."""

from __future__ import annotations

from minikafka.base.model import TopicPartition
from minikafka.transactions.messages.commands import EndedTransaction
from minikafka.transactions.state.metadata import EPOCH_MAX, Metadata
from minikafka.transactions.states import TransactionState

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


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
        self.stored: Metadata | None = None
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
        assert self.stored is not None
        return self.stored.producer_epoch if self.fence_epoch is None else self.fence_epoch

    def raise_fence(self) -> int:
        """Fence the producer of the open transaction with a higher epoch, and return this epoch.

        An epoch whose append has failed is used again: no producer has received it.
        """
        if self.fence_epoch is None:
            self.fence_epoch = min(self.producer_epoch + 1, EPOCH_MAX)
        return self.fence_epoch

    def store(self, metadata: Metadata) -> None:
        """Take over a record that is committed."""
        self.stored = metadata
        if self.is_prepared:
            self.fence_epoch = None
            self.remaining = set(metadata.partitions)
