"""The end of a transaction: the decision, its markers, and the record that completes it. The expiry of ids.

Invariants: markers are sent only after their decision is committed. A transaction is complete only after every
partition that it touched has its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode, code_name
from minikafka.deciders.decider import Outcome, Procedure, Procedures, Wait
from minikafka.deciders.transactions.commands import EndedTransaction, SendMarkers
from minikafka.deciders.transactions.context import Context, TransactionalId
from minikafka.deciders.transactions.events import MarkersFenced, MarkersWritten
from minikafka.deciders.transactions.states import TransactionState, completed, fenced, prepared
from minikafka.deciders.transactions.writes import Writes

logger = logging.getLogger(__name__)

WAIT_MS: Final = 200
"""Maximum time for which a request waits for the end of the transaction before."""
_RETRY_MS: Final = 100
"""Pause before the record that completes a transaction is written again."""
_STEP_IDS: Final = 500
"""Transactional ids whose expiry is checked in one call."""


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


class Deadlines:
    """The times at which the coordinator must act: it aborts transactions that have timed out, and removes expired ids.

    Times are monotonic milliseconds.
    """

    def __init__(
        self,
        context: Context,
        procedures: Procedures,
        writes: Writes,
        waiting: Waiting,
        ending: Ending,
    ) -> None:
        self._context = context
        self._procedures = procedures
        self._writes = writes
        self._waiting = waiting
        self._ending = ending
        self._abort_at: int | None = None
        self._remove_at: int | None = None
        self._unchecked: Iterator[TransactionalId] | None = None
        """The ids whose expiry is still to be checked in this round."""

    def start(self) -> None:
        """Set the times of the next searches, where there is something to search."""
        context, settings = self._context, self._context.settings
        if self._abort_at is None and context.open:
            self._abort_at = context.now + settings.abort_timed_out_interval_ms
        if self._remove_at is None and context.ids:
            self._remove_at = context.now + settings.remove_expired_interval_ms

    def next_time(self) -> int | None:
        """Return the next time at which something is due, None if nothing will be."""
        times = (
            self._abort_at,
            self._remove_at,
            self._ending.retry_at,
            self._waiting.next_time(),
        )
        return min((time for time in times if time is not None), default=None)

    def handle(self) -> None:
        """Do what is due."""
        now = self._context.now
        self._waiting.expire()
        if self._ending.retry_at is not None and self._ending.retry_at <= now:
            self._ending.retry()
        if self._abort_at is not None and self._abort_at <= now:
            self._abort_at = None
            self._abort_timed_out()
        if self._remove_at is not None and self._remove_at <= now:
            self._remove_expired()

    def remove_expired_now(self) -> None:
        """Begin the search for expired ids again, and go through all ids at once."""
        self._unchecked = None
        while True:
            self._remove_expired()
            if self._unchecked is None:
                return

    def _abort_timed_out(self) -> None:
        now_ms = self._context.machine_ms()
        for txn in sorted(self._context.open, key=lambda txn: txn.name):
            record = txn.record
            if txn.is_busy or record.started_ms + record.timeout_ms >= now_ms:
                continue
            self._procedures.start(self._abort(txn))

    def _abort(self, txn: TransactionalId) -> Procedure[None]:
        """Abort a transaction that has timed out. If that fails, the next search tries it again."""
        error = yield from self._ending.fence(txn)
        if error:
            text = "the transaction of %r has timed out, but could not be aborted: %s"
            logger.warning(text, txn.name, code_name(error))
            return
        logger.info("aborting the transaction of %r, which has timed out", txn.name)
        self._ending.send_markers(txn)

    def _remove_expired(self) -> None:
        """Write tombstones for the expired ids among the next ones. The next call continues with the following ids."""
        context = self._context
        if self._unchecked is None:
            self._unchecked = iter(list(context.ids.values()))
        last_update_ms = context.wall_ms() - context.settings.expiration_ms
        step = list(islice(self._unchecked, _STEP_IDS))
        for txn in step:
            stored = txn.stored
            if not context.has(txn) or txn.is_busy or stored is None:
                continue
            if stored.is_between and stored.updated_ms <= last_update_ms:
                self._procedures.start(self._writes.write(txn, None))
        if len(step) == _STEP_IDS:
            self._remove_at = context.now
        else:
            self._unchecked = self._remove_at = None
