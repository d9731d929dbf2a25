"""The Coordinator port: the `Protocol` classes through which a broker takes part in its cluster.

A coordination mode implements these protocols for one service that stores the cluster's state. The only mode is
`broker/modes/controller/`. A broker joins its cluster with a `CoordinationMode`, which then returns a `Coordinator`.
(The coordinators of consumer groups and transactions are a different thing: they run in brokers and store their state
in logs.)

Writes that only the active controller may do raise KafkaError NOT_CONTROLLER on other brokers. If the service does
not answer, every async method raises CoordinationError, unless the method's docstring says otherwise.
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
"""The settings of one topic or broker that override inherited settings, by Kafka key."""
Assignment: TypeAlias = Mapping[int, ReplicaAssignment]
PartitionPlan: TypeAlias = Callable[[Assignment], Awaitable[Assignment]]
"""Function that takes the current assignment of a topic and returns the partitions to add, by number."""


class IsrOutcome(Enum):
    """The outcome of a leader's write of an ISR."""

    WRITTEN = "written"
    NOT_SENT = "not sent"
    """Nothing was written. The leader may propose the ISR again."""
    CONFLICT = "conflict"
    """The controller or another leader has written a newer state: a LeaderAndIsr request will follow."""
    ABANDONED = "abandoned"
    """The partition no longer exists, or its leader has withdrawn the proposed ISR."""


class IsrWrite(NamedTuple):
    """The outcome of one write. `version`: the new version of the state, -1 if the state was not written.

    `zxid`: the ZooKeeper transaction id of the write; None if unknown, because the response to the write was lost.
    """

    outcome: IsrOutcome
    version: int = -1
    zxid: int | None = None


class IsrStore(Protocol):
    """The store to which a leader writes the ISR of its partitions (Kafka's AlterPartitionManager)."""

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        """Replace the stored state of a partition if its version is still the version in `state`.

        Returns only when it is certain whether the state was written. After a successful write, the controller
        sends the new state to the other brokers. `is_wanted()` is called before each attempt; if it returns
        False, no further attempt is made.
        """


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to create, after all checks. `config` holds its own settings and its inherited settings."""

    name: str
    topic_id: bytes
    assignment: Mapping[int, tuple[BrokerId, ...]]
    overrides: Overrides
    config: TopicConfig


class TopicStore(Protocol):
    """The topics of the cluster. Any broker may read the topics; only the active controller may write them."""

    async def names(self) -> list[str]:
        """Return the names of all topics."""

    async def existing(self, names: Sequence[str]) -> set[str]:
        """Return the names in `names` that are existing topics, including topics that are being deleted."""

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        """Create topics; return the errors of failed topics by name.

        A topic and its settings are written together or not at all. An error is a KafkaError or a
        CoordinationError.
        """

    async def mark_for_deletion(self, topic: str) -> bool:
        """Mark a topic, which the controller then deletes. Return False if the topic was already marked.

        Raises KafkaError NOT_CONTROLLER.
        """

    async def add_partitions(self, topic: str, plan: PartitionPlan, *, validate_only: bool) -> None:
        """Add the partitions that `plan` returns for the current assignment of a topic.

        `plan` is called again if the assignment has changed before the write. An exception of `plan` is raised
        unchanged. Raises KafkaError, for example if the topic is unknown or queued for deletion.
        """


class ConfigKind(Enum):
    """The kinds of entities that have dynamic settings."""

    TOPIC = "topic"
    BROKER = "broker"
    """A broker, whose entity name is the broker id in decimal, or all brokers, whose entity name is empty."""


class ConfigListener(Protocol):
    """The receiver of changed settings (`broker/settings/config_updates.py`)."""

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        """Read and apply the settings of these topics, which may have changed (None: all topics)."""

    def brokers_configured(self, cluster: Overrides, own: Overrides) -> None:
        """Apply dynamic settings: `cluster` for all brokers, `own` for this broker only."""


class ConfigChanges(Protocol):
    """The source of changed settings for one listener."""

    async def start(self) -> None:
        """Begin to pass changes to the listener; return when the listener has applied the current settings."""

    async def apply_now(self) -> None:
        """Call the listener for all changes that were written before this call."""


class ConfigStore(Protocol):
    """The dynamic settings of topics and brokers."""

    async def topics(self, names: Sequence[str], *, latest: bool = False) -> list[Overrides]:
        """Return the overrides of each topic, in the order of `names`.

        `latest`: read the stored settings instead of a copy that may be old.
        """

    async def alter(
        self,
        kind: ConfigKind,
        name: str,
        change: Callable[[Overrides], Overrides],
        *,
        validate_only: bool,
    ) -> None:
        """Replace an entity's overrides by `change(current overrides)`, and notify all brokers.

        `change` is called again if the overrides have changed before the write. An exception of `change` is
        raised unchanged. Raises KafkaError if there is no controller yet or the overrides change too often.
        """

    def changes(self, listener: ConfigListener) -> ConfigChanges:
        """Return a source of all changes for `listener`. The source is idle until its `start` is called."""


class Controller(Protocol):
    """The controller as one broker sees it.

    Every broker can read the controller's id. The active controller also serves the requests below.
    """

    @property
    def controller_id(self) -> BrokerId:
        """Id of the active controller, -1 if there is none."""

    @property
    def is_active(self) -> bool:
        """True if this broker is the active controller."""

    @property
    def epoch(self) -> int:
        """Controller epoch of the last controller election that this broker won; -1 if it has won none."""

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """Return the result of a call to the current controller.

        Cancels the call and raises KafkaError NOT_CONTROLLER as soon as the controller changes.
        """

    async def resign(self) -> None:
        """Resign if this broker is the active controller, and never become the controller again."""

    # Requests to the active controller.

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> list[TopicPartition]:
        """Move the leaderships of a broker to other brokers; return the partitions that it still leads (R23).

        Raises KafkaError: NOT_CONTROLLER if this broker is not the controller or resigns during the call,
        STALE_BROKER_EPOCH for an earlier registration, BROKER_NOT_AVAILABLE for an unregistered broker.
        """

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """Start or replace reassignments (KIP-455, R57). A target of None cancels the reassignment.

        Raises KafkaError NOT_CONTROLLER.
        """

    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions that are being reassigned.

        Raises KafkaError NOT_CONTROLLER if this broker is not the controller or still loads its state.
        """

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        """Elect preferred or unclean leaders for these partitions (None: all partitions) (KIP-460, R61).

        Raises KafkaError NOT_CONTROLLER.
        """

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit, for the time when this broker is controller (KIP-226)."""

    # Status. All results can be encoded as JSON.

    def summary(self) -> dict[str, Any]:
        """Return a summary of the controller's state. If this broker is not the controller, all counts are 0 (B5, D11).

        Metrics and `minikafka status` need these keys: controller_id, is_active, epoch, queue_size, topic_count,
        partition_count, offline_partition_count, preferred_replica_imbalance_count, replicas_to_delete and
        replicas_ineligible_for_deletion.
        """

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        """Return the active controller's state of a partition; None if this broker is not the controller."""

    def backlog(self) -> dict[str, int]:
        """Return the number of controller requests queued for each broker, by broker id (C39).

        The result is empty if this broker is not the controller.
        """

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the actions that an operation would cause, as ledger lines. `question`: operation and arguments.

        Raises KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT if the controller stays busy, INVALID_REQUEST.
        """


class Coordinator(Protocol):
    """One broker's access to its cluster, in one coordination mode.

    Through a Coordinator, the broker registers itself and uses the stored ISRs, the topics, the settings and the
    controller.
    """

    @property
    def isrs(self) -> IsrStore:
        """The store to which leaders write ISRs."""

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
        """The state, in one word, of the session with the service that stores the cluster's state."""

    @property
    def session_timeout_ms(self) -> int:
        """Milliseconds without a heartbeat after which the cluster considers this broker dead."""

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        """Register the broker. A registered broker can be elected controller.

        Calls `on_registered(broker_epoch)` after this registration, and after each new registration that follows
        a lost session. Raises ConfigError if another broker has the same id.
        """

    async def stop(self) -> None:
        """Leave the cluster. The other brokers are notified at once that this broker has left."""

    def report_log_dir_failure(self) -> None:
        """Notify the controller that a log directory of this broker has failed; retry in the background (R67)."""

    async def claim_producer_ids(self) -> tuple[int, int]:
        """Claim a block of producer ids for this broker; return its first and last id (R72).

        Raises ValueError if the stored block cannot be decoded.
        """


class CoordinationMode(Protocol):
    """The interface to the service that coordinates the brokers. A broker uses it before it joins its cluster."""

    async def join(self) -> str:
        """Connect, and return the cluster id, which the first broker of a cluster creates."""

    def coordinator(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Coordinator:
        """Return this broker's Coordinator in the joined cluster. It is idle until its `start` is called."""
