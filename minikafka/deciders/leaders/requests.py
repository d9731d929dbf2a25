"""The state-change requests in this broker's queue, and the scan of all replicas (C1, C5 to C8, C14, C15, C41).

Every request is consumed, after its other commands. A request without an effect is noted: it is stale, forged, or
repeated.

    start     this broker must be in AR ∪ RAR of this topic id. With a leader, the request has the epoch of the ISR and
              comes from this leader, or it comes from the administrator's side with epoch -1
    close     without a fence by epoch: a broker that was down has missed epochs. The topic id must be that of the
              local log. This broker must be outside AR ∪ RAR and the ISR, unless the partition is deleted
    rescan    start requests were dropped from a full queue: the broker scans as at its start
"""

from __future__ import annotations

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.deciders.leaders import notes
from minikafka.deciders.leaders.commands import (
    CloseReplica,
    Consume,
    EndRole,
    GiveUpLeadership,
    Scan,
    WaitToElect,
)
from minikafka.deciders.leaders.context import Context, Replica
from minikafka.deciders.leaders.events import RequestReceived, Scanned
from minikafka.deciders.leaders.model import (
    FROM_ADMINISTRATOR,
    Operation,
    PartitionView,
    StateChange,
)
from minikafka.deciders.leaders.partitions import NOT_A_REPLICA, UNREADABLE, Partitions
from minikafka.deciders.leaders.states import ROLES


class Requests:
    """Handles one broker's queue and scans."""

    def __init__(self, context: Context, partitions: Partitions) -> None:
        self._context = context
        self._partitions = partitions

    def handle(self, event: RequestReceived) -> None:
        """Carry out a request, or note why it has no effect; then consume it."""
        me, request = self._context.broker_id, event.request
        self._context.emit(notes.received(request, me))
        reason = self._carry_out(event)
        outcome = notes.refused(request, me, reason) if reason else notes.completed(request, me)
        # The entry is deleted last: a crash before that repeats the request.
        self._context.emit(outcome, Consume(event.entry))

    def _carry_out(self, event: RequestReceived) -> str:
        """Carry out a request. Return why it has no effect, "" on success."""
        match event.request.operation:
            case Operation.START:
                return self._start(event)
            case Operation.CLOSE:
                return self._close(event)
            case Operation.RESCAN:
                self._context.emit(Scan())
                return ""

    def scan(self, event: Scanned) -> None:
        """Host every replica in AR ∪ RAR, and close the replicas on disk that have no place in the partition."""
        for tp, view in event.views.items():
            if view.is_readable or self._is_replica_on_disk(view, event.on_disk.get(tp)):
                self.scan_one(tp, view, event.live, tp in event.on_disk, event.on_disk.get(tp))
            else:
                self._context.unread[tp] = (tp in event.on_disk, event.on_disk.get(tp))
                self._context.note_refusal(tp, UNREADABLE)
                self._context.emit(WaitToElect(tp))  # no watch fires when the node is repaired

    def _is_replica_on_disk(self, view: PartitionView, disk_id: bytes | None) -> bool:
        """True if only the reassignment is unreadable, and this broker has the log of an assigned replica."""
        is_replica = self._context.broker_id in (view.replicas or ())
        return (
            view.has_readable_roles
            and is_replica
            and disk_id is not None
            and disk_id == view.topic_id
        )

    def scan_one(
        self,
        tp: TopicPartition,
        view: PartitionView,
        live: frozenset[BrokerId],
        is_on_disk: bool,
        disk_id: bytes | None,
    ) -> None:
        """Host or close one replica. `disk_id`: topic id of its log, None for a log without an id."""
        context, me = self._context, self._context.broker_id
        replica = context.replicas.get(tp)
        if replica is not None:
            is_on_disk, disk_id = True, replica.topic_id
        if is_on_disk and not (_has_place(view, me) and disk_id in (None, view.topic_id)):
            self._close_stray(tp, view, replica, disk_id)
            is_on_disk = False
        is_added = me in view.hosts and not view.is_being_deleted
        if view.topic_id is not None and (is_on_disk or is_added):
            is_first = view.isr is None or me not in (view.replicas or ())
            replica = context.host(tp, view.topic_id, is_new=is_first and not is_on_disk)
            self._partitions.decide(replica, view, live)

    def _close_stray(
        self,
        tp: TopicPartition,
        view: PartitionView,
        replica: Replica | None,
        disk_id: bytes | None,
    ) -> None:
        if replica is None:
            self._context.emit(CloseReplica(tp, disk_id, is_stray=True))
        else:
            self._remove(replica, view, is_stray=True)

    def _start(self, event: RequestReceived) -> str:
        """Host the replica, and lead, follow or wait. Return why not, "" on success (C8, C14)."""
        context, request, view = self._context, event.request, event.view
        if reason := _start_fence(request, view, context.broker_id):
            return reason
        assert view.topic_id is not None, view
        replica = context.replicas.get(request.tp)
        if replica is not None and replica.topic_id != view.topic_id:
            self._remove(replica, view, is_stray=True)
        is_new = view.isr is None or context.broker_id not in view.isr.ids
        replica = context.host(request.tp, view.topic_id, is_new=is_new)
        self._partitions.decide(replica, view, event.live)
        return ""

    def _close(self, event: RequestReceived) -> str:
        """Delete the replica of the request's topic id. Return why not, "" on success (C7, C15)."""
        context, request, view = self._context, event.request, event.view
        replica = context.replicas.get(request.tp)
        if reason := _close_fence(request, view, context.broker_id, replica):
            return reason
        if replica is None:
            # Before the scan, or after a crash, there may be a log nevertheless.
            context.emit(CloseReplica(request.tp, request.topic_id))
        else:
            self._remove(replica, view, is_stray=False)
        return ""

    def _remove(self, replica: Replica, view: PartitionView, *, is_stray: bool) -> None:
        """Stop the replica, delete its leadership, and close its log."""
        context = self._context
        if replica.status in ROLES:
            context.emit(EndRole(replica.tp))
        if view.leader is not None and view.leader.is_ours and view.isr is not None:
            context.emit(GiveUpLeadership(replica.tp, view))
        context.forget(replica)
        context.emit(CloseReplica(replica.tp, replica.topic_id, is_stray))


def _start_fence(request: StateChange, view: PartitionView, me: BrokerId) -> str:
    """Return why a start request has no effect, or ""."""
    if not view.is_readable:
        return UNREADABLE
    if view.topic_id is None:
        return "the topic does not exist"
    if request.topic_id != view.topic_id:
        return "the topic has another id"
    if view.is_being_deleted:
        return "the partition is being deleted"
    if me not in view.hosts:
        return NOT_A_REPLICA
    if view.leader is None or (request.epoch, request.sender) == (FROM_ADMINISTRATOR,) * 2:
        return ""
    if request.epoch != view.epoch:
        return f"the partition has epoch {view.epoch}"
    if request.sender != view.leader.broker_id:
        return f"broker {view.leader.broker_id} leads in this epoch"
    return ""


def _close_fence(
    request: StateChange, view: PartitionView, me: BrokerId, replica: Replica | None
) -> str:
    """Return why a close request has no effect, or ""."""
    if not view.is_readable:
        return UNREADABLE
    if request.topic_id is None:
        return "the request has no topic id"
    if replica is not None and replica.topic_id != request.topic_id:
        return "the replica has another topic id"
    if view.topic_id == request.topic_id and not view.is_being_deleted and _has_place(view, me):
        return "this broker is in AR, RAR or the ISR"
    return ""


def _has_place(view: PartitionView, me: BrokerId) -> bool:
    """True if the topic exists, and this broker is in AR, RAR or the ISR.

    A broker that is only in the ISR is about to get a close request: its leader takes it out of the ISR.
    """
    isr = () if view.isr is None else view.isr.ids
    return view.topic_id is not None and (me in view.hosts or me in isr)
