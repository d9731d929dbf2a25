"""What the controller's state machine asks its host to do, as frozen values.

The host (`broker/modes/controller/terms/term.py`) carries the commands out in the order of their list. A question is a
command with a token: it is the last of its list, and the machine waits for the `Outcome` with the token.
Invariant: no value in this module is changed after its creation, mappings included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.deciders.controller.events import Replicas
from minikafka.deciders.decider import Answer

NO_NODE: Final = -1
"""The `LeaderAndIsr.state_version` of a proposed state whose node must be created, not replaced."""


# Responses to callers.


@dataclass(frozen=True, slots=True)
class ShutdownResponse:
    """The response to a controlled shutdown: an error code, and the partitions that the broker still leads."""

    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()


# Commands that need no outcome.


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

    A partition stays in the node if its target in the node differs from its target in `finished`. The node is deleted
    if no partition is left. The host always reads the node again afterwards (R60).
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
class AnnounceStep:
    """Announce that an operation has reached a step of `steps.py`. The host may block the operation there."""

    operation: str
    step: str
    partitions: tuple[TopicPartition, ...]


# Questions, and the values of their outcomes.


@dataclass(frozen=True, slots=True)
class WrittenStates:
    """The value of the outcome of `WriteLeaderAndIsr`; each partition is in exactly one of the three fields.

    `ok`: partition -> new version of the written node, as ZooKeeper returned it (X23). `conflicts`:
    partitions that were not written, because the node has another version than expected. `failed`:
    partition -> reason why the node was not written and a retry is useless.
    """

    ok: Mapping[TopicPartition, int]
    conflicts: tuple[TopicPartition, ...] = ()
    failed: Mapping[TopicPartition, str] = field(default_factory=dict)


class ElectionSettings(NamedTuple):
    """The settings of a topic that an election depends on, under Kafka's names."""

    unclean_leader_election_enable: bool
    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class WriteLeaderAndIsr:
    """Write these states, fenced by the controller epoch.

    The `state_version` of a state is the version of the node to replace, or `NO_NODE`. The value: `WrittenStates`.
    """

    token: int
    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class ReadLeaderAndIsr:
    """Read the state nodes of these partitions. The value: the state of each partition that has a node."""

    token: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadElectionSettings:
    """Read the settings of these topics on which elections depend. The value: the `ElectionSettings` of each topic.

    A topic without its own setting has the broker's default (A15).
    """

    token: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Write these assignments to the topic nodes. The value: topic -> reason, for each topic that was not written.

    An assignment of None removes the partition from its topic node (R65). Partitions that are not
    listed keep their assignment. `submitted`: the target replicas that were read from
    `/admin/reassign_partitions`. If that node no longer has the targets of a topic in `submitted`,
    the topic is not written.
    """

    token: int
    topics: Mapping[str, Mapping[int, ReplicaAssignment | None]]
    submitted: Mapping[TopicPartition, Replicas] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteTopicNodes:
    """Delete the nodes, settings and deletion marks of topics.

    The value: topic -> reason, for each topic that was not deleted.
    """

    token: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveTopicIds:
    """Write ids into topic nodes that have none (R69). The value: the current id of each topic that has one.

    `topics` contains the id to write for each topic; None asks for a new id. A topic that already has
    partitions gets no new id, because its replicas would be taken for replicas of another topic.
    """

    token: int
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
    | Answer
    | WatchStates
    | UnwatchStates
    | TrimReassignments
    | DeletePreferredElection
    | DeleteDeletionMarks
    | AnnounceStep
    | Question
)
