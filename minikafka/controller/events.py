"""What the controller is told and what it asks for: events, outcomes and effects as frozen values.

An event is a fact in the past tense and carries its data. An effect is a
command to the shell. Some effects are questions: each is the last of the list it comes in, and the
shell answers it with its outcome before it hands over any other event. Invariant: nothing here is
changed after it was built, mappings included.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsr,
    PartitionResult,
    ReplicaAssignment,
    TopicPartition,
)

NO_NODE: Final = -1
"""In `LeaderAndIsr.zk_version` of a proposal: the state node is to be created, not replaced."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic node as read: its 16-byte id (None when whoever made it gave it none) and its assignment."""

    topic_id: bytes | None
    assignment: Mapping[int, ReplicaAssignment]


Replicas: TypeAlias = tuple[BrokerId, ...]


# Events: what happened outside.


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker won the election and has read everything (D5, D6). The first event of every machine."""

    brokers: Mapping[BrokerId, Broker]
    topics: Mapping[str, TopicImage]
    leadership: Mapping[TopicPartition, LeaderAndIsr]
    deletions: frozenset[str]
    reassignments: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    """What `/admin/reassign_partitions` asks for."""
    preferred_elections: tuple[TopicPartition, ...] | None = None
    """What `/admin/preferred_replica_election` asks for; None when it is not there."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """All registered brokers as of one read; a bounce is another `Broker.epoch` (R19, S20)."""

    brokers: Mapping[BrokerId, Broker]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topic nodes that appeared, and names that went. A re-created topic is in both (czxid)."""

    added: Mapping[str, TopicImage]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """The data of a topic node that was known already was read again (E3)."""

    topic: str
    assignment: Mapping[int, ReplicaAssignment]
    has_id: bool = True
    """Whether the topic id is in it still: who adds partitions by hand may leave it out."""


@dataclass(frozen=True, slots=True)
class DeletionsChanged:
    """All topics marked under `/admin/delete_topics` as of one read (L4)."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """State nodes that leaders changed: read after their notifications (A14, E6), or because the watch
    of a partition that is being reassigned fired (E10; no notifications then).
    """

    notifications: tuple[str, ...]
    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class LogDirsFailed:
    """Notifications of brokers that lost a log directory (R67)."""

    notifications: tuple[str, ...]
    brokers: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker's answer to a LeaderAndIsr request that was sent to its incarnation `broker_epoch` (R16)."""

    broker_id: BrokerId
    broker_epoch: int
    response: ControllerResponse


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """A broker asks to be relieved of its leaderships (R23). `ticket` names the waiting caller."""

    ticket: int
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered:
    """A broker's answer about the replicas it was told to delete (R16, J5)."""

    broker_id: BrokerId
    broker_epoch: int
    deleted: Mapping[TopicPartition, int]
    """Error code of each replica that was to be deleted; 0: it is gone."""


@dataclass(frozen=True, slots=True)
class ReassignmentsSubmitted:
    """What `/admin/reassign_partitions` asks for as of one read (E4)."""

    targets: Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested:
    """An administrator's request (KIP-455); None cancels (R57). `ticket` names the waiting caller."""

    ticket: int
    targets: Mapping[TopicPartition, Replicas | None]


@dataclass(frozen=True, slots=True)
class PreferredElectionSubmitted:
    """What `/admin/preferred_replica_election` asks for as of one read (E5)."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ElectionRequested:
    """An administrator's ElectLeaders (KIP-460): preferred, or unclean; None means all partitions."""

    ticket: int
    unclean: bool
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """Time to look for leaders that are not the preferred ones (D7, R62)."""


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """`unclean.leader.election.enable` was turned on for these topics, None for the cluster (R63)."""

    topics: tuple[str, ...] | None


ExternalEvent: TypeAlias = (
    ControllerElected
    | BrokersChanged
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
)


# Outcomes: the answers to the questions.


@dataclass(frozen=True, slots=True)
class LeaderAndIsrWritten:
    """Every partition of the `WriteLeaderAndIsr` is in exactly one of the three.

    `ok`: the version ZooKeeper returned (never predicted, X23). `conflicts`: another version is
    there. `failed`: definitely not written and not worth another try, with the reason.
    """

    ok: Mapping[TopicPartition, int]
    conflicts: tuple[TopicPartition, ...] = ()
    failed: Mapping[TopicPartition, str] | None = None


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRead:
    """The state nodes as they are now; a partition without a node is absent."""

    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class UncleanSettingsRead:
    """`unclean.leader.election.enable` of each topic asked for, the broker's default applied (H4, A15)."""

    topics: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class AssignmentsWritten:
    """Every topic of the `WriteAssignments` was written, but for those that failed, with the reason."""

    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicNodesDeleted:
    """The topic's nodes are gone, but for those of topics that failed, with the reason."""

    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicIdsGiven:
    """The ids that the topics of the `GiveTopicIds` have now; of those that have none it says nothing."""

    ids: Mapping[str, bytes]


Outcome: TypeAlias = (
    LeaderAndIsrWritten
    | LeaderAndIsrRead
    | UncleanSettingsRead
    | AssignmentsWritten
    | TopicNodesDeleted
    | TopicIdsGiven
)
Event: TypeAlias = ExternalEvent | Outcome


# Effects: what the shell is to do, in the order of the list.


@dataclass(frozen=True, slots=True)
class StartChannel:
    """Open the ordered request queue to a broker that joined."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class StopChannel:
    """Drop the queue of a broker that is gone, with all that waits in it."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Put a request into the broker's queue."""

    broker_id: BrokerId
    request: ControllerRequest


@dataclass(frozen=True, slots=True)
class DeleteIsrChanges:
    """Remove handled nodes under `/isr_change_notification`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteLogDirEvents:
    """Remove handled nodes under `/log_dir_event_notification`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerControlledShutdown:
    """Answer the caller behind the ticket: an error, or what the broker still leads."""

    ticket: int
    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerAdmin:
    """Answer the caller behind the ticket, one result per partition."""

    ticket: int
    results: Mapping[TopicPartition, PartitionResult]


@dataclass(frozen=True, slots=True)
class WatchStates:
    """Watch the state nodes of partitions that are being reassigned (E10), and read them once it is set."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class UnwatchStates:
    """Drop those watches."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TrimReassignments:
    """Take these out of `/admin/reassign_partitions` where they ask for just these targets (A11), delete
    it when empty, and look again afterwards (R60).
    """

    finished: Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True)
class DeletePreferredElection:
    """Remove `/admin/preferred_replica_election`: it was carried out, or could not be."""


@dataclass(frozen=True, slots=True)
class DeleteDeletionMarks:
    """Remove `/admin/delete_topics/T` of topics that are not there or may not be deleted (R65)."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepReached:
    """An operation reached a named step (`controller/steps.py`); the shell may hold it there."""

    operation: str
    step: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteLeaderAndIsr:
    """Question: write these states, fenced by the controller epoch; answered by
    `LeaderAndIsrWritten`.

    The `zk_version` of each proposed state is the version it replaces, or `NO_NODE`.
    """

    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class ReadLeaderAndIsr:
    """Question: what is in these state nodes; answered by `LeaderAndIsrRead`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadUncleanSettings:
    """Question: may these topics be led from outside the ISR; answered by `UncleanSettingsRead`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Question: put these partitions' assignments into the topic nodes; answered by
    `AssignmentsWritten`.

    None takes a partition out again (R65); partitions that are not named stay as they are.
    """

    topics: Mapping[str, Mapping[int, ReplicaAssignment | None]]


@dataclass(frozen=True, slots=True)
class DeleteTopicNodes:
    """Question: remove the topics' nodes with all below, their settings and the deletion marks (R64);
    answered by `TopicNodesDeleted`.
    """

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveTopicIds:
    """Question: put ids into topic nodes that have none (R69); answered by `TopicIdsGiven`.

    None stands for a new id, which a topic gets only before its partitions are: replicas that were made
    without an id, or under one that nobody knows any more, are not to be taken for those of another topic.
    """

    topics: Mapping[str, bytes | None]


Question: TypeAlias = (
    WriteLeaderAndIsr
    | ReadLeaderAndIsr
    | ReadUncleanSettings
    | WriteAssignments
    | DeleteTopicNodes
    | GiveTopicIds
)
Command: TypeAlias = (
    StartChannel
    | StopChannel
    | SendRequest
    | DeleteIsrChanges
    | DeleteLogDirEvents
    | AnswerControlledShutdown
    | AnswerAdmin
    | WatchStates
    | UnwatchStates
    | TrimReassignments
    | DeletePreferredElection
    | DeleteDeletionMarks
    | StepReached
)
Effect: TypeAlias = Command | Question

Result = TypeVar("Result")
Procedure: TypeAlias = Generator[Question, Outcome, Result]
"""A procedure that asks questions on its way: `outcome = yield question`."""
