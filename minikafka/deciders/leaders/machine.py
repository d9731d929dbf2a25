"""One broker of the leader-coordinated mode as a state machine: `handle` takes an event and returns commands.

The machine is level-triggered: it compares each view with its context, and does not care why the partition was read.
After a command that writes to ZooKeeper, the next view shows whether the write was accepted: a won election is a view
with a leader of this broker's own session. A lost answer therefore needs no handling of its own. Invariants: an epoch
that a replica has had a role in is never followed by a lower one, and only an accepted election makes a leader.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.deciders.leaders.commands import Command, GiveUpLeadership, Open, WaitToElect
from minikafka.deciders.leaders.context import Context, Replica
from minikafka.deciders.leaders.election import may_take_over
from minikafka.deciders.leaders.events import (
    BalanceDue,
    CaughtUp,
    ElectionWaitEnded,
    Event,
    IsrConflict,
    LeaseEnded,
    PartitionRead,
    Registered,
    ReplicasOffline,
    RequestReceived,
    Scanned,
)
from minikafka.deciders.leaders.model import PartitionView
from minikafka.deciders.leaders.partitions import Partitions
from minikafka.deciders.leaders.reassignment import LedReassignments
from minikafka.deciders.leaders.requests import Requests
from minikafka.deciders.leaders.states import HostedReplicaStatus


class LeadersMachine:
    """The decisions of one broker about the replicas that it hosts."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._context = context = Context(broker_id)
        self._reassignments = LedReassignments(context)
        self._partitions = Partitions(context, self._reassignments)
        self._requests = Requests(context, self._partitions)

    @property
    def replicas(self) -> Mapping[TopicPartition, Replica]:
        """The replicas that this broker hosts, for reports. Read-only for callers."""
        return self._context.replicas

    def status(self, tp: TopicPartition) -> HostedReplicaStatus:
        """Return the status of this broker's replica of a partition."""
        return self._context.status(tp)

    def handle(self, event: Event, now: int) -> list[Command]:
        """Return the commands of an event, in the order in which they must be carried out.

        `now` (monotonic ms), which all deciders get, has no use here: the host waits as the commands ask it to.
        """
        assert not self._context.commands, self._context.commands
        self._dispatch(event)
        self._check(event)
        return self._context.take_commands()

    def _dispatch(self, event: Event) -> None:
        match event:
            case PartitionRead():
                self._on_partition_read(event)
            case RequestReceived():
                self._requests.handle(event)
            case ElectionWaitEnded():
                self._on_wait_ended(event)
            case CaughtUp():
                self._on_caught_up(event)
            case IsrConflict():
                self._on_isr_conflict(event)
            case Scanned():
                self._requests.scan(event)
            case Registered():
                self._context.is_registered = True
            case BalanceDue():
                self._on_balance_due(event)
            case ReplicasOffline():
                self._on_replicas_offline(event)
            case LeaseEnded():
                self._context.end_lease()

    def _check(self, event: Event) -> None:
        """Assert the invariants of the replicas that the event was about."""
        match event:
            case PartitionRead() | ElectionWaitEnded() | CaughtUp() | IsrConflict():
                tps = [event.tp]
            case RequestReceived():
                tps = [event.request.tp]
            case _:
                tps = list(self._context.replicas)
        for tp in tps:
            if tp in self._context.replicas:
                self._context.check(self._context.replicas[tp])

    # Events about one partition.

    def _on_partition_read(self, event: PartitionRead) -> None:
        replica = self._context.replicas.get(event.tp)
        if replica is not None:
            self._partitions.decide(replica, event.view, event.live)
        else:
            self._decide_absent(event.tp, event.view, event.live)

    def _decide_absent(
        self, tp: TopicPartition, view: PartitionView, live: frozenset[BrokerId]
    ) -> None:
        """Scan a partition that the scan of the start could not read; delete a leadership without a replica."""
        unread = self._context.unread.get(tp)
        if unread is not None and view.is_readable:
            del self._context.unread[tp]
            self._requests.scan_one(tp, view, live, *unread)
        elif view.leader is not None and view.leader.is_ours and view.isr is not None:
            self._context.emit(GiveUpLeadership(tp, view))

    def _on_wait_ended(self, event: ElectionWaitEnded) -> None:
        replica = self._context.replicas.get(event.tp)
        if replica is None:
            self._decide_absent(event.tp, event.view, event.live)
            if event.tp in self._context.unread:
                self._context.emit(WaitToElect(event.tp))
            return
        replica.is_waiting = False
        replica.last_write = None  # after a wait, a refused write may be sent again
        replica.has_waited = replica.status is HostedReplicaStatus.WAITING or replica.has_waited
        self._partitions.decide(replica, event.view, event.live)

    def _on_caught_up(self, event: CaughtUp) -> None:
        """Open to clients, then look at the reassignment: its unread start requests are stale (C17)."""
        replica = self._context.replicas.get(event.tp)
        if (
            replica is None
            or replica.status is not HostedReplicaStatus.OPENING
            or replica.view is None
        ):
            return
        self._context.move(replica, HostedReplicaStatus.LEADING)
        self._context.emit(Open(event.tp, event.in_sync))
        self._reassignments.advance(replica, replica.view)

    def _on_isr_conflict(self, event: IsrConflict) -> None:
        """Lead on in a higher epoch with the ISR in ZooKeeper, if this broker still leads there."""
        replica = self._context.replicas.get(event.tp)
        if replica is None:
            return
        if self._is_leadership(replica, event.view):
            self._reassignments.renew(replica, event.view)
        else:
            self._partitions.decide(replica, event.view, event.live)

    def _is_leadership(self, replica: Replica, view: PartitionView) -> bool:
        """True if the view has this broker's leadership, in the epoch in which it leads."""
        leader = view.leader
        return (
            view.is_readable
            and view.topic_id == replica.topic_id
            and self._context.broker_id in (view.replicas or ())
            and self._context.leads(replica)
            and leader is not None
            and leader.is_ours
            and leader.epoch == view.epoch == replica.epoch
        )

    # Events about many partitions.

    def _on_replicas_offline(self, event: ReplicasOffline) -> None:
        """Give up the leaderships of replicas whose log directory has failed, and elect none of them again."""
        for tp in event.tps:
            replica = self._context.replicas.get(tp)
            if replica is None:
                continue
            replica.is_offline = True
            if replica.view is not None and self._context.leads(replica):
                self._partitions.give_up(replica, replica.view)

    def _on_balance_due(self, event: BalanceDue) -> None:
        """Repeat start requests, then give up each leadership that the preferred replica can take at once (C29)."""
        for tp, view in event.views.items():
            replica = self._context.replicas.get(tp)
            if replica is None:
                continue
            self._reassignments.repeat_starts(replica, view, event.live)
            self._partitions.decide(replica, view, event.live)
            may_move = event.may_move and _is_stable(replica, view)
            if may_move and may_take_over(view, event.live):
                self._partitions.give_up(replica, view)


def _is_stable(replica: Replica, view: PartitionView) -> bool:
    """True if this broker leads in the view's epoch, with the view's replicas and without a reassignment."""
    return (
        replica.status is HostedReplicaStatus.LEADING
        and view.reassignment is None
        and view.epoch == replica.epoch
        and view.hosts == replica.hosts
    )
