"""The five leader selectors, as pure functions over lists of broker ids.

Each selector looks at one partition and returns a `ChosenLeader`, or the reason why no leader can be
chosen. Invariant: the chosen leader is in the new ISR, and all ISR members are assigned replicas.
Candidates are tried in the order of the assignment (X4). A replica on a suspect (`suspicions.py`) is
live, but it is never a candidate.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from minikafka.base.model import BrokerId


class Election(Enum):
    """The kind of leader election, which depends on the reason why a partition becomes Online (F12)."""

    OFFLINE = "OfflinePartitionLeaderElection"
    UNCLEAN = "UncleanOfflinePartitionLeaderElection"
    """Like OFFLINE, but an administrator has allowed a leader outside the ISR (X3)."""
    REASSIGNED = "ReassignPartitionLeaderElection"
    PREFERRED = "PreferredReplicaPartitionLeaderElection"
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElection"
    SUSPECTED = "SuspectedLeaderElection"
    """The leader's broker has probably died, but its registration still exists."""


class ChosenLeader(NamedTuple):
    """The chosen leader, the new ISR, and the replicas that receive the LeaderAndIsr request."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    recipients: tuple[BrokerId, ...]
    unclean: bool = False


class Refusal(Enum):
    """Reason why a partition was not changed; the value completes the sentence "the partition …"."""

    NO_REPLICAS_ASSIGNED = "doesn't have replicas assigned to it"
    NO_REPLICA_ONLINE = "has no live replica in its ISR, and unclean election is off or impossible"
    NO_REASSIGNED_REPLICAS = "has an empty list of reassigned replicas"
    NO_REASSIGNED_REPLICA_IN_SYNC = "has no live reassigned replica that is in sync with the leader"
    ELECTION_NOT_NEEDED = "is already led by its preferred replica"
    PREFERRED_NOT_AVAILABLE = "has a preferred replica that is either not alive or not in the ISR"
    NO_OTHER_REPLICA_IN_SYNC = "has no replica in its ISR except on brokers that are shutting down"
    ONLY_SUSPECTS_IN_SYNC = (
        "has no live replica in its ISR except on brokers that are suspected to have died"
    )
    NEWER_CONTROLLER = "was already updated by a controller with a higher epoch"
    NO_STATE = "has no state node"
    LEADER_CANNOT_BE_NEW = "is the current leader"
    WRITE_REFUSED = "could not be written to ZooKeeper"


Verdict: TypeAlias = ChosenLeader | Refusal


def offline(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    suspects: Collection[BrokerId] = (),
    *,
    unclean: bool,
) -> Verdict:
    """Elect the first live replica in the ISR, after the leader has failed (H1).

    If no live replica is in the ISR and `unclean` is True, elect the first live replica (H3). A live ISR
    member on a suspect is not elected. It may have every record, so that it prevents the unclean election.
    """
    if not replicas:
        return Refusal.NO_REPLICAS_ASSIGNED
    recipients = tuple(replica for replica in replicas if replica in live)
    staying = tuple(member for member in isr if member in recipients)
    candidates = [replica for replica in recipients if replica not in suspects]
    for replica in candidates:
        if replica in staying:
            return ChosenLeader(replica, staying, recipients)
    if staying:
        return Refusal.ONLY_SUSPECTS_IN_SYNC
    if unclean and candidates:
        return ChosenLeader(candidates[0], (candidates[0],), recipients, unclean=True)
    return Refusal.NO_REPLICA_ONLINE


def suspected(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    candidates: Collection[BrokerId],
    reachable: Collection[BrokerId],
    min_isr: int,
) -> Verdict:
    """Elect the first candidate in the ISR, because the leader's broker has probably died.

    ISR members that are not candidates leave the ISR if at least `min_isr` members stay. Then acks=all does
    not wait for them. Otherwise they stay: a suspect may be alive, and writes must not be refused because of it.
    A `min_isr` above the number of replicas counts as the number of replicas. The suspect receives the request
    too, because a suspect that is alive must stop being the leader.
    """
    if not replicas:
        return Refusal.NO_REPLICAS_ASSIGNED
    staying = tuple(member for member in isr if member in candidates)
    if not staying:
        return Refusal.ONLY_SUSPECTS_IN_SYNC
    leader = next(replica for replica in replicas if replica in staying)
    holds = len(staying) >= min(min_isr, len(replicas))
    recipients = tuple(replica for replica in replicas if replica in reachable)
    return ChosenLeader(leader, staying if holds else tuple(isr), recipients)


def reassigned(
    target: Sequence[BrokerId], isr: Sequence[BrokerId], candidates: Collection[BrokerId]
) -> Verdict:
    """Elect the first target replica that is a candidate and in the ISR (H5)."""
    if not target:
        return Refusal.NO_REASSIGNED_REPLICAS
    for replica in target:
        if replica in candidates and replica in isr:
            return ChosenLeader(replica, tuple(isr), tuple(target))
    return Refusal.NO_REASSIGNED_REPLICA_IN_SYNC


def preferred(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    candidates: Collection[BrokerId],
    leader: BrokerId,
) -> Verdict:
    """Elect the first replica of the assignment, if it is a candidate and in the ISR (H6)."""
    if not replicas:
        return Refusal.NO_REPLICAS_ASSIGNED
    if replicas[0] == leader:
        return Refusal.ELECTION_NOT_NEEDED
    if replicas[0] in candidates and replicas[0] in isr:
        return ChosenLeader(replicas[0], tuple(isr), tuple(replicas))
    return Refusal.PREFERRED_NOT_AVAILABLE


def controlled_shutdown(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live_or_shutting_down: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    suspects: Collection[BrokerId] = (),
) -> Verdict:
    """Elect the first in-sync replica whose broker is neither shutting down nor a suspect (H7).

    All replicas on brokers that are shutting down leave the ISR.
    """
    if not replicas:
        return Refusal.NO_REPLICAS_ASSIGNED
    staying = tuple(member for member in isr if member not in shutting_down)
    recipients = tuple(replica for replica in replicas if replica in live_or_shutting_down)
    for replica in recipients:
        if replica in staying and replica not in suspects:
            return ChosenLeader(replica, staying, recipients)
    return Refusal.NO_OTHER_REPLICA_IN_SYNC
