"""The decision about one partition that was read: lead, follow, try to become the leader, or wait (C4).

A view is compared with the replica's role, whatever caused the read. Nodes that contradict each other or the role were
written by another program: they are noted, and no role is taken because of them.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.model import NO_LEADER, BrokerId
from minikafka.deciders.leaders.commands import GiveUpLeadership
from minikafka.deciders.leaders.context import Context, Replica
from minikafka.deciders.leaders.election import Elections, may_take_over
from minikafka.deciders.leaders.model import PartitionView
from minikafka.deciders.leaders.reassignment import LedReassignments
from minikafka.deciders.leaders.states import HostedReplicaStatus

NOT_A_REPLICA: Final = "this broker is not in AR or RAR"
UNREADABLE: Final = "a node of the partition cannot be read"


class Partitions:
    """Decides about the partitions whose replicas one broker hosts."""

    def __init__(self, context: Context, reassignments: LedReassignments) -> None:
        self._context = context
        self._reassignments = reassignments
        self._elections = Elections(context)

    def decide(self, replica: Replica, view: PartitionView, live: frozenset[BrokerId]) -> None:
        """Act on the difference between what was read and what the replica does."""
        context, leader = self._context, view.leader
        if not view.is_readable:
            context.refuse(replica, view, UNREADABLE)
            context.wait(replica)  # no watch fires when the node is repaired
            if view.has_readable_roles:
                self._decide_role(replica, view, live)
            return
        self._reassignments.note_closes(replica, view)
        if view.topic_id != replica.topic_id:
            self._leave(replica, view, "the topic has another id or does not exist")
        elif context.broker_id not in view.hosts:
            self._leave(replica, view, NOT_A_REPLICA)
        elif leader is None:
            self._elections.decide(replica, view, live)
        elif leader.broker_id == context.broker_id:
            self._decide_own(replica, view, live, is_ours=leader.is_ours)
        elif leader.is_ours:
            context.refuse(replica, view, "another program has written this broker's node leader")
            self.give_up(replica, view)
        else:
            self._decide_follow(replica, view)

    def _decide_role(
        self, replica: Replica, view: PartitionView, live: frozenset[BrokerId]
    ) -> None:
        """Elect and follow leaders of a partition whose reassignment is unreadable. No replica is closed meanwhile."""
        context, leader = self._context, view.leader
        if view.topic_id != replica.topic_id or context.broker_id not in (view.replicas or ()):
            return
        if leader is None:
            self._elections.decide(replica, view, live)
        elif leader.broker_id != context.broker_id:
            self._decide_follow(replica, view)
        elif not context.leads(replica):
            self._decide_own(replica, view, live, is_ours=leader.is_ours)

    def _leave(self, replica: Replica, view: PartitionView, reason: str) -> None:
        """End the role of a replica without a place. Only a close request, or the scan of a start, removes its log."""
        self._context.refuse(replica, view, reason, logging.INFO)
        self._context.end_role(replica)
        self._give_up(replica, view)

    def _give_up(self, replica: Replica, view: PartitionView) -> None:
        if view.leader is not None and view.leader.is_ours and view.isr is not None:
            self._context.write(replica, GiveUpLeadership(replica.tp, view))

    def give_up(self, replica: Replica, view: PartitionView) -> None:
        """Stop leading and delete the node `leader`, so that another replica is elected."""
        self._context.end_role(replica)
        self._give_up(replica, view)

    def _decide_own(
        self, replica: Replica, view: PartitionView, live: frozenset[BrokerId], *, is_ours: bool
    ) -> None:
        """Act on a node `leader` with this broker's id."""
        context = self._context
        if not is_ours:
            # A former session wrote the node, which lasts until that session ends.
            context.end_role(replica)
        elif context.leads(replica):
            self._lead_on(replica, view, live)
        elif replica.status is not HostedReplicaStatus.ELECTING:
            # The replica has stopped leading, or lost its data, after the node was written.
            reason = "this broker leads in ZooKeeper, but has not just asked to"
            context.refuse(replica, view, reason, logging.INFO)
            self.give_up(replica, view)
        elif not self._is_consistent(replica, view):
            self.give_up(replica, view)
        elif context.lead(replica, view):
            self._reassignments.advance(replica, view)

    def _lead_on(self, replica: Replica, view: PartitionView, live: frozenset[BrokerId]) -> None:
        """Keep leading, in a higher epoch if the nodes ask for it."""
        assert view.leader is not None, view
        if self._context.broker_id not in (view.replicas or ()):
            # It completed a reassignment to other brokers, and may be in the next one already.
            self.give_up(replica, view)
        elif view.isr is None:
            # A new ISR node could only be guessed: the leader serves on with the ISR that it knows.
            self._context.refuse(replica, view, "the node ISR does not exist")
        elif not self._is_consistent(replica, view):
            self._reassignments.renew(replica, view)
        elif _has_other_replicas(replica, view) and may_take_over(view, live):
            self.give_up(replica, view)
        else:
            if view.leader.epoch > replica.epoch:
                self._context.lead(replica, view)
            self._reassignments.advance(replica, view)

    def _is_consistent(self, replica: Replica, view: PartitionView) -> bool:
        """True if this broker's leadership in the view is complete; note the fault otherwise."""
        assert view.leader is not None, view
        members = () if view.isr is None else view.isr.ids
        if view.is_torn:
            reason = f"leader has epoch {view.leader.epoch}, but ISR has epoch {view.epoch}"
        elif view.leader.epoch < replica.epoch:
            reason = f"epoch {view.leader.epoch} is lower than the known epoch {replica.epoch}"
        elif self._context.broker_id not in members:
            reason = "this broker leads, but is not in the ISR"
        else:
            return True
        self._context.refuse(replica, view, reason)
        return False

    def _decide_follow(self, replica: Replica, view: PartitionView) -> None:
        """Follow the leader in the view, unless its epoch contradicts the ISR, or what the replica knows."""
        context, leader = self._context, view.leader
        assert leader is not None, view
        if context.leads(replica):
            context.end_role(replica)
        if view.is_torn:
            # An honest change shows an old leader with a new ISR for a moment: read it again.
            reason = f"leader has epoch {leader.epoch}, but ISR has epoch {view.epoch}"
            context.refuse(replica, view, reason)
            context.wait(replica)
        elif leader.epoch < replica.epoch:
            reason = f"epoch {leader.epoch} is lower than the known epoch {replica.epoch}"
            context.refuse(replica, view, reason)
        elif leader.epoch == replica.epoch and replica.leader not in (NO_LEADER, leader.broker_id):
            reason = f"epoch {leader.epoch} has had another leader, broker {replica.leader}"
            context.refuse(replica, view, reason)
        else:
            context.follow(replica, view)


def _has_other_replicas(replica: Replica, view: PartitionView) -> bool:
    """True if a reassignment has been completed since the last view of this leader (C31)."""
    return replica.view is not None and replica.view.replicas != view.replicas
