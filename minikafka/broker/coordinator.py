"""The Coordinator port: how a broker takes part in its cluster, whichever service keeps its state.

A coordination mode implements these protocols; `broker/zookeeper/` is the only one. A broker joins its cluster
with `CoordinationMode`, which then gives it a `Coordinator`. (The coordinators of consumer groups and transactions
are something else: they run in brokers and store their state in logs.)

Writes that only the active controller may do raise KafkaError NOT_CONTROLLER on other brokers. If the
service that keeps the cluster's state does not answer, every method that awaits raises CoordinationError,
unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.model import (
    Broker,
    BrokerId,
    LeaderAndIsr,
    PartitionResult,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.ports import ControlPlane, Gate, Ledger

Result = TypeVar("Result")

Overrides: TypeAlias = Mapping[str, str]
"""Settings of one topic or broker that differ from what it inherits, by Kafka key."""
Assignment: TypeAlias = Mapping[int, ReplicaAssignment]
PartitionPlan: TypeAlias = Callable[[Assignment], Awaitable[Assignment]]
"""Function that returns the partitions to add, by number, for the current assignment of a topic."""


class IsrOutcome(Enum):
    """The outcome of a leader's write of an ISR."""

    WRITTEN = "written"
    NOT_SENT = "not sent"
    """Nothing was written; the leader may propose again."""
    CONFLICT = "conflict"
    """The controller or another leader has written a newer state: a LeaderAndIsr request will follow."""
    ABANDONED = "abandoned"
    """The partition is gone, or its leader no longer wants the ISR."""


class IsrWrite(NamedTuple):
    """The outcome of one write, with the new version of the state; `zxid` is None if the answer was lost."""

    outcome: IsrOutcome
    version: int = -1
    zxid: int | None = None


class IsrStore(Protocol):
    """The store to which a leader writes the ISR of its partitions (Kafka's AlterPartitionManager)."""

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        """Replace the state of a partition if it still has the version in `state`.

        Returns only when it is certain whether the state was written. The controller then sends a written
        state to the other brokers. `is_wanted()` is called before each attempt; if it returns False, no
        further attempt is made.
        """


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to create that passed every check; `config` holds its settings with those it inherits."""

    name: str
    topic_id: bytes
    assignment: Mapping[int, tuple[BrokerId, ...]]
    overrides: Overrides
    config: TopicConfig


class TopicStore(Protocol):
    """The topics of the cluster: any broker reads them, only the active controller writes them."""

    async def names(self) -> list[str]:
        """Return the names of all topics."""

    async def existing(self, names: Sequence[str]) -> set[str]:
        """Return the names that are topics, including topics that are being deleted."""

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        """Create topics, each with its settings or not at all; return the errors of failed topics by name.

        An error is a KafkaError or a CoordinationError.
        """

    async def mark_for_deletion(self, topic: str) -> bool:
        """Have the controller delete a topic; return False if already marked.

        Raises KafkaError NOT_CONTROLLER.
        """

    async def add_partitions(self, topic: str, plan: PartitionPlan, *, validate_only: bool) -> None:
        """Add the partitions that `plan` returns for the current assignment of a topic.

        `plan` is called again when the assignment changed meanwhile; its errors are raised as they are. Raises
        KafkaError, for example when the topic is unknown, or queued for deletion.
        """


class ConfigKind(Enum):
    """The kinds of entities that have dynamic settings."""

    TOPIC = "topic"
    BROKER = "broker"
    """The name of the entity is a broker id in decimal, or empty for all brokers."""


class ConfigListener(Protocol):
    """The receiver of changed settings (`broker/config_updates.py`)."""

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        """Read and apply the settings of these topics, which have changed (None: any topic's may have)."""

    def brokers_configured(self, cluster: Overrides, own: Overrides) -> None:
        """Apply these dynamic settings: those for all brokers, and those for this broker alone."""


class ConfigChanges(Protocol):
    """The source of changed settings for one listener."""

    async def start(self) -> None:
        """Call the listener for every change from now on; return once it has this broker's settings."""

    async def apply_now(self) -> None:
        """Call the listener for all changes that were written before this call."""


class ConfigStore(Protocol):
    """The dynamic settings of topics and brokers."""

    async def topics(self, names: Sequence[str], *, latest: bool = False) -> list[Overrides]:
        """Return the overrides of each topic, in the order of `names`. `latest`: do not use a copy that may be old."""

    async def alter(
        self,
        kind: ConfigKind,
        name: str,
        change: Callable[[Overrides], Overrides],
        *,
        validate_only: bool,
    ) -> None:
        """Replace an entity's overrides by what `change` returns for the current ones, and tell all brokers.

        `change` is called again when the overrides changed meanwhile; its errors are raised as they are. Raises
        KafkaError when there is no controller yet, or the overrides change too often.
        """

    def changes(self, listener: ConfigListener) -> ConfigChanges:
        """Return the source of all changes for `listener`; nothing happens before its `start`."""


class Controller(Protocol):
    """The controller as one broker sees it: its id and, if it is this broker, the requests it serves."""

    @property
    def controller_id(self) -> BrokerId:
        """Id of the active controller, -1 if there is none."""

    @property
    def is_active(self) -> bool:
        """True if this broker is the active controller."""

    @property
    def epoch(self) -> int:
        """Controller epoch of the last election that this broker won, -1 before the first."""

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """Return the result of a call to the current controller.

        Cancels the call and raises KafkaError NOT_CONTROLLER as soon as the controller changes.
        """

    async def resign(self) -> None:
        """Give up the controllership if this broker has it, and never take it again."""

    # Requests to the active controller.

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> list[TopicPartition]:
        """Move the leaderships of a broker elsewhere; return the partitions it still leads (R23).

        Raises KafkaError: NOT_CONTROLLER, also when this broker resigns meanwhile, STALE_BROKER_EPOCH for an
        earlier registration, BROKER_NOT_AVAILABLE for a broker that is not registered.
        """

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """Start, replace or (None) cancel reassignments (KIP-455, R57). Raises KafkaError NOT_CONTROLLER."""

    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions being reassigned.

        Raises KafkaError NOT_CONTROLLER, also while a new controller still loads its state.
        """

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        """Elect preferred or unclean leaders (KIP-460, R61), for all partitions if None.

        Raises KafkaError NOT_CONTROLLER.
        """

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the settings that topics inherit when this broker decides as controller (KIP-226)."""

    # Status, all JSON-able.

    def summary(self) -> dict[str, Any]:
        """Return the controller's state without its partitions; counts are 0 on other brokers (B5, D11).

        The keys that metrics and `minikafka status` need: controller_id, is_active, epoch, queue_size, topic_count,
        partition_count, offline_partition_count, preferred_replica_imbalance_count, replicas_to_delete and
        replicas_ineligible_for_deletion.
        """

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        """Return what the active controller knows of a partition; None on other brokers."""

    def backlog(self) -> dict[str, int]:
        """Return the number of requests queued for each broker by id (C39); empty on other brokers."""

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what the controller would do in answer to `question`, as ledger lines. Changes nothing.

        Raises KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT if the controller stays busy, INVALID_REQUEST.
        """


class Coordinator(Protocol):
    """One broker's interface to its cluster, in one coordination mode.

    With it the broker registers itself and reaches the shared ISRs, topics, settings and the controller.
    """

    @property
    def isrs(self) -> IsrStore:
        """Where leaders write ISRs."""

    @property
    def topics(self) -> TopicStore:
        """The topics of the cluster."""

    @property
    def configs(self) -> ConfigStore:
        """The dynamic settings of topics and brokers."""

    @property
    def controller(self) -> Controller:
        """The cluster's controller, which may be this broker."""

    @property
    def session_state(self) -> str:
        """The state of the connection to the service that keeps the cluster's state, in one word."""

    @property
    def session_timeout_ms(self) -> int:
        """Milliseconds of silence after which the cluster considers this broker dead."""

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        """Register the broker, which may become the controller from now on.

        Calls `on_registered(broker_epoch)` for this registration, and for each later one after a lost session.
        Raises ConfigError when another broker has the id.
        """

    async def stop(self) -> None:
        """Leave the cluster: the other brokers learn at once that this one is gone."""

    def report_log_dir_failure(self) -> None:
        """Tell the controller that this broker lost a log directory; retried in the background (R67)."""

    async def claim_producer_ids(self) -> tuple[int, int]:
        """Claim a block of producer ids for this broker; return its first and last id (R72).

        Raises ValueError when the stored block is not readable.
        """


class CoordinationMode(Protocol):
    """The service that coordinates the brokers of a cluster, as a broker uses it before it has joined."""

    async def join(self) -> str:
        """Connect, and return the cluster id; the first broker of a cluster creates it."""

    def coordinator(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Coordinator:
        """Return this broker's Coordinator in the joined cluster; it does nothing before its `start`."""
