"""The four leader selectors, as pure functions over lists of broker ids.

Each looks at one partition and answers with a `Choice` or with the reason why there is none.
Invariant of every choice: the leader is in the new ISR, and both come from the assignment. The
names are those of the seed documents (H1-H9); the order is always that of the assignment (X4).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from minikafka.base.model import BrokerId


class Election(Enum):
    """Which selector moves a partition to OnlinePartition (F12)."""

    OFFLINE = "OfflinePartitionLeaderElection"
    UNCLEAN = "UncleanOfflinePartitionLeaderElection"
    """As OFFLINE, but an administrator allowed a leader from outside the ISR (X3)."""
    REASSIGNED = "ReassignPartitionLeaderElection"
    PREFERRED = "PreferredReplicaPartitionLeaderElection"
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElection"


class Choice(NamedTuple):
    """Who leads, the ISR from now on, and the replicas that must hear of it."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    recipients: tuple[BrokerId, ...]
    unclean: bool = False


class Refusal(Enum):
    """Why a partition did not change; the value is the end of a sentence that begins with the partition."""

    NO_REPLICAS_ASSIGNED = "doesn't have replicas assigned to it"
    NO_REPLICA_ONLINE = "has no live replica in its ISR, and no unclean election may or can be held"
    NO_REASSIGNED_REPLICAS = "has an empty list of reassigned replicas"
    NO_REASSIGNED_REPLICA_IN_SYNC = "has no live reassigned replica that is in sync with the leader"
    ELECTION_NOT_NEEDED = "is led by its preferred replica already"
    PREFERRED_NOT_AVAILABLE = "has a preferred replica that is either not alive or not in the ISR"
    NO_OTHER_REPLICA_IN_SYNC = (
        "has no other replica in its ISR besides those on brokers that shut down"
    )
    NEWER_CONTROLLER = "was already updated by a controller with a higher epoch"
    NO_STATE = "has no leader and ISR to start from"
    LEADER_CANNOT_BE_NEW = "is being requested to become leader"
    WRITE_REFUSED = "could not be written to ZooKeeper"


Verdict: TypeAlias = Choice | Refusal


def offline(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    *,
    unclean: bool,
) -> Verdict:
    """The leader died: the first live replica that is in the ISR (H1); if `unclean`, the first live one (H2, H3)."""
    if not replicas:
        return Refusal.NO_REPLICAS_ASSIGNED
    recipients = tuple(replica for replica in replicas if replica in live)
    for replica in recipients:
        if replica in isr:
            return Choice(
                replica, tuple(member for member in isr if member in recipients), recipients
            )
    if unclean and recipients:
        return Choice(recipients[0], recipients[:1], recipients, unclean=True)
    return Refusal.NO_REPLICA_ONLINE


def reassigned(
    target: Sequence[BrokerId], isr: Sequence[BrokerId], live: Collection[BrokerId]
) -> Verdict:
    """The leader is not among the target replicas: the first of those that is live and in the ISR (H5, X5)."""
    if not target:
        return Refusal.NO_REASSIGNED_REPLICAS
    for replica in target:
        if replica in live and replica in isr:
            return Choice(replica, tuple(isr), tuple(target))
    return Refusal.NO_REASSIGNED_REPLICA_IN_SYNC


def preferred(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    leader: BrokerId,
) -> Verdict:
    """Give the leadership back to the first replica of the assignment, if it is live and in sync (H6)."""
    if not replicas:
        return Refusal.NO_REPLICAS_ASSIGNED
    if replicas[0] == leader:
        return Refusal.ELECTION_NOT_NEEDED
    if replicas[0] in live and replicas[0] in isr:
        return Choice(replicas[0], tuple(isr), tuple(replicas))
    return Refusal.PREFERRED_NOT_AVAILABLE


def controlled_shutdown(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live_or_shutting_down: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> Verdict:
    """The leader wants to go: the first in-sync replica that stays; all that go leave the ISR (H7, X6)."""
    if not replicas:
        return Refusal.NO_REPLICAS_ASSIGNED
    staying = tuple(member for member in isr if member not in shutting_down)
    recipients = tuple(replica for replica in replicas if replica in live_or_shutting_down)
    for replica in recipients:
        if replica in staying:
            return Choice(replica, staying, recipients)
    return Refusal.NO_OTHER_REPLICA_IN_SYNC
