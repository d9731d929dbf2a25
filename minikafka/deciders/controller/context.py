"""The controller's view of the cluster.

Its indexes keep the work for an event proportional to the number of changed partitions (B5).
Invariants: a partition has an assignment exactly while it is known. `replica_statuses[b]` contains the
partitions with a replica on broker b, `led[b]` contains the partitions whose leader is broker b, and
`unavailable` contains the partitions that are New or Offline. `leadership` contains only states that
ZooKeeper accepted or returned. An Online partition has a leadership.
Sets whose order matters are stored as dicts, so that every process iterates in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from minikafka.base.model import Broker, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.deciders.controller.states import PartitionStatus, ReplicaStatus

REASSIGNMENT_IN_PROGRESS: Final = "topic reassignment in progress"
"""Reason why a topic marked for deletion is not deleted yet and still serves clients (R59)."""


class Context:
    """The brokers, topics, assignments, leaders and states that are known in one controller epoch."""

    __slots__ = (
        "assignments",
        "brokers",
        "controller_id",
        "deletions",
        "epoch",
        "false_suspicions",
        "ineligible",
        "leadership",
        "led",
        "offline_directories",
        "partition_statuses",
        "reassigning",
        "replica_statuses",
        "shutting_down",
        "suspects",
        "suspicions",
        "topic_ids",
        "topics",
        "unavailable",
        "unclean_elections",
        "unclean_elections_of",
    )

    def __init__(self, controller_id: BrokerId, epoch: int) -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        self.brokers: dict[BrokerId, Broker] = {}
        """Registered brokers, including those that are shutting down."""
        self.shutting_down: set[BrokerId] = set()
        self.suspects: dict[BrokerId, int] = {}
        """Registered broker that has probably died -> broker epoch of its registration (`suspicions.py`)."""
        self.offline_directories: dict[BrokerId, set[TopicPartition]] = {}
        """Replicas that a live broker cannot serve, because their log directory failed (R67)."""
        self.topic_ids: dict[str, bytes] = {}
        self.topics: dict[str, dict[TopicPartition, None]] = {}
        self.assignments: dict[TopicPartition, ReplicaAssignment] = {}
        self.leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self.led: dict[BrokerId, dict[TopicPartition, None]] = {}
        self.partition_statuses: dict[TopicPartition, PartitionStatus] = {}
        self.unavailable: dict[TopicPartition, None] = {}
        self.replica_statuses: dict[BrokerId, dict[TopicPartition, ReplicaStatus]] = {}
        self.deletions: frozenset[str] = frozenset()
        """Topics marked for deletion."""
        self.ineligible: dict[str, str] = {}
        """Topic that is marked for deletion but cannot be deleted yet -> reason."""
        self.reassigning: dict[TopicPartition, None] = {}
        """Partitions with a reassignment in progress."""
        self.unclean_elections = 0
        self.unclean_elections_of: dict[TopicPartition, int] = {}
        self.suspicions = self.false_suspicions = 0

    def copy_from(self, other: Context) -> None:
        """Replace the content of this context by a copy of another context, without shared containers."""
        for name in Context.__slots__:
            setattr(self, name, _copy(getattr(other, name)))

    # Brokers.

    def add_broker(self, broker: Broker) -> None:
        """Add a registered broker.

        The shutting-down mark, the suspicion and the failed directories of an earlier registration are removed.
        """
        suspected = self.suspects.get(broker.id) == broker.epoch
        self.forget_broker(broker.id)
        self.brokers[broker.id] = broker
        if suspected:
            self.suspects[broker.id] = broker.epoch

    def forget_broker(self, broker_id: BrokerId) -> None:
        """Remove a broker with its shutting-down mark, its suspicion and its failed directories (R20)."""
        self.brokers.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.suspects.pop(broker_id, None)
        self.offline_directories.pop(broker_id, None)

    def is_online(self, tp: TopicPartition, broker_id: BrokerId) -> bool:
        """True if the replica may be in the ISR, and may stay the leader.

        Its broker must be registered and not shutting down, and its log directory must not have failed.
        """
        return broker_id not in self.shutting_down and self.is_reachable(tp, broker_id)

    def may_lead(self, tp: TopicPartition, broker_id: BrokerId) -> bool:
        """True if the replica may be elected: it is online, and its broker is not a suspect."""
        return broker_id not in self.suspects and self.is_online(tp, broker_id)

    def is_reachable(self, tp: TopicPartition, broker_id: BrokerId) -> bool:
        """True if the replica's broker is registered and its log directory has not failed.

        Unlike `is_online`, this is also True while the broker shuts down (T10).
        """
        return broker_id in self.brokers and tp not in self.offline_directories.get(broker_id, ())

    # Topics and assignments.

    def add_topic(
        self, topic: str, topic_id: bytes | None, assignment: Mapping[int, ReplicaAssignment]
    ) -> None:
        """Add a topic that is not known yet.

        The topic's partitions and replicas are NonExistent until a state machine changes their state.
        """
        if topic_id is not None:
            self.topic_ids[topic] = topic_id
        self.topics[topic] = {}
        for partition in sorted(assignment):
            self.assign(TopicPartition(topic, partition), assignment[partition])

    def assign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Set the assignment of a partition, which may be new. Its topic must be known."""
        self.topics[tp.topic][tp] = None
        self.assignments[tp] = assignment

    def forget_topic(self, topic: str) -> None:
        """Remove everything that is known about a topic."""
        self.topic_ids.pop(topic, None)
        self.deletions -= {topic}
        self.ineligible.pop(topic, None)
        for tp in self.topics.pop(topic, {}):
            for replicas in self.replica_statuses.values():
                replicas.pop(tp, None)
            for directories in self.offline_directories.values():
                directories.discard(tp)
            self.set_partition_status(tp, PartitionStatus.NON_EXISTENT)
            self._forget_leader(tp)
            self.leadership.pop(tp, None)
            self.reassigning.pop(tp, None)
            del self.assignments[tp]

    def replicas(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        """Return the assigned replicas in order; () for an unknown partition."""
        assignment = self.assignments.get(tp)
        return assignment.replicas if assignment else ()

    def is_being_deleted(self, tp: TopicPartition) -> bool:
        """True if the topic is marked for deletion, so that no elections are held for its partitions (L4).

        False while a partition of the topic is being reassigned: the topic serves clients until the
        reassignment ends (R59).
        """
        topic = tp.topic
        return topic in self.deletions and self.ineligible.get(topic) != REASSIGNMENT_IN_PROGRESS

    # Leadership.

    def set_leadership(self, tp: TopicPartition, state: LeaderAndIsr) -> None:
        """Record a leader and ISR that ZooKeeper accepted or returned."""
        assert tp in self.assignments, tp
        assert state.state_version >= 0, (tp, state)  # a proposed state is not known yet
        self._forget_leader(tp)
        self.leadership[tp] = state
        self.led.setdefault(state.leader, {})[tp] = None

    def _forget_leader(self, tp: TopicPartition) -> None:
        known = self.leadership.get(tp)
        if known is not None:
            self.led[known.leader].pop(tp, None)

    # States.

    def partition_status(self, tp: TopicPartition) -> PartitionStatus:
        """Return the partition's state, NonExistent for an unknown partition (B7)."""
        return self.partition_statuses.get(tp, PartitionStatus.NON_EXISTENT)

    def set_partition_status(self, tp: TopicPartition, status: PartitionStatus) -> None:
        """Record the partition's state. Add the partition to `unavailable` if it is New or Offline, else remove it."""
        if status is PartitionStatus.NON_EXISTENT:
            self.partition_statuses.pop(tp, None)
        else:
            assert tp in self.assignments, tp
            assert status is not PartitionStatus.ONLINE or tp in self.leadership, tp
            self.partition_statuses[tp] = status
        if status in (PartitionStatus.NEW, PartitionStatus.OFFLINE):
            self.unavailable[tp] = None
        else:
            self.unavailable.pop(tp, None)

    def replica_status(self, tp: TopicPartition, broker_id: BrokerId) -> ReplicaStatus:
        """Return the replica's state, NonExistent for an unknown replica (B7)."""
        return self.replica_statuses.get(broker_id, {}).get(tp, ReplicaStatus.NON_EXISTENT)

    def set_replica_status(
        self, tp: TopicPartition, broker_id: BrokerId, status: ReplicaStatus
    ) -> None:
        """Record the state of one replica."""
        if status is ReplicaStatus.NON_EXISTENT:
            self.replica_statuses.get(broker_id, {}).pop(tp, None)
        else:
            assert tp in self.assignments, tp
            self.replica_statuses.setdefault(broker_id, {})[tp] = status

    def replicas_to_delete(self) -> list[ReplicaStatus]:
        """Return the states of the replicas that must still be deleted, for all topics in `deletions`."""
        statuses = (
            self.replica_status(tp, broker)
            for topic in self.deletions
            for tp in self.topics.get(topic, ())
            for broker in self.replicas(tp)
        )
        return [one for one in statuses if one is not ReplicaStatus.DELETION_SUCCESSFUL]

    def replicas_on(
        self, broker_ids: Iterable[BrokerId]
    ) -> dict[BrokerId, tuple[TopicPartition, ...]]:
        """Return broker id -> partitions with a replica on that broker, for these brokers."""
        return {broker: tuple(self.replica_statuses.get(broker, ())) for broker in broker_ids}


def _copy(value: Any) -> Any:
    """Return a copy of a dict or set, nested ones included. All other values are immutable and are shared."""
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    if isinstance(value, set):
        return set(value)
    return value
