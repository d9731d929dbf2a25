"""What the controller is told and what it asks for: events, outcomes and effects as frozen values.

An event is a fact in the past tense and carries its data (`architecture.md` §5.3). An effect is a
command to the shell. Three effects are questions: each is the last of the list it comes in, and the
shell answers it with its outcome before it hands over any other event. Invariant: nothing here is
changed after it was built, mappings included.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)

NO_NODE: Final = -1
"""In `LeaderAndIsr.zk_version` of a proposal: the state node is to be created, not replaced."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic node as read: its 16-byte id (None when it was made before ids) and its assignment."""

    topic_id: bytes | None
    assignment: Mapping[int, ReplicaAssignment]


# Events: what happened outside.


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker won the election and has read everything (D5, D6). The first event of every machine."""

    brokers: Mapping[BrokerId, Broker]
    topics: Mapping[str, TopicImage]
    leadership: Mapping[TopicPartition, LeaderAndIsr]
    deletions: frozenset[str]


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


@dataclass(frozen=True, slots=True)
class DeletionsChanged:
    """All topics marked under `/admin/delete_topics` as of one read (L4)."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """Notifications of partition leaders, with the state nodes read after them (A14, E6)."""

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


ExternalEvent: TypeAlias = (
    ControllerElected
    | BrokersChanged
    | TopicsChanged
    | AssignmentChanged
    | DeletionsChanged
    | IsrChanged
    | LogDirsFailed
    | LeaderAndIsrAnswered
    | ControlledShutdownRequested
)


# Outcomes: the answers to the three questions.


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


Outcome: TypeAlias = LeaderAndIsrWritten | LeaderAndIsrRead | UncleanSettingsRead
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


Question: TypeAlias = WriteLeaderAndIsr | ReadLeaderAndIsr | ReadUncleanSettings
Command: TypeAlias = (
    StartChannel
    | StopChannel
    | SendRequest
    | DeleteIsrChanges
    | DeleteLogDirEvents
    | AnswerControlledShutdown
)
Effect: TypeAlias = Command | Question

Result = TypeVar("Result")
Steps: TypeAlias = Generator[Question, Outcome, Result]
"""A procedure that asks questions on its way: `outcome = yield question`."""
