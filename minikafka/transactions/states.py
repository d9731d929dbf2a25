"""The states of a transaction, and the legal moves between them. Source: Kafka's `TransactionState`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


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
