"""What the coordinator does at certain times: it aborts transactions that have timed out, and removes expired ids."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from minikafka.base.deciders import Procedure, Procedures
from minikafka.base.errors import code_name
from minikafka.transactions.context import Context, TransactionalId
from minikafka.transactions.ending import Ending, Waiting
from minikafka.transactions.writes import Writes

logger = logging.getLogger(__name__)

_STEP_IDS: Final = 500
"""Transactional ids whose expiry is checked in one call."""


class Deadlines:
    """The times at which the coordinator must act, and its actions. Times are monotonic milliseconds."""

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

    def _abort_timed_out(self) -> None:
        wall_ms = self._context.wall_ms()
        for txn in sorted(self._context.open, key=lambda txn: txn.name):
            record = txn.record
            if txn.is_busy or record.started_ms + record.timeout_ms >= wall_ms:
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
