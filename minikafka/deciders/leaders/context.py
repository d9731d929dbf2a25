"""What one broker knows about its replicas, and the commands that the current event has caused so far.

Invariants: a replica changes its status only by `Context.move`, along the table in `states.py`, and its epoch never
falls.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from minikafka.base.model import NO_EPOCH, NO_LEADER, BrokerId, Epoch, TopicPartition
from minikafka.deciders.leaders.commands import (
    BecomeFollower,
    BecomeLeader,
    Command,
    CompleteReassignment,
    EndRole,
    GiveUpLeadership,
    Note,
    PartitionWrite,
    RaiseEpoch,
    TryToLead,
    Unwatch,
    WaitToElect,
    WatchPartition,
    WatchReassignments,
)
from minikafka.deciders.leaders.model import PartitionView, StateChange
from minikafka.deciders.leaders.states import LEADERS, ROLES, HostedReplicaStatus, is_legal

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Replica:
    """A replica that this broker hosts."""

    tp: TopicPartition
    topic_id: bytes
    is_new: bool
    """It has no log yet, and may be created in any log directory."""
    status: HostedReplicaStatus = HostedReplicaStatus.ABSENT
    leader: BrokerId = NO_LEADER
    """The leader of the latest role, this broker included. Unknown after the end of a lease."""
    epoch: Epoch = NO_EPOCH
    """The epoch of the latest role. No role has a lower epoch."""
    is_offline: bool = False
    """Its log directory has failed."""
    is_watched: bool = False
    is_waiting: bool = False
    """A `WaitToElect` is running."""
    has_waited: bool = False
    """It has waited for the preferred replica since it last knew a leader."""
    last_write: PartitionWrite | None = None
    last_refusal: tuple[str, PartitionView] | None = None
    # Of a leader.
    view: PartitionView | None = None
    """The latest view in the epoch that this broker leads."""
    hosts: frozenset[BrokerId] = frozenset()
    """The brokers that may host a replica in the epoch that this broker leads."""
    started_epoch: Epoch = NO_EPOCH
    """The epoch in which the start requests of the reassignment were sent."""
    is_deletion_requested: bool = False
    """Every replica got a close request in this leadership, because the partition is being deleted."""
    closes: tuple[tuple[BrokerId, StateChange], ...] = ()
    """The close requests in the latest multi, whose outcome is unknown."""
    written: tuple[Epoch, frozenset[BrokerId]] = (NO_EPOCH, frozenset())
    """The epoch in the latest multi, and the brokers that host a replica if it is accepted."""


@dataclass(slots=True)
class Context:
    """All replicas of one broker, and the commands of the event in progress."""

    broker_id: BrokerId
    replicas: dict[TopicPartition, Replica] = field(default_factory=dict)
    is_registered: bool = False
    unread: dict[TopicPartition, tuple[bool, bytes | None]] = field(default_factory=dict)
    """Partitions whose nodes could not be parsed at the scan -> whether there is a log, and its topic id."""
    commands: list[Command] = field(default_factory=list)

    def emit(self, *commands: Command) -> None:
        """Add commands of the event in progress."""
        self.commands.extend(commands)

    def take_commands(self) -> list[Command]:
        """Return the commands of the event, in order, and forget them."""
        taken, self.commands = self.commands, []
        return taken

    def status(self, tp: TopicPartition) -> HostedReplicaStatus:
        """Return the status of a replica; absent if this broker does not host it."""
        replica = self.replicas.get(tp)
        return HostedReplicaStatus.ABSENT if replica is None else replica.status

    def host(self, tp: TopicPartition, topic_id: bytes, *, is_new: bool) -> Replica:
        """Add a partition to those that this broker hosts, and watch it; return its replica."""
        self.unread.pop(tp, None)
        replica = self.replicas.get(tp)
        if replica is None:
            replica = self.replicas[tp] = Replica(tp, topic_id, is_new)
            self.move(replica, HostedReplicaStatus.WAITING)
        if not replica.is_watched:
            replica.is_watched = True
            self.emit(WatchPartition(tp))
        return replica

    def forget(self, replica: Replica) -> None:
        """Remove a hosted replica: end its role and its watches. The caller closes its log."""
        self.move(replica, HostedReplicaStatus.ABSENT)
        if replica.is_watched:
            self.emit(Unwatch(replica.tp))
        del self.replicas[replica.tp]

    def move(
        self, replica: Replica, target: HostedReplicaStatus, epoch: Epoch | None = None
    ) -> bool:
        """Move a replica, and return True, if the table allows it. Note the move, or its refusal.

        `epoch`: the epoch of a role that the move begins, by default that of the replica's last role.
        """
        source = replica.status
        epoch = replica.epoch if epoch is None else epoch
        move = {"source": source.value, "target": target.value, "epoch": epoch}
        if not is_legal(source, target):
            text = f"partition {replica.tp} cannot go from {source.value} to {target.value}"
            logger.error("[Broker id=%d] %s", self.broker_id, text)
            self.emit(Note(text, replica.tp, {"kind": "illegal", **move}))
            return False
        if source is not target:
            replica.status = target
            text = f"partition {replica.tp} goes from {source.value} to {target.value}"
            self.emit(Note(text, replica.tp, {"kind": "move", **move}))
        return True

    def refuse(
        self, replica: Replica, view: PartitionView, reason: str, level: int = logging.WARNING
    ) -> None:
        """Note once per view why the broker does nothing about a partition. `level`: INFO if there is no fault."""
        if replica.last_refusal != (reason, view):
            replica.last_refusal = (reason, view)
            self.note_refusal(replica.tp, reason, level)

    def note_refusal(self, tp: TopicPartition, reason: str, level: int = logging.WARNING) -> None:
        """Note why the broker does nothing about a partition."""
        logger.log(level, "[Broker id=%d] partition %s: %s", self.broker_id, tp, reason)
        self.emit(Note(f"partition {tp}: {reason}", tp, {"kind": "refuse", "reason": reason}))

    def end_role(self, replica: Replica) -> None:
        """Stop leading or following, and wait."""
        if replica.status in ROLES:
            self.emit(EndRole(replica.tp))
        self.move(replica, HostedReplicaStatus.WAITING)

    def write(self, replica: Replica, write: PartitionWrite) -> None:
        """Emit a write, or wait first if the same write at the same view was the last one."""
        if write == replica.last_write:
            self.wait(
                replica
            )  # ZooKeeper has refused it: without a wait it would be sent in a loop
            return
        replica.last_write = write
        if not isinstance(write, GiveUpLeadership):
            self._check_leadership(replica, write)
            replica.written = (write.epoch, _hosts_after(write))
        self.emit(write)

    def _check_leadership(
        self, replica: Replica, write: TryToLead | RaiseEpoch | CompleteReassignment
    ) -> None:
        """Assert the invariants of a leadership that is about to be written, whatever the nodes contain."""
        view, hosts = write.view, _hosts_after(write)
        assert write.epoch > max(replica.epoch, view.epoch), (write, replica)
        match write:
            case CompleteReassignment():
                members = () if view.isr is None else view.isr.ids
                assert self.leads(replica), (write, replica)
                assert hosts, write
                assert hosts <= set(members), write
            case RaiseEpoch():
                assert self.leads(replica), (write, replica)
                assert self.broker_id in write.isr, write
                assert hosts.issuperset(write.isr), write
            case TryToLead():
                assert replica.status is HostedReplicaStatus.ELECTING, (write, replica)
                assert self.broker_id in (view.replicas or ()), write
                assert self.broker_id in write.isr, write

    def wait(self, replica: Replica, *, is_for_preferred: bool = False) -> None:
        """Emit `WaitToElect`, unless the replica is waiting already."""
        if not replica.is_waiting:
            replica.is_waiting = True
            self.emit(WaitToElect(replica.tp, is_for_preferred))

    def follow(self, replica: Replica, view: PartitionView) -> None:
        """Become a follower of the leader in the view, unless this broker follows it already."""
        assert view.leader is not None, view
        role = (view.leader.broker_id, view.leader.epoch)
        if replica.status is HostedReplicaStatus.FOLLOWING and role == (
            replica.leader,
            replica.epoch,
        ):
            return
        if self.move(replica, HostedReplicaStatus.FOLLOWING, view.leader.epoch):
            self.emit(BecomeFollower(replica.tp, view, replica.is_new))
            self._take_role(replica, view)

    def lead(self, replica: Replica, view: PartitionView) -> bool:
        """Become leader in the epoch of the view, or lead on in it. Return False if the move is not legal."""
        assert view.leader is not None, view
        assert view.leader.is_ours, view
        is_renewal = replica.status is HostedReplicaStatus.LEADING
        if not self.leads(replica):
            replica.is_deletion_requested = False
        target = HostedReplicaStatus.LEADING if is_renewal else HostedReplicaStatus.OPENING
        if not self.move(replica, target, view.leader.epoch):
            return False
        self.emit(
            BecomeLeader(replica.tp, view, replica.is_new, is_renewal),
            *(() if is_renewal else (WatchReassignments(replica.tp.topic),)),
        )
        # Who has left AR ∪ RAR must be closed too: since the multi was written, and before it, while still in the ISR.
        # The ISR may lose such a replica before it is closed.
        epoch, hosts = replica.written
        isr = () if view.isr is None else view.isr.ids
        replica.hosts = view.hosts.union(isr, hosts if view.leader.epoch == epoch else ())
        self._take_role(replica, view)
        return True

    def _take_role(self, replica: Replica, view: PartitionView) -> None:
        assert view.leader is not None, view
        assert view.leader.epoch >= replica.epoch, (view, replica)
        replica.leader, replica.epoch = view.leader.broker_id, view.leader.epoch
        replica.has_waited = replica.is_new = False

    def check(self, replica: Replica) -> None:
        """Assert the invariants of a hosted replica after an event."""
        assert self.replicas[replica.tp] is replica, replica
        assert replica.status is not HostedReplicaStatus.ABSENT, replica
        if replica.status in LEADERS:
            # Only an accepted election makes a leader: the node of its view belongs to this broker's session.
            assert replica.leader == self.broker_id, replica
            assert replica.view is not None, replica
            assert replica.view.leader is not None, replica
            assert replica.view.leader.is_ours, replica
        elif replica.status is HostedReplicaStatus.FOLLOWING:
            assert replica.leader != self.broker_id, replica

    def leads(self, replica: Replica) -> bool:
        """True if this broker is the partition's leader, open to clients or not."""
        return replica.status in LEADERS

    def end_lease(self) -> None:
        """Stop leading, and drop elections in progress. The watches are gone, and commands may have been dropped.

        Followers keep their role, and take it again when the partition is read.
        """
        self.is_registered = False
        self.unread.clear()
        for replica in self.replicas.values():
            if replica.status is not HostedReplicaStatus.FOLLOWING:
                self.end_role(replica)
            replica.leader = NO_LEADER
            replica.is_watched = replica.is_waiting = replica.has_waited = False
            replica.last_write = replica.last_refusal = None


def _hosts_after(write: TryToLead | RaiseEpoch | CompleteReassignment) -> frozenset[BrokerId]:
    """Return the brokers that host a replica after the write."""
    target = write.view.reassignment
    if isinstance(write, CompleteReassignment) and target is not None:
        return frozenset(target.replicas)
    return write.view.hosts
