"""The settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass


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
