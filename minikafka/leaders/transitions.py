"""The table of a replica's legal moves at its own broker. `picture.py` notes and drops every other move.

    absent    -> waiting                           a start request, or the scan of a start
    waiting   -> electing                          its turn to write its leadership
    waiting, electing, opening, leading -> following     another broker leads
    electing  -> opening                           ZooKeeper has its leadership
    opening   -> leading                           the in-sync replicas have caught up
    electing, following, opening, leading -> waiting     nobody leads, or this broker lost its right to a role
    following -> electing                          nobody leads, and it may lead at once
    any       -> absent                            a close request, or the scan of a start

A replica also stays in its status with a higher epoch: it follows, opens or leads again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikafka.leaders.model import ReplicaStatus

ABSENT, WAITING, ELECTING, FOLLOWING, OPENING, LEADING = ReplicaStatus

LEGAL_NEXT: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    ABSENT: frozenset({WAITING}),
    WAITING: frozenset({ABSENT, WAITING, ELECTING, FOLLOWING}),
    ELECTING: frozenset({ABSENT, WAITING, ELECTING, FOLLOWING, OPENING}),
    FOLLOWING: frozenset({ABSENT, WAITING, ELECTING, FOLLOWING}),
    OPENING: frozenset({ABSENT, WAITING, FOLLOWING, OPENING, LEADING}),
    LEADING: frozenset({ABSENT, WAITING, FOLLOWING, LEADING}),
}
"""Status -> statuses to which a replica may move next. A replica becomes a leader only by an election of its own."""


def is_legal(source: ReplicaStatus, target: ReplicaStatus) -> bool:
    """True if a replica may move from `source` to `target`."""
    return target in LEGAL_NEXT[source]
