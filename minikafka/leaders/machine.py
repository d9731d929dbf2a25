"""One broker of the leader-coordinated mode as a state machine: `handle` takes an event and returns effects.

The machine is level-triggered: it compares each view with its picture, and does not care why the partition was read.
After an effect that writes to ZooKeeper, the next view shows whether the write was accepted: a won election is a view
with a leader of this broker's own session. A lost answer therefore needs no handling of its own. Invariants: an epoch
that a replica has had a role in is never followed by a lower one, and only an accepted election makes a leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.leaders.balance import Balance
from minikafka.leaders.events import (
    BalanceDue,
    CaughtUp,
    Effect,
    ElectionWaitEnded,
    Event,
    GiveUpLeadership,
    IsrConflict,
    LeaseEnded,
    Open,
    PartitionRead,
    Registered,
    ReplicasOffline,
    RequestReceived,
    Scanned,
    WaitToElect,
)
from minikafka.leaders.model import PartitionView, ReplicaStatus
from minikafka.leaders.partitions import Partitions
from minikafka.leaders.picture import Picture, Replica
from minikafka.leaders.reassignment import Reassignments
from minikafka.leaders.requests import Requests


class LeadersMachine:
    """The decisions of one broker about the replicas that it hosts."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._picture = picture = Picture(broker_id)
        self._reassignments = Reassignments(picture)
        self._partitions = Partitions(picture, self._reassignments)
        self._requests = Requests(picture, self._partitions)
        self._balance = Balance(picture, self._partitions, self._reassignments)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Scanned: self._requests.scan,
            PartitionRead: self._on_partition_read,
            RequestReceived: self._requests.handle,
            Registered: self._on_registered,
            ElectionWaitEnded: self._on_wait_ended,
            CaughtUp: self._on_caught_up,
            IsrConflict: self._on_isr_conflict,
            BalanceDue: self._balance.check,
            ReplicasOffline: self._on_replicas_offline,
            LeaseEnded: self._on_lease_ended,
        }

    @property
    def replicas(self) -> Mapping[TopicPartition, Replica]:
        """The replicas that this broker hosts, for reports. Read-only for callers."""
        return self._picture.replicas

    def status(self, tp: TopicPartition) -> ReplicaStatus:
        """Return the status of this broker's replica of a partition."""
        return self._picture.status(tp)

    def handle(self, event: Event) -> list[Effect]:
        """Return the effects of an event, in the order in which they must be carried out."""
        self._handlers[type(event)](event)
        return self._picture.drain()

    def _on_partition_read(self, event: PartitionRead) -> None:
        replica = self._picture.replicas.get(event.tp)
        if replica is not None:
            self._partitions.decide(replica, event.view, event.live)
        else:
            self._decide_absent(event.tp, event.view, event.live)

    def _decide_absent(
        self, tp: TopicPartition, view: PartitionView, live: frozenset[BrokerId]
    ) -> None:
        """Scan a partition that the scan of the start could not read; delete a leadership without a replica."""
        unread = self._picture.unread.get(tp)
        if unread is not None and view.is_readable:
            del self._picture.unread[tp]
            self._requests.scan_one(tp, view, live, *unread)
        elif view.leader is not None and view.leader.is_ours and view.isr is not None:
            self._picture.emit(GiveUpLeadership(tp, view))

    def _on_registered(self, _: Registered) -> None:
        self._picture.is_registered = True

    def _on_wait_ended(self, event: ElectionWaitEnded) -> None:
        replica = self._picture.replicas.get(event.tp)
        if replica is None:
            self._decide_absent(event.tp, event.view, event.live)
            if event.tp in self._picture.unread:
                self._picture.emit(WaitToElect(event.tp))
            return
        replica.is_waiting = False
        replica.last_write = None
        replica.has_waited = replica.status is ReplicaStatus.WAITING or replica.has_waited
        self._partitions.decide(replica, event.view, event.live)

    def _on_caught_up(self, event: CaughtUp) -> None:
        """Open to clients, then look at the reassignment: its unread start requests are stale (C17)."""
        replica = self._picture.replicas.get(event.tp)
        if replica is None or replica.status is not ReplicaStatus.OPENING or replica.view is None:
            return
        self._picture.move(replica, ReplicaStatus.LEADING)
        self._picture.emit(Open(event.tp, event.in_sync))
        self._reassignments.check(replica, replica.view)

    def _on_isr_conflict(self, event: IsrConflict) -> None:
        """Lead on in a higher epoch with the ISR in ZooKeeper, if this broker still leads there."""
        replica = self._picture.replicas.get(event.tp)
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
            and self._picture.broker_id in (view.replicas or ())
            and self._picture.leads(replica)
            and leader is not None
            and leader.is_ours
            and leader.epoch == view.epoch == replica.epoch
        )

    def _on_replicas_offline(self, event: ReplicasOffline) -> None:
        """Give up the leaderships of replicas whose log directory has failed; they stand for no election."""
        for tp in event.tps:
            replica = self._picture.replicas.get(tp)
            if replica is None:
                continue
            replica.is_offline = True
            if replica.view is not None and self._picture.leads(replica):
                self._partitions.give_up(replica, replica.view)

    def _on_lease_ended(self, _: LeaseEnded) -> None:
        self._picture.end_lease()
