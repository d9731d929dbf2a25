"""The controller's picture of the cluster (B5-B7), with the indexes that keep its work linear in
what changed.

Invariants: a partition has an assignment exactly while it is known; `replica_statuses[b]` names the
partitions with a replica on broker b; `led[b]` those whose leadership names b; `unavailable` those
that are New or Offline. The picture of leadership holds only what ZooKeeper accepted or said. Sets
are dicts, so that every iteration has one order in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from minikafka.base.model import Broker, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

REASSIGNMENT_IN_PROGRESS: Final = "topic reassignment in progress"
"""Why a marked topic is not deleted yet, and serves clients still (R59)."""


class PartitionStatus(Enum):
    """The four states of a partition (F1), by Kafka's names."""

    __hash__ = object.__hash__  # there is one of each; that of Enum is slow

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(Enum):
    """The seven states of a replica (G1), by Kafka's names."""

    __hash__ = object.__hash__

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


class Context:
    """Brokers, topics, assignments, leadership and states, as one controller epoch sees them."""

    __slots__ = (
        "assignments",
        "brokers",
        "controller_id",
        "deletions",
        "epoch",
        "ineligible",
        "leadership",
        "led",
        "offline_directories",
        "partition_statuses",
        "reassigning",
        "replica_statuses",
        "shutting_down",
        "topic_ids",
        "topics",
        "unavailable",
        "unclean_elections",
    )

    def __init__(self, controller_id: BrokerId, epoch: int) -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        self.brokers: dict[BrokerId, Broker] = {}
        """Registered brokers, those that shut down included."""
        self.shutting_down: set[BrokerId] = set()
        self.offline_directories: dict[BrokerId, set[TopicPartition]] = {}
        """Replicas that a live broker cannot serve because their log directory failed (R67)."""
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
        """Those of them whose deletion waits for something, and for what."""
        self.reassigning: dict[TopicPartition, None] = {}
        """Partitions whose reassignment was begun and is not finished."""
        self.unclean_elections = 0

    def copy_from(self, other: Context) -> None:
        """Become the other's picture, in containers of its own; the values in them never change."""
        for name in Context.__slots__:
            setattr(self, name, _copied(getattr(other, name)))

    # Brokers.

    def add_broker(self, broker: Broker) -> None:
        """A registered broker; a new incarnation has good directories and does not shut down."""
        self.forget_broker(broker.id)
        self.brokers[broker.id] = broker

    def forget_broker(self, broker_id: BrokerId) -> None:
        """It is gone, and with it its shutting-down and directory marks (R20)."""
        self.brokers.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.offline_directories.pop(broker_id, None)

    def is_online(self, tp: TopicPartition, broker_id: BrokerId) -> bool:
        """Whether the replica may lead or be in sync: its broker lives and stays, its directory is good."""
        return broker_id not in self.shutting_down and self.is_reachable(tp, broker_id)

    def is_reachable(self, tp: TopicPartition, broker_id: BrokerId) -> bool:
        """As `is_online`, but a broker that shuts down counts (T10)."""
        return broker_id in self.brokers and tp not in self.offline_directories.get(broker_id, ())

    # Topics and assignments.

    def add_topic(
        self, topic: str, topic_id: bytes | None, assignment: Mapping[int, ReplicaAssignment]
    ) -> None:
        """A topic that was not known; its partitions and replicas are NonExistent until a state machine moves them."""
        if topic_id is not None:
            self.topic_ids[topic] = topic_id
        self.topics[topic] = {}
        for partition in sorted(assignment):
            self.assign(TopicPartition(topic, partition), assignment[partition])

    def assign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Set the replicas of a partition, which may be new."""
        self.topics[tp.topic][tp] = None
        self.assignments[tp] = assignment

    def forget_topic(self, topic: str) -> None:
        """Drop all that is known of a topic."""
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
        """Assigned replicas, in order; none for a partition that is not known."""
        assignment = self.assignments.get(tp)
        return assignment.replicas if assignment else ()

    def is_being_deleted(self, tp: TopicPartition) -> bool:
        """Whether its topic is marked for deletion, so that elections leave it alone (L4).

        A topic that is being reassigned lives on until that is done (R59).
        """
        topic = tp.topic
        return topic in self.deletions and self.ineligible.get(topic) != REASSIGNMENT_IN_PROGRESS

    # Leadership.

    def set_leadership(self, tp: TopicPartition, state: LeaderAndIsr) -> None:
        """What ZooKeeper accepted or said."""
        self._forget_leader(tp)
        self.leadership[tp] = state
        self.led.setdefault(state.leader, {})[tp] = None

    def _forget_leader(self, tp: TopicPartition) -> None:
        known = self.leadership.get(tp)
        if known is not None:
            self.led[known.leader].pop(tp, None)

    # States.

    def partition_status(self, tp: TopicPartition) -> PartitionStatus:
        """NonExistent when not known (B7)."""
        return self.partition_statuses.get(tp, PartitionStatus.NON_EXISTENT)

    def set_partition_status(self, tp: TopicPartition, status: PartitionStatus) -> None:
        """Record the state and keep `unavailable`."""
        if status is PartitionStatus.NON_EXISTENT:
            self.partition_statuses.pop(tp, None)
        else:
            self.partition_statuses[tp] = status
        if status in (PartitionStatus.NEW, PartitionStatus.OFFLINE):
            self.unavailable[tp] = None
        else:
            self.unavailable.pop(tp, None)

    def replica_status(self, tp: TopicPartition, broker_id: BrokerId) -> ReplicaStatus:
        """NonExistent when not known (B7)."""
        return self.replica_statuses.get(broker_id, {}).get(tp, ReplicaStatus.NON_EXISTENT)

    def set_replica_status(
        self, tp: TopicPartition, broker_id: BrokerId, status: ReplicaStatus
    ) -> None:
        """Record the state of one replica."""
        if status is ReplicaStatus.NON_EXISTENT:
            self.replica_statuses.get(broker_id, {}).pop(tp, None)
        else:
            self.replica_statuses.setdefault(broker_id, {})[tp] = status

    def replicas_on(
        self, broker_ids: Iterable[BrokerId]
    ) -> dict[BrokerId, tuple[TopicPartition, ...]]:
        """Partitions with a replica on each of these brokers."""
        return {broker: tuple(self.replica_statuses.get(broker, ())) for broker in broker_ids}


def _copied(value: Any) -> Any:
    """The same containers anew, down to the values."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, set):
        return set(value)
    return value
