"""The end of a transaction: the decision, its markers, and the record that completes it.

Invariants: markers are sent only after their decision is committed. A transaction is complete only after every
partition that it touched has its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

from minikafka.base.model import TopicPartition
from minikafka.transactions.messages.commands import EndedTransaction, SendMarkers
from minikafka.transactions.outbox import Outbox
from minikafka.transactions.state.metadata import Metadata, completed, fenced, prepared
from minikafka.transactions.state.picture import Picture
from minikafka.transactions.state.transactional_id import TransactionalId
from minikafka.transactions.states import TransactionState
from minikafka.transactions.waiting import Waiting

logger = logging.getLogger(__name__)

OnDecided: TypeAlias = Callable[[int], None]
"""A callback for the result of the decision: the error code for clients, 0 if the decision is committed."""
_RETRY_MS: Final = 100
"""Pause before the record that completes a transaction is written again."""


class Ending:
    """The ends of transactions that are in progress."""

    def __init__(
        self, picture: Picture, outbox: Outbox, waiting: Waiting, wall_ms: Callable[[], int]
    ) -> None:
        self._picture = picture
        self._outbox = outbox
        self._waiting = waiting
        self._wall_ms = wall_ms
        self._last_number = 0
        self._failed: set[TransactionalId] = set()
        """The ids whose last record, which completes the transaction, could not be written."""
        self.retry_at: int | None = None
        """Time (monotonic ms) at which to call `retry`."""

    def end(self, txn: TransactionalId, committed: bool, on_decided: OnDecided) -> None:
        """End the open transaction of an id. `on_decided` is called once, before the markers are sent."""
        assert txn.stored is not None
        self._decide(txn, prepared(txn.stored, committed, self._wall_ms()), on_decided)

    def fence(self, txn: TransactionalId, on_decided: OnDecided) -> None:
        """Abort the open transaction of an id with a raised epoch. The producer is fenced at once."""
        assert txn.stored is not None
        metadata = fenced(txn.stored, txn.raise_fence(), self._wall_ms())
        self._decide(txn, metadata, on_decided)

    def _decide(self, txn: TransactionalId, metadata: Metadata, on_decided: OnDecided) -> None:
        def decided(error: int, now: int) -> None:
            on_decided(error)
            if not error:
                self.resume(txn)

        self._outbox.write(txn, metadata, decided)

    def resume(self, txn: TransactionalId) -> None:
        """Send the markers that are missing to the partitions; complete the transaction if there are none."""
        assert txn.stored is not None
        if not txn.remaining:
            self._complete(txn)
            return
        self._last_number += 1
        txn.ended = EndedTransaction(
            txn.name,
            txn.stored.producer_id,
            txn.stored.producer_epoch,
            self._picture.epochs[txn.partition],
            txn.stored.state is TransactionState.PREPARE_COMMIT,
            self._last_number,
        )
        self._outbox.add(SendMarkers(txn.partition, txn.ended, sorted(txn.remaining)))

    def markers_written(
        self, ended: EndedTransaction, partitions: Iterable[TopicPartition]
    ) -> None:
        """Process the report that partitions have the marker. A report about an earlier end has no effect."""
        txn = self._ending(ended)
        if txn is None:
            return
        txn.remaining.difference_update(partitions)
        if not txn.remaining:
            txn.ended = None
            self._complete(txn)

    def fenced(self, ended: EndedTransaction) -> None:
        """Process the report that a partition knows a later coordinator.

        Send the markers again if this broker has been elected again since. Otherwise leave the rest to the later
        coordinator.
        """
        txn = self._ending(ended)
        if txn is None:
            return
        if self._picture.epochs[txn.partition] > ended.coordinator_epoch:
            self.resume(txn)
        else:
            logger.warning("a later coordinator has ended the transaction of %r", txn.name)

    def _ending(self, ended: EndedTransaction) -> TransactionalId | None:
        txn = self._picture.ids.get(ended.transactional_id)
        return txn if txn is not None and txn.ended == ended else None

    def _complete(self, txn: TransactionalId) -> None:
        assert txn.stored is not None
        metadata = completed(txn.stored, self._wall_ms())
        self._outbox.write(txn, metadata, partial(self._completed, txn))

    def _completed(self, txn: TransactionalId, error: int, now: int) -> None:
        if not error:
            self._waiting.completed(txn)
        elif self._picture.ids.get(txn.name) is txn:
            self._failed.add(txn)
            if self.retry_at is None:
                self.retry_at = now + _RETRY_MS

    def retry(self) -> None:
        """Write the records again that could not be written."""
        failed, self._failed, self.retry_at = self._failed, set(), None
        for txn in sorted(failed, key=lambda txn: txn.name):
            if self._picture.ids.get(txn.name) is txn:
                self._complete(txn)
