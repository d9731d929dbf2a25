"""The states of a replica at its own broker, and its legal moves. `context.py` notes and drops every other move.

    absent    -> waiting                           a start request, or the scan of a start
    waiting   -> electing                          its turn to write its leadership
    waiting, electing, opening, leading -> following     another broker leads
    electing  -> opening                           ZooKeeper has its leadership
    opening   -> leading                           the in-sync replicas have caught up
    electing, following, opening, leading -> waiting     nobody leads, or this broker lost its right to a role
    following -> electing                          nobody leads, and it may lead at once
    any       -> absent                            a close request, or the scan of a start

A replica also stays in its state with a higher epoch: it follows, opens or leads again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class HostedReplicaStatus(Enum):
    """The states of a replica."""

    ABSENT = "absent"
    """This broker does not host the replica."""
    WAITING = "waiting"
    """Started, without a leader to follow: it waits for its turn to elect itself, or for another leader."""
    ELECTING = "electing"
    """It has asked to write its own leadership, and does not know the outcome yet."""
    FOLLOWING = "following"
    OPENING = "opening"
    """It leads and serves followers, and refuses clients until the in-sync replicas have caught up (C17, C18)."""
    LEADING = "leading"


ABSENT, WAITING, ELECTING, FOLLOWING, OPENING, LEADING = HostedReplicaStatus

LEADERS: Final = frozenset({OPENING, LEADING})
"""The states in which this broker leads, open to clients or not."""
ROLES: Final = LEADERS | {FOLLOWING}
"""The states in which the broker's replica has a role, which must be ended."""

LEGAL_FROM: Final[Mapping[HostedReplicaStatus, frozenset[HostedReplicaStatus]]] = {
    ABSENT: frozenset({WAITING, ELECTING, FOLLOWING, OPENING, LEADING}),
    WAITING: frozenset(HostedReplicaStatus),
    ELECTING: frozenset({WAITING, ELECTING, FOLLOWING}),
    FOLLOWING: frozenset({WAITING, ELECTING, FOLLOWING, OPENING, LEADING}),
    OPENING: frozenset({ELECTING, OPENING}),
    LEADING: frozenset({OPENING, LEADING}),
}
"""State -> states from which it may be entered. A replica becomes a leader only by an election of its own."""


def is_legal(source: HostedReplicaStatus, target: HostedReplicaStatus) -> bool:
    """True if a replica may move from `source` to `target`."""
    return source in LEGAL_FROM[target]
