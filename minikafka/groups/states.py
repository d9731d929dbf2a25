"""The states of a group, and the table of legal moves (Kafka's GroupState).

    Empty -> PreparingRebalance                a member was added
    PreparingRebalance -> CompletingRebalance  all members joined, or the rebalance timed out: a new generation
    PreparingRebalance -> Empty                the last member is gone: a new generation without members
    CompletingRebalance -> Stable              the leader's assignment was written
    CompletingRebalance, Stable -> PreparingRebalance  a member came, went or changed
    every state -> Dead                        deleted, expired, or the partition moved to another broker

A group begins as Empty, or as Stable when it is loaded with members.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """State of a group; the value is Kafka's name, which DescribeGroups and ListGroups return."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING_REBALANCE
COMPLETING: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

MOVES: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}
"""The states that may follow each state."""


def is_legal(before: GroupState, after: GroupState) -> bool:
    """True if a group in state `before` may change to state `after`."""
    return after in MOVES[before]
