"""The states of a consumer group, and the legal transitions between states (Kafka's GroupState).

    Empty -> PreparingRebalance                a member was added
    PreparingRebalance -> CompletingRebalance  all members joined, or the rebalance timed out: a new generation
    PreparingRebalance -> Empty                no member is left: a new generation without members
    CompletingRebalance -> Stable              the leader's assignment was written
    CompletingRebalance, Stable -> PreparingRebalance  a member joined, left or changed its metadata
    every state -> Dead                        deleted, expired, or the partition moved to another broker

The first state of a group is Empty. A group that is loaded with members starts as Stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class GroupState(Enum):
    """The state of a group. The value is Kafka's name, which DescribeGroups and ListGroups return."""

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

LEGAL_FROM: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({EMPTY, COMPLETING, STABLE}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: frozenset({EMPTY, PREPARING, COMPLETING, STABLE}),
}
"""State -> the states from which a group may enter it."""
