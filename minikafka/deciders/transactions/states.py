"""The states of a transactional id, the legal moves between them, and the records that store them.

    Empty, CompleteCommit, CompleteAbort -> Ongoing     AddPartitionsToTxn
    Ongoing -> PrepareCommit                            EndTxn
    Ongoing -> PrepareAbort                             EndTxn
    Ongoing -> PrepareEpochFence -> PrepareAbort        the timeout of the transaction, or InitProducerId
    PrepareCommit -> CompleteCommit                     every partition has its marker
    PrepareAbort -> CompleteAbort                       every partition has its marker
    CompleteCommit, CompleteAbort -> Empty              InitProducerId
    Empty, CompleteCommit, CompleteAbort -> Dead        the id has expired

Source: Kafka's `TransactionState` and `TransactionMetadata`. Invariant: each function that returns the next record
checks the move of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from minikafka.base.model import TopicPartition


class TransactionState(Enum):
    """The state of a transactional id. The value is the name in Kafka's responses."""

    EMPTY = "Empty"
    """The id has a producer id, but no transaction yet."""
    ONGOING = "Ongoing"
    """A transaction has partitions, and has not ended."""
    PREPARE_COMMIT = "PrepareCommit"
    """The commit is decided and written. Markers are being sent to the partitions."""
    PREPARE_ABORT = "PrepareAbort"
    """The abort is decided and written. Markers are being sent to the partitions."""
    COMPLETE_COMMIT = "CompleteCommit"
    """Every partition has the marker of the commit."""
    COMPLETE_ABORT = "CompleteAbort"
    """Every partition has the marker of the abort."""
    DEAD = "Dead"
    """The transactional id has expired, and its tombstone is being written."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """The epoch is raised, and the open transaction is about to be aborted. This state is never written."""


_STATE = TransactionState

NUMBERS: Final[Mapping[TransactionState, int]] = {
    _STATE.EMPTY: 0,
    _STATE.ONGOING: 1,
    _STATE.PREPARE_COMMIT: 2,
    _STATE.PREPARE_ABORT: 3,
    _STATE.COMPLETE_COMMIT: 4,
    _STATE.COMPLETE_ABORT: 5,
    _STATE.DEAD: 6,
    _STATE.PREPARE_EPOCH_FENCE: 7,
}
"""State → its number in the records of `__transaction_state`."""

LEGAL_FROM: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _STATE.EMPTY: frozenset((_STATE.EMPTY, _STATE.COMPLETE_COMMIT, _STATE.COMPLETE_ABORT)),
    _STATE.ONGOING: frozenset(
        (_STATE.ONGOING, _STATE.EMPTY, _STATE.COMPLETE_COMMIT, _STATE.COMPLETE_ABORT)
    ),
    _STATE.PREPARE_COMMIT: frozenset((_STATE.ONGOING,)),
    _STATE.PREPARE_ABORT: frozenset((_STATE.ONGOING, _STATE.PREPARE_EPOCH_FENCE)),
    _STATE.COMPLETE_COMMIT: frozenset((_STATE.PREPARE_COMMIT,)),
    _STATE.COMPLETE_ABORT: frozenset((_STATE.PREPARE_ABORT,)),
    _STATE.DEAD: frozenset((_STATE.EMPTY, _STATE.COMPLETE_COMMIT, _STATE.COMPLETE_ABORT)),
    _STATE.PREPARE_EPOCH_FENCE: frozenset((_STATE.ONGOING,)),
}
"""State → the states from which a transactional id may move to it."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_START: Final = -1
EPOCH_MAX: Final = 0x7FFF
_EXHAUSTED: Final = EPOCH_MAX - 1
"""Producers get no epoch above this one. The last epoch is left for the abort that fences the producer."""
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
_BETWEEN: Final = frozenset((_STATE.EMPTY, _STATE.COMPLETE_COMMIT, _STATE.COMPLETE_ABORT))
"""The states without a transaction."""


class TransactionMetadata(NamedTuple):
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

    def moved(self, state: TransactionState, wall_ms: int, **changes: Any) -> TransactionMetadata:
        """Return the record of a move to another state. Raises RuntimeError if the move is illegal."""
        if self.state not in LEGAL_FROM[state]:
            raise RuntimeError(f"a transactional id cannot move from {self.state} to {state}")
        return self._replace(state=state, updated_ms=wall_ms, **changes)


def is_exhausted(producer_epoch: int) -> bool:
    """True if a producer with this epoch cannot get a higher one, and needs a new producer id."""
    return producer_epoch >= _EXHAUSTED


def created(producer_id: int, timeout_ms: int, wall_ms: int) -> TransactionMetadata:
    """Return the first record of a transactional id."""
    return TransactionMetadata(producer_id, 0, timeout_ms, _STATE.EMPTY, wall_ms)


def initialized(
    old: TransactionMetadata,
    producer: tuple[int, int],
    last_epoch: int,
    timeout_ms: int,
    wall_ms: int,
) -> TransactionMetadata:
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


def with_partitions(
    old: TransactionMetadata, added: frozenset[TopicPartition], wall_ms: int, now_ms: int
) -> TransactionMetadata:
    """Return the record with more partitions. The first partitions of a transaction start it, at `now_ms`."""
    started_ms = now_ms if old.is_between else old.started_ms
    return old.moved(
        _STATE.ONGOING, wall_ms, partitions=old.partitions | added, started_ms=started_ms
    )


def prepared(old: TransactionMetadata, committed: bool, wall_ms: int) -> TransactionMetadata:
    """Return the record with the decision to commit or abort the transaction."""
    return old.moved(_STATE.PREPARE_COMMIT if committed else _STATE.PREPARE_ABORT, wall_ms)


def fenced(old: TransactionMetadata, epoch: int, wall_ms: int) -> TransactionMetadata:
    """Return the record that aborts the transaction with a raised epoch, which fences its producer."""
    fence = old.moved(
        _STATE.PREPARE_EPOCH_FENCE,
        wall_ms,
        producer_epoch=epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return prepared(fence, False, wall_ms)


def completed(old: TransactionMetadata, wall_ms: int) -> TransactionMetadata:
    """Return the record that says that every partition has the marker."""
    was_committed = old.state is _STATE.PREPARE_COMMIT
    state = _STATE.COMPLETE_COMMIT if was_committed else _STATE.COMPLETE_ABORT
    return old.moved(state, wall_ms, partitions=_NO_PARTITIONS)


def next_epochs(old: TransactionMetadata, known_epoch: int) -> tuple[int, int] | None:
    """Return the next epoch of a producer and its last one; None if the producer is fenced (KIP-360).

    `known_epoch`: the epoch that the producer has, NO_PRODUCER_EPOCH for one that starts. A producer that did not
    receive the response to its last request has the epoch before the current one, and gets the current one again.
    """
    if known_epoch in (NO_PRODUCER_EPOCH, old.producer_epoch):
        return old.producer_epoch + 1, known_epoch
    if known_epoch == old.last_producer_epoch:
        return old.producer_epoch, known_epoch
    return None
