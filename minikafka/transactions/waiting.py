"""Requests for a producer's next transaction that come before its last transaction is complete.

EndTxn is answered when the decision is written, and the markers follow. A producer that begins its next transaction at
once would get CONCURRENT_TRANSACTIONS, and clients pause for 20 ms before they try again, much longer than the markers
take. So such a request waits here. Invariant: each request is resumed once, at the latest by `expire` or `drop`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import ErrorCode
from minikafka.transactions.state.transactional_id import TransactionalId

Resume: TypeAlias = Callable[[int], None]
"""Handles a request that waited. The argument is 0 if the transaction is complete, else the error for the client."""
WAIT_MS: Final = 200
"""Maximum time for which a request waits."""


class _Held(NamedTuple):
    """A request that waits. `until`: the time (monotonic ms) at which it is answered with an error."""

    resume: Resume
    until: int


class Waiting:
    """At most one request per transactional id. All requests wait equally long, so the first one ends first."""

    def __init__(self) -> None:
        self._held: dict[TransactionalId, _Held] = {}

    def hold(self, txn: TransactionalId, resume: Resume, now: int) -> None:
        """Let a request wait until the transaction of an id is complete. An earlier request is answered first."""
        self._resume(txn, ErrorCode.CONCURRENT_TRANSACTIONS)
        self._held[txn] = _Held(resume, now + WAIT_MS)

    def completed(self, txn: TransactionalId) -> None:
        """Handle the request that waits for an id whose transaction is complete."""
        self._resume(txn, 0)

    def drop(self, txn: TransactionalId) -> None:
        """Refuse the request that waits for an id that this broker no longer coordinates."""
        self._resume(txn, ErrorCode.NOT_COORDINATOR)

    def next_time(self) -> int | None:
        """Return the time at which the next request has waited long enough, None if no request waits."""
        return next((held.until for held in self._held.values()), None)

    def expire(self, now: int) -> None:
        """Refuse the requests that have waited long enough. The clients try again."""
        for txn in [txn for txn, held in self._held.items() if held.until <= now]:
            self._resume(txn, ErrorCode.CONCURRENT_TRANSACTIONS)

    def _resume(self, txn: TransactionalId, error: int) -> None:
        held = self._held.pop(txn, None)
        if held is not None:
            held.resume(error)
