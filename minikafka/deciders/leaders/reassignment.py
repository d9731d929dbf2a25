"""What a leader does about the replicas of its partition: reassignment, cancellation, deletion (C9, C10, C30, C31).

    RAR − AR is not empty       raise the epoch, then send start requests in the new epoch
    RAR ⊆ ISR                   make RAR the assigned replicas, in one multi with the close requests
    RAR has lost replicas       raise the epoch, in one multi with the close requests
    RAR is empty                send a close request to every replica, once per leadership

The epoch is raised because a broker takes no second role in one epoch, and a role names AR ∪ RAR. Start requests that
nobody has read by then are stale, so that they are sent in each epoch again. A replica is asked to close in the multi
that takes it out of the ISR: a closed replica that is still in the ISR could complete the next reassignment.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.model import BrokerId, Epoch
from minikafka.deciders.leaders import notes
from minikafka.deciders.leaders.commands import CompleteReassignment, Enqueue, RaiseEpoch
from minikafka.deciders.leaders.context import Context, Replica
from minikafka.deciders.leaders.election import next_epoch
from minikafka.deciders.leaders.model import (
    Operation,
    PartitionView,
    Replicas,
    StateChange,
)
from minikafka.deciders.leaders.states import LEADERS, HostedReplicaStatus


class LedReassignments:
    """The reassignments of the partitions that one broker leads."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def advance(self, replica: Replica, view: PartitionView) -> None:
        """Take the next step of the reassignment or deletion that the view of this leader asks for."""
        replica.view = view
        if not view.is_readable:
            return
        if view.is_being_deleted:
            self._request_deletion(replica, view)
            return
        replica.is_deletion_requested = False
        if replica.status is HostedReplicaStatus.OPENING:
            return
        isr = () if view.isr is None else view.isr.ids
        target = view.reassignment
        if target is not None and set(target.replicas) <= set(isr):
            self._complete(replica, view, target.replicas)
        elif view.hosts != replica.hosts.union(isr):
            self.renew(replica, view)
        elif target is not None:
            self._start_added(replica, view)

    def renew(self, replica: Replica, view: PartitionView) -> None:
        """Write a higher epoch. Brokers that no list has any longer leave the ISR, and get close requests."""
        isr = () if view.isr is None else view.isr.ids
        members = tuple(id_ for id_ in isr if id_ in view.hosts)
        if self._context.broker_id not in members:
            members = (self._context.broker_id,)
        epoch = next_epoch(view, replica.epoch)
        closes = self._closes(replica, view, epoch, replica.hosts.union(isr) - view.hosts)
        self._context.write(replica, RaiseEpoch(replica.tp, view, epoch, members, closes))

    def note_closes(self, replica: Replica, view: PartitionView) -> None:
        """Note the close requests of a multi that the view shows as accepted."""
        if not replica.closes or view.epoch < replica.closes[0][1].epoch:
            return
        leader = view.leader
        if leader is not None and leader.is_ours and leader.epoch == replica.closes[0][1].epoch:
            self._context.emit(*(notes.requested(change, to) for to, change in replica.closes))
        replica.closes = ()

    def repeat_starts(
        self, replica: Replica, view: PartitionView, live: frozenset[BrokerId]
    ) -> None:
        """Send start requests again to live brokers of the reassignment that are still outside the ISR.

        A broker forgets its start if it restarts while the reassignment is cancelled, and the leader may not notice a
        reassignment that is cancelled and made again.
        """
        if replica.status is HostedReplicaStatus.LEADING and replica.started_epoch == view.epoch:
            isr = () if view.isr is None else view.isr.ids
            added = self._added(view)
            late = [id_ for id_ in added if id_ in live and id_ not in isr]
            self._send(Operation.START, replica, view, late)

    def _complete(self, replica: Replica, view: PartitionView, target: Replicas) -> None:
        epoch = next_epoch(view, replica.epoch)
        leaving = replica.hosts.union(view.replicas or ()) - set(target)
        closes = self._closes(replica, view, epoch, leaving)
        self._context.write(replica, CompleteReassignment(replica.tp, view, epoch, closes))

    def _closes(
        self, replica: Replica, view: PartitionView, epoch: Epoch, receivers: Iterable[BrokerId]
    ) -> tuple[tuple[BrokerId, StateChange], ...]:
        """Return the close requests of a multi, and keep them until its outcome is known."""
        change = self._request(Operation.CLOSE, replica, view, epoch)
        replica.closes = tuple((id_, change) for id_ in sorted(receivers))
        return replica.closes

    def _added(self, view: PartitionView) -> list[BrokerId]:
        """Return RAR − AR, in the order of RAR."""
        target = () if view.reassignment is None else view.reassignment.replicas
        return [id_ for id_ in target if id_ not in (view.replicas or ())]

    def _start_added(self, replica: Replica, view: PartitionView) -> None:
        if replica.started_epoch != replica.epoch:
            replica.started_epoch = replica.epoch
            self._send(Operation.START, replica, view, self._added(view))

    def _request_deletion(self, replica: Replica, view: PartitionView) -> None:
        if not replica.is_deletion_requested:
            replica.is_deletion_requested = True
            isr = () if view.isr is None else view.isr.ids
            receivers = sorted(replica.hosts.union(view.hosts, isr))
            self._send(Operation.CLOSE, replica, view, receivers)

    def _send(
        self,
        operation: Operation,
        replica: Replica,
        view: PartitionView,
        receivers: Iterable[BrokerId],
    ) -> None:
        assert replica.status in LEADERS, replica  # only a leader asks the other brokers
        for receiver in receivers:
            request = self._request(operation, replica, view, replica.epoch)
            self._context.emit(Enqueue(receiver, request), notes.requested(request, receiver))

    def _request(
        self, operation: Operation, replica: Replica, view: PartitionView, epoch: Epoch
    ) -> StateChange:
        return StateChange(operation, replica.tp, view.topic_id, epoch, self._context.broker_id)
