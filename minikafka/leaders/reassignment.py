"""What a leader does about the replicas of its partition: reassignment, cancellation, deletion (C9, C10, C30, C31).

    RAR − AR is not empty       raise the epoch, then send start requests in the new epoch
    RAR ⊆ ISR                   make RAR the assigned replicas, in one multi with the close requests
    RAR has lost replicas       send them close requests, then raise the epoch
    RAR is empty                send a close request to every replica, once per leadership

The epoch is raised because a broker takes no second role in one epoch, and a role names AR ∪ RAR. Start requests that
nobody has read by then are stale, so that they are sent in each epoch again. A close request may be sent twice: its
receiver deletes nothing while it is in AR ∪ RAR.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.model import BrokerId, Epoch
from minikafka.leaders import lifecycle
from minikafka.leaders.election import next_epoch
from minikafka.leaders.events import CompleteReassignment, Enqueue, RaiseEpoch
from minikafka.leaders.model import (
    Operation,
    PartitionView,
    Replicas,
    ReplicaStatus,
    StateChange,
)
from minikafka.leaders.picture import Picture, Replica


class Reassignments:
    """The reassignments of the partitions that one broker leads."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def check(self, replica: Replica, view: PartitionView) -> None:
        """Compare the replicas in the view with the replicas that this leader knows, and act on a difference."""
        replica.view = view
        if view.is_being_deleted:
            self._request_deletion(replica, view)
            return
        replica.is_deletion_requested = False
        if replica.status is ReplicaStatus.OPENING:
            return
        isr = () if view.isr is None else view.isr.ids
        target = view.reassignment
        if target is not None and set(target.replicas) <= set(isr):
            self._complete(replica, view, target.replicas)
        elif view.hosts != replica.hosts.union(isr):
            self.renew(replica, view)
        elif target is not None:
            self._start_added(replica, view, target.replicas)

    def renew(self, replica: Replica, view: PartitionView) -> None:
        """Lead on in a higher epoch. Members of the ISR that host no replica leave it.

        Their close requests are sent before: a crash after the write would lose them.
        """
        self.close_removed(replica, view)
        isr = () if view.isr is None else view.isr.ids
        members = tuple(id_ for id_ in isr if id_ in view.hosts)
        if self._picture.broker_id not in members:
            members = (self._picture.broker_id,)
        epoch = next_epoch(view, replica.epoch)
        self._picture.write(replica, RaiseEpoch(replica.tp, view, epoch, members))

    def close_removed(self, replica: Replica, view: PartitionView) -> None:
        """Send close requests to the brokers that hosted a replica in this epoch, and are in no list any longer."""
        isr = () if view.isr is None else view.isr.ids
        removed = replica.hosts.union(isr) - view.hosts - replica.closed
        replica.closed |= removed
        self._send(Operation.CLOSE, replica, view, sorted(removed))

    def note_completion(self, replica: Replica, view: PartitionView) -> None:
        """Note the close requests of a reassignment that the view shows as completed."""
        if not replica.completing or view.epoch < replica.completing[0][1].epoch:
            return
        if not any(id_ in (view.replicas or ()) for id_, _ in replica.completing):
            notes = (lifecycle.requested(request, to) for to, request in replica.completing)
            self._picture.emit(*notes)
            replica.closed |= {id_ for id_, _ in replica.completing}
        replica.completing = ()

    def _complete(self, replica: Replica, view: PartitionView, target: Replicas) -> None:
        epoch = next_epoch(view, replica.epoch)
        leaving = sorted(replica.hosts.union(view.replicas or ()) - set(target))
        closes = tuple(
            (id_, self._request(Operation.CLOSE, replica, view, epoch)) for id_ in leaving
        )
        replica.completing = closes
        self._picture.write(replica, CompleteReassignment(replica.tp, view, epoch, closes))

    def _start_added(self, replica: Replica, view: PartitionView, target: Replicas) -> None:
        if replica.started_epoch == replica.epoch:
            return
        replica.started_epoch = replica.epoch
        assigned = view.replicas or ()
        added = [id_ for id_ in target if id_ not in assigned]
        self._send(Operation.START, replica, view, added)

    def _request_deletion(self, replica: Replica, view: PartitionView) -> None:
        if not replica.is_deletion_requested:
            replica.is_deletion_requested = True
            self._send(Operation.CLOSE, replica, view, sorted(replica.hosts | view.hosts))

    def _send(
        self,
        operation: Operation,
        replica: Replica,
        view: PartitionView,
        receivers: Iterable[BrokerId],
    ) -> None:
        for receiver in receivers:
            request = self._request(operation, replica, view, replica.epoch)
            self._picture.emit(Enqueue(receiver, request), lifecycle.requested(request, receiver))

    def _request(
        self, operation: Operation, replica: Replica, view: PartitionView, epoch: Epoch
    ) -> StateChange:
        return StateChange(operation, replica.tp, view.topic_id, epoch, self._picture.broker_id)
