"""The records that may follow a record, by the table of legal moves."""

from __future__ import annotations

from itertools import product

import pytest

from minikafka.base.model import TopicPartition
from minikafka.deciders.transactions.states import (
    LEGAL_FROM,
    TransactionMetadata,
    TransactionState,
    completed,
    fenced,
    initialized,
    prepared,
    with_partitions,
)

STATE = TransactionState
T0 = TopicPartition("t", 0)
MOVES = {
    STATE.EMPTY: lambda old: initialized(old, (40, 4), 3, 1_000, 9),
    STATE.ONGOING: lambda old: with_partitions(old, frozenset((T0,)), 9, 9),
    STATE.PREPARE_COMMIT: lambda old: prepared(old, True, 9),
    STATE.PREPARE_ABORT: lambda old: prepared(old, False, 9),
}


@pytest.mark.parametrize(("state", "target"), list(product(STATE, MOVES)))
def test_records_follow_only_in_legal_moves(state, target):
    old = TransactionMetadata(40, 3, 60_000, state, 5)

    if state in LEGAL_FROM[target]:
        found = MOVES[target](old)
        assert (found.state, found.updated_ms) == (target, 9)
    else:
        with pytest.raises(RuntimeError, match="cannot move"):
            MOVES[target](old)


@pytest.mark.parametrize("state", STATE)
def test_only_a_decided_transaction_is_completed(state):
    targets = {
        STATE.PREPARE_COMMIT: STATE.COMPLETE_COMMIT,
        STATE.PREPARE_ABORT: STATE.COMPLETE_ABORT,
    }
    old = TransactionMetadata(40, 3, 60_000, state, 5, 4, frozenset((T0,)))

    if state in targets:
        assert completed(old, 9) == TransactionMetadata(40, 3, 60_000, targets[state], 9, 4)
    else:
        with pytest.raises(RuntimeError, match="cannot move"):
            completed(old, 9)


@pytest.mark.parametrize("state", STATE)
def test_only_an_open_transaction_is_fenced(state):
    old = TransactionMetadata(40, 3, 60_000, state, 5, 4, frozenset((T0,)), 40, 2)

    if state is STATE.ONGOING:
        assert fenced(old, 4, 9) == TransactionMetadata(
            40, 4, 60_000, STATE.PREPARE_ABORT, 9, 4, frozenset((T0,)), 40, -1
        )
    else:
        with pytest.raises(RuntimeError, match="cannot move"):
            fenced(old, 4, 9)
