"""What a record says about a transactional id, and the records that may follow it.

Invariant: each function that returns the next record checks the move of the state (`states.py`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.transactions.messages.requests import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from minikafka.transactions.states import LEGAL_FROM, TransactionState

NO_START: Final = -1
EPOCH_MAX: Final = 0x7FFF
_EXHAUSTED: Final = EPOCH_MAX - 1
"""Producers get no epoch above this one. The last epoch is left for the abort that fences the producer."""
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
_STATE: Final = TransactionState
_BETWEEN: Final = frozenset((_STATE.EMPTY, _STATE.COMPLETE_COMMIT, _STATE.COMPLETE_ABORT))
"""The states without a transaction."""


class Metadata(NamedTuple):
    """A transactional id, as its record in `__transaction_state` describes it. Times are Unix milliseconds.

    `last_producer_id` and `last_producer_epoch` are those before the last InitProducerId. They recognize a producer
    that sends this request again (KIP-360). As in Kafka 3.9, the record does not contain them.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    started_ms: int = NO_START
    partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_between(self) -> bool:
        """True if no transaction is open or ending."""
        return self.state in _BETWEEN

    def moved(self, state: TransactionState, wall_ms: int, **changes: Any) -> Metadata:
        """Return the record of a move to another state. Raises RuntimeError if the move is illegal."""
        if self.state not in LEGAL_FROM[state]:
            raise RuntimeError(f"a transactional id cannot move from {self.state} to {state}")
        return self._replace(state=state, updated_ms=wall_ms, **changes)


def is_exhausted(producer_epoch: int) -> bool:
    """True if a producer with this epoch cannot get a higher one, and needs a new producer id."""
    return producer_epoch >= _EXHAUSTED


def created(producer_id: int, timeout_ms: int, wall_ms: int) -> Metadata:
    """Return the first record of a transactional id."""
    return Metadata(producer_id, 0, timeout_ms, _STATE.EMPTY, wall_ms)


def initialized(
    old: Metadata,
    producer: tuple[int, int],
    last_epoch: int,
    timeout_ms: int,
    wall_ms: int,
) -> Metadata:
    """Return the record of a producer that starts with this id and epoch."""
    producer_id, epoch = producer
    is_repeated = producer == (old.producer_id, old.producer_epoch)
    return old.moved(
        _STATE.EMPTY,
        wall_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_id=old.last_producer_id if is_repeated else old.producer_id,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        started_ms=NO_START,
        partitions=_NO_PARTITIONS,
    )


def with_partitions(old: Metadata, added: frozenset[TopicPartition], wall_ms: int) -> Metadata:
    """Return the record with more partitions. The first partitions of a transaction start it."""
    started_ms = wall_ms if old.is_between else old.started_ms
    return old.moved(
        _STATE.ONGOING, wall_ms, partitions=old.partitions | added, started_ms=started_ms
    )


def prepared(old: Metadata, committed: bool, wall_ms: int) -> Metadata:
    """Return the record with the decision to commit or abort the transaction."""
    return old.moved(_STATE.PREPARE_COMMIT if committed else _STATE.PREPARE_ABORT, wall_ms)


def fenced(old: Metadata, epoch: int, wall_ms: int) -> Metadata:
    """Return the record that aborts the transaction with a raised epoch, which fences its producer."""
    fence = old.moved(
        _STATE.PREPARE_EPOCH_FENCE,
        wall_ms,
        producer_epoch=epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return prepared(fence, False, wall_ms)


def completed(old: Metadata, wall_ms: int) -> Metadata:
    """Return the record that says that every partition has the marker."""
    was_committed = old.state is _STATE.PREPARE_COMMIT
    state = _STATE.COMPLETE_COMMIT if was_committed else _STATE.COMPLETE_ABORT
    return old.moved(state, wall_ms, partitions=_NO_PARTITIONS)


def next_epochs(old: Metadata, known_epoch: int) -> tuple[int, int] | None:
    """Return the next epoch of a producer and its last one; None if the producer is fenced (KIP-360).

    `known_epoch`: the epoch that the producer has, NO_PRODUCER_EPOCH for one that starts. A producer that did not
    receive the response to its last request has the epoch before the current one, and gets the current one again.
    """
    if known_epoch in (NO_PRODUCER_EPOCH, old.producer_epoch):
        return old.producer_epoch + 1, known_epoch
    if known_epoch == old.last_producer_epoch:
        return old.producer_epoch, known_epoch
    return None
