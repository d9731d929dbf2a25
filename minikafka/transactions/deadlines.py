"""What the coordinator does at certain times: it aborts transactions that have timed out, and removes expired ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from minikafka.base.errors import code_name
from minikafka.transactions.ending import Ending
from minikafka.transactions.outbox import Outbox
from minikafka.transactions.settings import TransactionSettings
from minikafka.transactions.state.picture import Picture
from minikafka.transactions.state.transactional_id import TransactionalId
from minikafka.transactions.waiting import Waiting

logger = logging.getLogger(__name__)

_STEP_IDS: Final = 500
"""Transactional ids whose expiry is checked in one call."""


class Deadlines:
    """The times at which the coordinator must act, and its actions. Times are monotonic milliseconds."""

    def __init__(
        self,
        settings: TransactionSettings,
        picture: Picture,
        outbox: Outbox,
        ending: Ending,
        waiting: Waiting,
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._picture = picture
        self._outbox = outbox
        self._ending = ending
        self._waiting = waiting
        self._wall_ms = wall_ms
        self._abort_at: int | None = None
        self._remove_at: int | None = None
        self._unchecked: Iterator[TransactionalId] | None = None
        """The ids whose expiry is still to be checked in this round."""

    def start(self, now: int) -> None:
        """Set the times of the next searches, where there is something to search."""
        if self._abort_at is None and self._picture.open:
            self._abort_at = now + self._settings.abort_timed_out_interval_ms
        if self._remove_at is None and self._picture.ids:
            self._remove_at = now + self._settings.remove_expired_interval_ms

    def next_time(self) -> int | None:
        """Return the time of the next action, None if there is none."""
        times = (
            self._abort_at,
            self._remove_at,
            self._ending.retry_at,
            self._waiting.next_time(),
        )
        return min((time for time in times if time is not None), default=None)

    def handle(self, now: int) -> None:
        """Do what is due."""
        self._waiting.expire(now)
        if self._ending.retry_at is not None and self._ending.retry_at <= now:
            self._ending.retry()
        if self._abort_at is not None and self._abort_at <= now:
            self._abort_at = None
            self._abort_timed_out()
        if self._remove_at is not None and self._remove_at <= now:
            self._remove_expired(now)

    def _abort_timed_out(self) -> None:
        wall_ms = self._wall_ms()
        for txn in sorted(self._picture.open, key=lambda txn: txn.name):
            stored = txn.stored
            if stored is None or txn.is_busy or stored.started_ms + stored.timeout_ms >= wall_ms:
                continue
            self._ending.fence(txn, partial(_log_abort, txn.name))

    def _remove_expired(self, now: int) -> None:
        """Write tombstones for the expired ids among the next ones. The next call continues with the following ids."""
        if self._unchecked is None:
            self._unchecked = iter(list(self._picture.ids.values()))
        last_update_ms = self._wall_ms() - self._settings.expiration_ms
        step = list(islice(self._unchecked, _STEP_IDS))
        for txn in step:
            stored = txn.stored
            if self._picture.ids.get(txn.name) is not txn or txn.is_busy or stored is None:
                continue
            if stored.is_between and stored.updated_ms <= last_update_ms:
                self._outbox.write(txn, None, lambda error, now: None)
        if len(step) == _STEP_IDS:
            self._remove_at = now
        else:
            self._unchecked = self._remove_at = None


def _log_abort(name: str, error: int) -> None:
    if error:
        text = "the transaction of %r has timed out, but could not be aborted: %s"
        logger.warning(text, name, code_name(error))
    else:
        logger.info("aborting the transaction of %r, which has timed out", name)
