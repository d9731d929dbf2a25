"""What comes into the controller's state machine: facts in the past tense, as frozen values with their data.

A request of a client carries its `caller`, to whom the command `Answer` replies. The outcome of a question is the
event `Outcome`. Invariant: no value in this module is changed after its creation, mappings included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerResponse,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.deciders.decider import Caller, Outcome


@dataclass(frozen=True, slots=True)
class TopicImage:
    """The content of a topic node: the assignment, and the 16-byte topic id (None if the node has no id)."""

    topic_id: bytes | None
    assignment: Mapping[int, ReplicaAssignment]


Replicas: TypeAlias = tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker won the controller election and has read the cluster's state (D5).

    This is the first event of every machine.
    """

    brokers: Mapping[BrokerId, Broker]
    topics: Mapping[str, TopicImage]
    leadership: Mapping[TopicPartition, LeaderAndIsr]
    deletions: frozenset[str]
    reassignments: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    """Targets in `/admin/reassign_partitions`."""
    preferred_elections: tuple[TopicPartition, ...] | None = None
    """Partitions in `/admin/preferred_replica_election`; None if the node does not exist."""
    suspects: Mapping[BrokerId, int] = field(default_factory=dict)
    """Brokers that refused a connection to their control listener, each with its broker epoch."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """All brokers that are registered now. A broker that has restarted has another `Broker.epoch` (R19)."""

    brokers: Mapping[BrokerId, Broker]


@dataclass(frozen=True, slots=True)
class BrokerSuspected:
    """A broker refused a connection of this controller, so that its process has probably died.

    `evidence`: the refused address and the reporter, as text for a person. The registration still exists.
    """

    broker_id: BrokerId
    broker_epoch: int
    evidence: str


@dataclass(frozen=True, slots=True)
class SuspicionEnded:
    """A suspect answered a signed request, in the broker epoch in which it is suspected."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topic nodes that were created, and names of topics whose nodes were deleted.

    A topic that was deleted and created again is in both fields.
    """

    added: Mapping[str, TopicImage]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """The node of a known topic was read again, because the data of the node changed (E3)."""

    topic: str
    assignment: Mapping[int, ReplicaAssignment]
    has_id: bool = True
    """True if the node still has the topic id. A tool that adds partitions may remove the id."""


@dataclass(frozen=True, slots=True)
class DeletionsChanged:
    """All topics that are marked for deletion in `/admin/delete_topics` now (L4)."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The content of state nodes that partition leaders changed.

    The nodes were read because of notifications (E6), or because of watches on the state nodes of
    partitions under reassignment (E10). In the second case `notifications` is empty.
    """

    notifications: tuple[str, ...]
    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class LogDirsFailed:
    """Brokers announced that they lost a log directory (R67)."""

    notifications: tuple[str, ...]
    brokers: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker answered a LeaderAndIsr request that was sent when its broker epoch was `broker_epoch` (R16)."""

    broker_id: BrokerId
    broker_epoch: int
    response: ControllerResponse


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """A broker wants to shut down and asks to move its leaderships (R23). The response is a `ShutdownResponse`."""

    caller: Caller
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered:
    """A broker answered a StopReplica request that told it to delete replicas (J5)."""

    broker_id: BrokerId
    broker_epoch: int
    deleted: Mapping[TopicPartition, int]
    """Partition -> error code, for each replica that the broker was told to delete; 0 means deleted."""


@dataclass(frozen=True, slots=True)
class ReassignmentsSubmitted:
    """All targets that are in `/admin/reassign_partitions` now (E4)."""

    targets: Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested:
    """An AlterPartitionReassignments request (KIP-455). A target of None cancels the partition's reassignment.

    The response is the `PartitionResult` of each partition.
    """

    caller: Caller
    targets: Mapping[TopicPartition, Replicas | None]


@dataclass(frozen=True, slots=True)
class PreferredElectionSubmitted:
    """The partitions that are in `/admin/preferred_replica_election` now (E5)."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ElectionRequested:
    """An ElectLeaders request (KIP-460), preferred or unclean; `partitions` None means all partitions.

    The response is the `PartitionResult` of each partition.
    """

    caller: Caller
    unclean: bool
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """The timer for checking the leader imbalance expired (R62)."""


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """`unclean.leader.election.enable` was turned on for `topics`, or for the whole cluster if None (R63)."""

    topics: tuple[str, ...] | None


Event: TypeAlias = (
    ControllerElected
    | BrokersChanged
    | BrokerSuspected
    | SuspicionEnded
    | TopicsChanged
    | AssignmentChanged
    | DeletionsChanged
    | IsrChanged
    | LogDirsFailed
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | ControlledShutdownRequested
    | ReassignmentsSubmitted
    | ReassignmentsRequested
    | PreferredElectionSubmitted
    | ElectionRequested
    | RebalanceDue
    | UncleanElectionEnabled
    | Outcome
)
