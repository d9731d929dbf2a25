"""The end of a transaction: the decision, its markers, and the record that completes it.

Invariants: markers are sent only after their decision is committed. A transaction is complete only after every
partition that it touched has its marker.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from minikafka.base.deciders import Outcome, Procedure, Procedures, Wait
from minikafka.base.errors import ErrorCode
from minikafka.transactions.commands import EndedTransaction, SendMarkers
from minikafka.transactions.context import Context, TransactionalId
from minikafka.transactions.events import MarkersFenced, MarkersWritten
from minikafka.transactions.states import TransactionState, completed, fenced, prepared
from minikafka.transactions.writes import Writes

logger = logging.getLogger(__name__)

WAIT_MS: Final = 200
"""Maximum time for which a request waits for the end of the transaction before."""
_RETRY_MS: Final = 100
"""Pause before the record that completes a transaction is written again."""


class _Held(NamedTuple):
    """A request that waits. `until`: the time (monotonic ms) at which it is refused."""

    token: int
    until: int


class Waiting:
    """Requests for a producer's next transaction that come before its last transaction is complete.

    EndTxn is answered when the decision is written, and the markers follow. A producer that begins its next
    transaction at once would get CONCURRENT_TRANSACTIONS, and clients pause for 20 ms before they try again, much
    longer than the markers take. So such a request waits here, at most one per transactional id. All requests wait
    equally long, so the first one ends first.
    """

    def __init__(self, context: Context, procedures: Procedures) -> None:
        self._context = context
        self._procedures = procedures
        self._held: dict[TransactionalId, _Held] = {}

    def until_complete(self, txn: TransactionalId) -> Procedure[int]:
        """Wait until the transaction of an id is complete. Return the error for the client if it waits in vain."""
        assert txn.is_prepared
        self._resume(txn, ErrorCode.CONCURRENT_TRANSACTIONS)  # an earlier request is answered first
        token = self._procedures.new_token()
        self._held[txn] = _Held(token, self._context.now + WAIT_MS)
        error: int = yield Wait(token)
        return error

    def completed(self, txn: TransactionalId) -> None:
        """Handle the request that waits for an id whose transaction is complete."""
        self._resume(txn, ErrorCode.NONE)

    def drop(self, txn: TransactionalId) -> None:
        """Refuse the request that waits for an id that this broker no longer coordinates."""
        self._resume(txn, ErrorCode.NOT_COORDINATOR)

    def next_time(self) -> int | None:
        """Return the time at which the next request has waited long enough, None if no request waits."""
        return next((held.until for held in self._held.values()), None)

    def expire(self) -> None:
        """Refuse the requests that have waited long enough. The clients try again."""
        now = self._context.now
        for txn in [txn for txn, held in self._held.items() if held.until <= now]:
            self._resume(txn, ErrorCode.CONCURRENT_TRANSACTIONS)

    def _resume(self, txn: TransactionalId, error: ErrorCode) -> None:
        held = self._held.pop(txn, None)
        if held is not None:
            self._procedures.resume(Outcome(held.token, error))


class Ending:
    """The ends of transactions that are in progress."""

    def __init__(
        self, context: Context, procedures: Procedures, writes: Writes, waiting: Waiting
    ) -> None:
        self._context = context
        self._procedures = procedures
        self._writes = writes
        self._waiting = waiting
        self._last_number = 0
        self._failed: set[TransactionalId] = set()
        """The ids whose last record, which completes the transaction, could not be written."""
        self.retry_at: int | None = None
        """Time (monotonic ms) at which to call `retry`."""

    def decide(self, txn: TransactionalId, committed: bool) -> Procedure[int]:
        """Write the decision to commit or abort the open transaction of an id. Return the error for the client.

        After success, the caller answers its client, and then sends the markers (`send_markers`): the client need not
        wait for them.
        """
        metadata = prepared(txn.record, committed, self._context.wall_ms())
        return (yield from self._writes.write(txn, metadata))

    def fence(self, txn: TransactionalId) -> Procedure[int]:
        """Write the abort of the open transaction with a raised epoch, like `decide`.

        The producer is fenced at once: if the append fails, the record may be in the log all the same.
        """
        metadata = fenced(txn.record, txn.raise_fence(), self._context.wall_ms())
        return (yield from self._writes.write(txn, metadata))

    def send_markers(self, txn: TransactionalId) -> None:
        """Send the markers that are missing to the partitions; complete the transaction if there are none."""
        assert txn.is_prepared, "no marker is sent before its decision is committed"
        if not txn.remaining:
            self._procedures.start(self._complete(txn))
            return
        self._last_number += 1
        txn.ended = EndedTransaction(
            txn.name,
            txn.record.producer_id,
            txn.record.producer_epoch,
            self._context.epochs[txn.partition],
            txn.record.state is TransactionState.PREPARE_COMMIT,
            self._last_number,
        )
        self._procedures.emit(SendMarkers(txn.partition, txn.ended, sorted(txn.remaining)))

    def markers_written(self, event: MarkersWritten) -> None:
        """Complete a transaction whose last partition has the marker. A report about an earlier end has no effect."""
        txn = self._ending(event.ended)
        if txn is None:
            return
        txn.remaining.difference_update(event.partitions)
        if not txn.remaining:
            txn.ended = None
            self._procedures.start(self._complete(txn))

    def markers_fenced(self, event: MarkersFenced) -> None:
        """Send the markers again if this broker is the later coordinator. Otherwise leave the rest to that one."""
        txn = self._ending(event.ended)
        if txn is None:
            return
        if self._context.epochs[txn.partition] > event.ended.coordinator_epoch:
            self.send_markers(txn)
        else:
            logger.warning("a later coordinator has ended the transaction of %r", txn.name)

    def _ending(self, ended: EndedTransaction) -> TransactionalId | None:
        txn = self._context.ids.get(ended.transactional_id)
        return txn if txn is not None and txn.ended == ended else None

    def _complete(self, txn: TransactionalId) -> Procedure[None]:
        """Write that every partition has the marker. If that fails, `retry` tries it again."""
        assert not txn.remaining
        metadata = completed(txn.record, self._context.wall_ms())
        error = yield from self._writes.write(txn, metadata)
        if not error:
            self._waiting.completed(txn)
        elif self._context.has(txn):
            self._failed.add(txn)
            if self.retry_at is None:
                self.retry_at = self._context.now + _RETRY_MS

    def retry(self) -> None:
        """Write the records again that could not be written."""
        failed, self._failed, self.retry_at = self._failed, set(), None
        for txn in sorted(failed, key=lambda txn: txn.name):
            if self._context.has(txn):
                self._procedures.start(self._complete(txn))
