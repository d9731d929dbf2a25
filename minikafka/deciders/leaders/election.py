"""Who may lead a partition that has no leader: `choose` decides for one replica, `Elections` acts on it (C2, C3).

Before the first leader, any assigned replica may lead, and becomes the first ISR. Later, only assigned replicas in the
ISR may lead, and the ISR stays. The topic setting unclean.leader.election.enable is the only exception. The preferred
replica waits for nobody. Another replica waits once, unless the preferred one is outside the ISR or dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from minikafka.base.model import BrokerId, Epoch
from minikafka.deciders.leaders.commands import TryToLead
from minikafka.deciders.leaders.context import Context, Replica
from minikafka.deciders.leaders.model import PartitionView, Replicas
from minikafka.deciders.leaders.states import HostedReplicaStatus

FIRST_EPOCH: Final = 1
NO_ISR: Final = (
    "no leader can be elected: the partition has had a leader, but its node ISR was deleted. Write the node again with "
    "the replicas that have every acknowledged record, or run `minikafka elect --unclean`"
)


class ElectionVerdict(Enum):
    """The decision of a replica without a leader."""

    LEAD = auto()
    """It writes its leadership now."""
    WAIT = auto()
    """It waits, and the question is asked again."""
    YIELD = auto()
    """It leaves the election to the preferred replica for a time."""
    STAY = auto()
    """It cannot lead: it waits for a change of the partition's nodes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica of a leaderless partition, and what its broker knows."""

    id: BrokerId
    latest_epoch: Epoch
    """Highest epoch in which this replica had a role."""
    has_waited: bool
    dead: frozenset[BrokerId]
    """Replicas whose brokers are not registered. Empty before the candidate's own broker has registered."""
    knows_dead: bool
    """Its own broker has registered."""


@dataclass(frozen=True, slots=True)
class ElectionChoice:
    """The verdict, its reason if it is not LEAD, and the ISR that is written with a leadership."""

    verdict: ElectionVerdict
    reason: str = ""
    isr: Replicas = ()


def next_epoch(view: PartitionView, latest: Epoch) -> Epoch:
    """Return the epoch of the next leadership: above every epoch in the nodes and above `latest`."""
    written = -1 if view.leader is None else view.leader.epoch
    return max(view.epoch, written, latest, FIRST_EPOCH - 1) + 1


def choose(view: PartitionView, candidate: Candidate) -> ElectionChoice:
    """Return the choice of the candidate in a partition without a leader."""
    if view.replicas is None:
        return ElectionChoice(ElectionVerdict.STAY, "the replica list does not exist yet")
    if candidate.id not in view.replicas:
        return ElectionChoice(ElectionVerdict.STAY, "the replica is not assigned yet")
    if view.isr is None:
        return _choose_first(view, candidate)
    if candidate.id in view.isr.ids:
        return _choose_clean(view, candidate, view.isr.ids)
    if view.unclean_election:
        return _choose_unclean(view, candidate, view.isr.ids)
    return ElectionChoice(ElectionVerdict.STAY, "the replica is not in the ISR")


def _choose_first(view: PartitionView, candidate: Candidate) -> ElectionChoice:
    """Return the choice for a partition without an ISR.

    If it has had a leader, nobody knows which replicas have its records: only an unclean election is possible.
    """
    if candidate.latest_epoch >= FIRST_EPOCH and not view.unclean_election:
        return ElectionChoice(ElectionVerdict.STAY, NO_ISR)
    assert view.replicas is not None, view
    return _delay(view, candidate, view.replicas) or ElectionChoice(
        ElectionVerdict.LEAD, isr=(candidate.id,)
    )


def _choose_clean(view: PartitionView, candidate: Candidate, isr: Replicas) -> ElectionChoice:
    return _delay(view, candidate, isr) or ElectionChoice(ElectionVerdict.LEAD, isr=isr)


def _choose_unclean(view: PartitionView, candidate: Candidate, isr: Replicas) -> ElectionChoice:
    """Return the choice of a replica outside the ISR.

    An unclean election loses records: it waits at least once, and until every member of the ISR is dead.
    """
    if not candidate.knows_dead or not candidate.dead.issuperset(isr):
        return ElectionChoice(ElectionVerdict.WAIT, "a member of the ISR may be alive")
    if not candidate.has_waited:
        return ElectionChoice(ElectionVerdict.WAIT, "a member of the ISR may return")
    return ElectionChoice(ElectionVerdict.LEAD, isr=(candidate.id,))


def _delay(view: PartitionView, candidate: Candidate, electable: Replicas) -> ElectionChoice | None:
    """Return the choice to wait, None if it is the candidate's turn.

    A partition that is being deleted is in no hurry: its leader closes its replica first, and the other replicas have
    their close requests. An election would be wasted.
    """
    assert view.replicas, view
    if candidate.has_waited:
        return None
    if view.is_being_deleted:
        return ElectionChoice(ElectionVerdict.WAIT, "the partition is being deleted")
    preferred = view.replicas[0]
    if preferred == candidate.id or preferred not in electable or preferred in candidate.dead:
        return None
    return ElectionChoice(ElectionVerdict.YIELD, "the preferred replica goes first")


def may_take_over(view: PartitionView, live: frozenset[BrokerId]) -> bool:
    """Return True if the preferred replica does not lead, but is registered and in the ISR."""
    if not view.replicas or view.leader is None or view.isr is None:
        return False
    preferred = view.replicas[0]
    return preferred != view.leader.broker_id and preferred in view.isr.ids and preferred in live


class Elections:
    """The elections of one broker's replicas."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def decide(self, replica: Replica, view: PartitionView, live: frozenset[BrokerId]) -> None:
        """Act on a partition without a leader: write a leadership, wait, or stay."""
        context = self._context
        if context.leads(replica):
            context.end_role(replica)
        choice = choose(view, self._candidate(replica, view, live))
        if replica.is_offline:
            choice = ElectionChoice(ElectionVerdict.STAY, "the log directory has failed")
        if choice.verdict is ElectionVerdict.LEAD:
            epoch = next_epoch(view, replica.epoch)
            if context.move(replica, HostedReplicaStatus.ELECTING, epoch):
                context.write(replica, TryToLead(replica.tp, view, epoch, choice.isr))
            return
        context.move(replica, HostedReplicaStatus.WAITING)
        if choice.verdict in (ElectionVerdict.WAIT, ElectionVerdict.YIELD):
            context.wait(replica, is_for_preferred=choice.verdict is ElectionVerdict.YIELD)
        elif view.isr is None and view.replicas is not None and replica.epoch >= FIRST_EPOCH:
            context.refuse(replica, view, choice.reason)
            context.wait(replica)  # no watch fires when another program makes the node again

    def _candidate(
        self, replica: Replica, view: PartitionView, live: frozenset[BrokerId]
    ) -> Candidate:
        context = self._context
        others = (*(view.replicas or ()), *(() if view.isr is None else view.isr.ids))
        dead = frozenset(others) - live - {context.broker_id}
        return Candidate(
            context.broker_id,
            replica.epoch,
            replica.has_waited,
            dead if context.is_registered else frozenset(),
            context.is_registered,
        )
