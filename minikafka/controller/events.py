"""Events, outcomes and effects of the controller's state machine, as frozen values.

An event states a fact in the past tense and carries its data. An effect is a command to the runner
of the machine (`broker.modes.controller.terms`). Some effects are questions: a question is always the last
effect of its list, and the runner must pass the outcome of the question to the machine before any
other event. Invariant: no value in this module is changed after its creation, mappings included.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

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
"""The `LeaderAndIsr.state_version` of a proposed state whose node must be created, not replaced."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """The content of a topic node: the assignment, and the 16-byte topic id (None if the node has no id)."""

    topic_id: bytes | None
    assignment: Mapping[int, ReplicaAssignment]


Replicas: TypeAlias = tuple[BrokerId, ...]


# Events: facts from outside.


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
    """A broker wants to shut down and asks to move its leaderships (R23).

    `ticket` identifies the caller.
    """

    ticket: int
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
    """An AlterPartitionReassignments request (KIP-455). `ticket` identifies the caller.

    A target of None cancels the partition's reassignment.
    """

    ticket: int
    targets: Mapping[TopicPartition, Replicas | None]


@dataclass(frozen=True, slots=True)
class PreferredElectionSubmitted:
    """The partitions that are in `/admin/preferred_replica_election` now (E5)."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ElectionRequested:
    """An ElectLeaders request (KIP-460), preferred or unclean; `partitions` None means all partitions."""

    ticket: int
    unclean: bool
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """The timer for checking the leader imbalance expired (R62)."""


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """`unclean.leader.election.enable` was turned on for `topics`, or for the whole cluster if None (R63)."""

    topics: tuple[str, ...] | None


ExternalEvent: TypeAlias = (
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
)


# Outcomes: the answers to questions.


@dataclass(frozen=True, slots=True)
class LeaderAndIsrWritten:
    """The reply to `WriteLeaderAndIsr`; each partition is in exactly one of the three fields.

    `ok`: partition -> new version of the written node, as ZooKeeper returned it (X23). `conflicts`:
    partitions that were not written, because the node has another version than expected. `failed`:
    partition -> reason why the node was not written and a retry is useless.
    """

    ok: Mapping[TopicPartition, int]
    conflicts: tuple[TopicPartition, ...] = ()
    failed: Mapping[TopicPartition, str] | None = None


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRead:
    """The reply to `ReadLeaderAndIsr`: the current content of the state nodes that exist."""

    states: Mapping[TopicPartition, LeaderAndIsr]


class ElectionSettings(NamedTuple):
    """The settings of a topic that an election depends on, under Kafka's names."""

    unclean_leader_election_enable: bool
    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class ElectionSettingsRead:
    """The reply to `ReadElectionSettings`: the settings of each topic.

    A topic without its own setting has the broker's default (A15).
    """

    topics: Mapping[str, ElectionSettings]


@dataclass(frozen=True, slots=True)
class AssignmentsWritten:
    """The reply to `WriteAssignments`: the topics that were not written, each with the reason."""

    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicNodesDeleted:
    """The reply to `DeleteTopicNodes`: the topics whose nodes were not deleted, each with the reason."""

    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicIdsGiven:
    """The reply to `GiveTopicIds`: the current topic ids; topics without an id are absent."""

    ids: Mapping[str, bytes]


Outcome: TypeAlias = (
    LeaderAndIsrWritten
    | LeaderAndIsrRead
    | ElectionSettingsRead
    | AssignmentsWritten
    | TopicNodesDeleted
    | TopicIdsGiven
)
Event: TypeAlias = ExternalEvent | Outcome


# Effects: commands to the runner, carried out in the order of the list.


@dataclass(frozen=True, slots=True)
class StartChannel:
    """Open the ordered request queue to a broker that registered."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class StopChannel:
    """Close the request queue of a broker whose registration ended, and drop the queued requests.

    The broker may already have a new registration, with a new broker epoch.
    """

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Append a request to the broker's queue."""

    broker_id: BrokerId
    request: ControllerRequest


@dataclass(frozen=True, slots=True)
class DeleteIsrChanges:
    """Delete notifications that were handled, under `/isr_change_notification`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteLogDirEvents:
    """Delete notifications that were handled, under `/log_dir_event_notification`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerControlledShutdown:
    """Answer a controlled shutdown: an error code, and the partitions that the broker still leads."""

    ticket: int
    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerAdmin:
    """Answer an administrator's request with one result per partition."""

    ticket: int
    results: Mapping[TopicPartition, PartitionResult]


@dataclass(frozen=True, slots=True)
class WatchStates:
    """Watch the state nodes of partitions under reassignment, then read them (E10)."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class UnwatchStates:
    """Remove the watches that `WatchStates` set for these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TrimReassignments:
    """Remove partitions from `/admin/reassign_partitions` (A11). `finished`: partition -> target replicas.

    A partition stays in the node if its target in the node differs from its target in `finished`.
    The runner, which carries out effects, deletes the node if no partition is left. The runner always
    reads the node again afterwards (R60).
    """

    finished: Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True)
class DeletePreferredElection:
    """Delete `/admin/preferred_replica_election` after the election was held or has failed."""


@dataclass(frozen=True, slots=True)
class DeleteDeletionMarks:
    """Delete the deletion marks `/admin/delete_topics/T` of topics that must not be deleted or are gone (R65)."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepReached:
    """An operation reached a step that has a name in `controller/steps.py`.

    The runner may block the operation at that step.
    """

    operation: str
    step: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteLeaderAndIsr:
    """Ask the runner to write these states, fenced by the controller epoch.

    The `state_version` of a state is the version of the node to replace, or `NO_NODE`. The runner replies
    with `LeaderAndIsrWritten`.
    """

    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class ReadLeaderAndIsr:
    """Ask the runner to read the state nodes of these partitions; reply: `LeaderAndIsrRead`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadElectionSettings:
    """Ask the runner for the settings of these topics that elections depend on; reply: `ElectionSettingsRead`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Ask the runner to write these assignments to the topic nodes; reply: `AssignmentsWritten`.

    An assignment of None removes the partition from its topic node (R65). Partitions that are not
    listed keep their assignment. `submitted`: the target replicas that were read from
    `/admin/reassign_partitions`. If that node no longer has the targets of a topic in `submitted`,
    the topic is not written.
    """

    topics: Mapping[str, Mapping[int, ReplicaAssignment | None]]
    submitted: Mapping[TopicPartition, Replicas] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteTopicNodes:
    """Ask the runner to delete the nodes, settings and deletion marks of topics; reply: `TopicNodesDeleted`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveTopicIds:
    """Ask the runner to write ids into topic nodes that have none (R69); reply: `TopicIdsGiven`.

    `topics` contains the id to write for each topic; None asks for a new id. A topic that already has
    partitions gets no new id, because its replicas would be taken for replicas of another topic.
    """

    topics: Mapping[str, bytes | None]


Question: TypeAlias = (
    WriteLeaderAndIsr
    | ReadLeaderAndIsr
    | ReadElectionSettings
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
"""A generator that yields questions to the runner and receives their outcomes: `outcome = yield
question`.
"""
