"""The capabilities that a coordination mode gives to a broker: the only way in which it takes part in its cluster.

A mode (`broker/modes/`) implements these protocol classes. `CoordinationMode` joins a cluster and returns one object
per capability: `BrokerLifecycle` registers the broker, `RoleSource` gives its replicas their roles, `MetadataSource` is
asked for newer metadata, the stores have the stored state, `Administration` has the requests of administrators, and
`Diagnostics` has the state that people see. Invariant: no other part of the broker asks which mode is in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.model import (
    Broker,
    BrokerId,
    LeaderAndIsr,
    MetadataUpdate,
    PartitionResult,
    PartitionState,
    ReplicaAssignment,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.base.ports import Call, ControlPlane, Gate, Ledger
from minikafka.security.acls import AclEntry, PatternType, ResourcePattern
from minikafka.security.quotas import QuotaEntity
from minikafka.security.tokens import DelegationToken


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One broker's access to its cluster, in one coordination mode. One object may be several capabilities."""

    lifecycle: BrokerLifecycle
    roles: RoleSource
    isrs: IsrStore
    topics: TopicStore
    configs: ConfigStore
    acls: AclStore
    tokens: TokenStore
    administration: Administration
    diagnostics: Diagnostics
    claim_producer_ids: Callable[[], Awaitable[tuple[int, int]]]
    """Claim a block of producer ids that no other broker has; return its first and last id (R72).

    Raises CoordinationError, or ValueError if the stored block cannot be decoded.
    """
    metadata: MetadataSource | None = None
    """The source that is asked when clients need metadata; None if the mode passes every change on at once."""


class CoordinationMode(Protocol):
    """A coordination mode, before its broker has joined the cluster."""

    async def join(self, known: str | None) -> str:
        """Connect, and return the cluster id, which the first broker of a cluster creates.

        `known`: the cluster id of the log directories, None if they are new. Raises ClusterLost if it is another one.
        """

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        """Return the capabilities in the joined cluster. They are idle until the broker starts them."""


# ---- lifecycle


class BrokerLifecycle(Protocol):
    """The registration, session and departure of this broker.

    Async methods raise CoordinationError if the service does not answer.
    """

    @property
    def session_state(self) -> str:
        """The state, in one word, of the session with the service that stores the cluster's state."""

    @property
    def session_timeout_ms(self) -> int:
        """Milliseconds without a heartbeat after which the cluster considers this broker dead."""

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        """Register the broker with its endpoints.

        Calls `on_registered(broker_epoch)` after this registration, and after each new registration that follows
        a lost session. Each broker epoch is higher than all earlier epochs of this broker. Raises ConfigError if
        another broker has the same id.
        """

    def report_lost_connection(self, broker_id: BrokerId) -> None:
        """Tell the cluster, in the background, that a connection to this broker has ended. It may have died."""

    def report_log_dir_failure(self) -> None:
        """Announce that a log directory of this broker has failed; retry in the background (R67)."""

    async def resign(self) -> None:
        """Give up every duty for the cluster, and accept no further one. A shutdown calls this before `stop`."""

    async def stop(self) -> None:
        """Leave the cluster. The other brokers are notified at once that this broker has left."""


# ---- roles

OrderResults: TypeAlias = list[tuple[TopicPartition, int]]
"""The error code of each partition in an order, 0 on success."""
Fence: TypeAlias = Callable[[], None]
"""Function that raises KafkaError if an order has become stale."""


Confirm: TypeAlias = Callable[[], Awaitable[None]]
"""Function that asks whether an order is still valid. Raises KafkaError if not, CoordinationError if unknown."""


async def always_confirmed() -> None:
    """Do nothing: the `Confirm` of an order that cannot become stale."""


def never_stale() -> None:
    """Do nothing: the `Fence` of an order that cannot become stale."""


class Orders(Protocol):
    """The orders that a mode gives to the replicas of its broker. A mode may give them before it registers.

    A long order is carried out with pauses, in which clients and heartbeats are served. `fence` is called before the
    first partition and after each pause. If it raises a KafkaError, the order is abandoned with this error.
    """

    async def change_roles(
        self,
        partitions: Sequence[PartitionState],
        topic_ids: Mapping[str, bytes],
        leaders: Iterable[Broker],
        fence: Fence = never_stale,
        *,
        opens_later: bool = False,
    ) -> OrderResults:
        """Make this broker leader or follower of each partition; create a replica that does not exist yet.

        `leaders`: the brokers that lead these partitions, with their endpoints. `opens_later`: as leader, this broker
        serves followers, and refuses clients with NOT_LEADER_OR_FOLLOWER until `open` (C17, C18).
        A role whose leader epoch is not higher than the replica's is refused with STALE_CONTROLLER_EPOCH, except a role
        that resumes one that `end_roles` has ended. Raises CoordinationError if the settings of a topic cannot be read.
        """

    async def caught_up(
        self,
        tp: TopicPartition,
        leader_epoch: int,
        timeout_ms: int,
        is_live: Callable[[BrokerId], bool] | None = None,
    ) -> tuple[BrokerId, ...]:
        """Wait until every live member of the ISR has the log of the opening leader, at most `timeout_ms`.

        Return the members of the ISR that have it, this broker included; an empty tuple if this broker no longer
        leads the partition in this epoch. `is_live`: the brokers to wait for; without it, the metadata decide.
        """

    def open(
        self, tp: TopicPartition, leader_epoch: int, in_sync: Collection[BrokerId] = ()
    ) -> bool:
        """Serve clients of a partition that this broker leads since a role with `opens_later`.

        `in_sync`: the members that stay in the ISR (all if empty). The leader proposes the smaller ISR to the
        `IsrStore` as it opens; until the write, the high watermark waits for the leaving members too.
        Return False, and change nothing, if this broker does not lead the partition in this epoch. A later role of
        the same leader without `opens_later` opens the partition too.
        """

    def end_roles(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop leading, following and serving these partitions at once, and keep their files.

        Waiting produce requests fail with NOT_LEADER_OR_FOLLOWER. The next role must have a higher leader epoch. Only
        a replica that followed may also resume its role: the same leader in the same epoch.
        """

    def replicas_on_disk(self) -> Mapping[TopicPartition, bytes | None]:
        """Return the replicas in the log directories that work, each with its topic id (None if it has none)."""

    def failed_replicas(self) -> frozenset[TopicPartition]:
        """Return the replicas whose log directory has failed."""

    def set_aside(self, tp: TopicPartition) -> None:
        """Stop a replica, and keep its files under another name."""

    async def stop_replicas(
        self, stops: Sequence[StopReplicaPartition], fence: Fence = never_stale
    ) -> OrderResults:
        """Stop replicas, and delete the files of those whose `delete` is true. Deletions are durable at the return."""

    def update_metadata(self, update: MetadataUpdate, *, is_whole: bool) -> None:
        """Update what clients and the other parts of the broker see of the cluster.

        `is_whole`: the update names every partition, and all other partitions are removed.
        """

    async def remove_strays(
        self, update: MetadataUpdate, *, is_whole: bool, confirm: Confirm = always_confirmed
    ) -> None:
        """Delete replicas that the update assigns to other brokers, and set those of unknown topics aside.

        `confirm` is awaited before files are deleted or moved. If it raises, no file is.
        A mode whose metadata may be older than the roles that it has given must not call this method.
        """


class RoleSource(Protocol):
    """The part of a mode that gives this broker's replicas their orders."""

    @property
    def calls(self) -> Mapping[str, Callable[[Call], Awaitable[dict[str, Any]]]]:
        """The handlers of the mode's own calls on the control plane, by method. Empty if it gives orders itself."""

    @property
    def epoch(self) -> int:
        """The controller epoch of the last order, -1 if there was none or the mode has no controller."""

    async def start(self, orders: Orders) -> None:
        """Begin to give orders. The broker registers (`BrokerLifecycle.start`) when this method has returned."""


# ---- metadata


class MetadataSource(Protocol):
    """The metadata of a mode that does not pass every change to `Orders.update_metadata` at once."""

    def asked(
        self, topics: Collection[str] | None, *, is_missing: bool
    ) -> asyncio.Future[bool] | None:
        """Learn that a client's request needs the metadata of these topics and of the brokers (None: of all topics).

        Called before the request is handled, so it must return within microseconds. `is_missing`: the metadata lack
        something that the request names. Return None if the request is to be handled at once. Otherwise return a
        future, which many requests may share. Its result is True when newer metadata were passed on, and False if the
        attempt has failed.
        """

    def followed(self, topics: Collection[str]) -> AbstractContextManager[None]:
        """Return a context in which every change of these topics is passed on soon, without a client's request.

        A request that waits for a change of the metadata is in such a context. Without it, the change would be
        passed on with the next read of all topics.
        """


# ---- the stored state: ISRs, topics and dynamic settings
#
# If the service that stores the state does not answer, every async method raises CoordinationError. A write that the
# mode does not allow on this broker raises KafkaError NOT_CONTROLLER.

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
    """Another writer has stored a newer state: the mode will give the leader a role in a higher leader epoch."""
    ABANDONED = "abandoned"
    """The partition no longer exists, or its leader has withdrawn the proposed ISR."""


class IsrWrite(NamedTuple):
    """The outcome of one write. `version`: the new version of the state, -1 if the state was not written.

    `zxid`: the number of the write in the order of all writes (in ZooKeeper its transaction id), for the ledger. None
    if it is unknown, because the response to the write was lost.
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

        Returns only when it is certain whether the state was written. After a successful write, the mode updates
        the metadata of all brokers. `is_wanted()` is called before each attempt; if it returns
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
    """The topics of the cluster. Any broker may read them; the mode decides which broker may write them."""

    async def names(self) -> list[str]:
        """Return the names of all topics."""

    async def existing(self, names: Sequence[str], *, half_made: bool = True) -> set[str]:
        """Return the names in `names` that are existing topics, including topics that are being deleted.

        `half_made`: also topics whose creation has not ended, or has failed. A mode in which each topic is created at
        once has none.
        """

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        """Create topics; return the errors of failed topics by name.

        A topic and its settings are written together or not at all. An error is a KafkaError or a
        CoordinationError.
        """

    async def mark_for_deletion(self, topic: str) -> bool:
        """Mark a topic for deletion; the mode deletes it later. Return False if the topic was already marked.

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
    USER = "user"
    """A user. The overrides are SCRAM credentials, by mechanism, and quotas."""


class ConfigListener(Protocol):
    """The receiver of changed settings (`broker/settings/config_updates.py`)."""

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        """Read and apply the settings of these topics, which may have changed (None: all topics)."""

    def brokers_configured(self, cluster: Overrides, own: Overrides) -> None:
        """Apply dynamic settings: `cluster` for all brokers, `own` for this broker only."""

    def users_configured(self, users: Mapping[str, Overrides]) -> None:
        """Replace the credentials of these users. A user without overrides has none."""

    def quotas_configured(self, quotas: Mapping[QuotaEntity, Overrides]) -> None:
        """Replace the quotas of these owners. An owner without overrides has none."""


class ConfigChanges(Protocol):
    """The source of changed settings for one listener."""

    async def start(self) -> None:
        """Begin to pass changes to the listener; return when the listener has applied the current settings."""

    async def apply_now(self) -> None:
        """Call the listener for all changes that were written before this call."""


class ConfigStore(Protocol):
    """The dynamic settings of topics, brokers and users."""

    async def topics(self, names: Sequence[str], *, latest: bool = False) -> list[Overrides]:
        """Return the overrides of each topic, in the order of `names`.

        `latest`: read the stored settings instead of a copy that may be old.
        """

    def users(self, names: Sequence[str] | None) -> AsyncIterator[Mapping[str, Overrides]]:
        """Yield the stored overrides of these users (None: all users) in parts. Raises CoordinationError."""

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

    async def alter_quotas(
        self, owner: QuotaEntity, change: Callable[[Overrides], Overrides], *, validate_only: bool
    ) -> None:
        """Do what `alter` does, for the quotas of an owner."""

    def changes(self, listener: ConfigListener) -> ConfigChanges:
        """Return a source of all changes for `listener`. The source is idle until its `start` is called."""


class AclListener(Protocol):
    """The receiver of ACLs: the authorizer (`security/authorizer.py`)."""

    def replace(
        self, kind: PatternType, entries: Mapping[ResourcePattern, frozenset[AclEntry]]
    ) -> None:
        """Replace all ACLs with patterns of this kind, literal or prefixed."""

    def update(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        """Replace the ACLs of a pattern."""


class AclStore(Protocol):
    """The ACLs of the cluster. A broker without an authorizer does not use them."""

    async def start(self, listener: AclListener) -> None:
        """Begin to pass all changes to the listener; return when the listener has the current ACLs."""

    async def alter(
        self,
        pattern: ResourcePattern,
        change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]],
    ) -> None:
        """Replace the ACLs of a pattern by `change(current ACLs)`, and notify all brokers. The listener has them then.

        `change` is called again if the ACLs have changed before the write. Raises KafkaError, CoordinationError, and
        ValueError if the stored ACLs cannot be decoded.
        """


class TokenListener(Protocol):
    """The receiver of delegation tokens (`security/tokens.py`)."""

    def replace(self, tokens: Sequence[DelegationToken]) -> None:
        """Replace all tokens."""

    def update(self, id: str, token: DelegationToken | None) -> None:
        """Replace one token, or forget it."""


class TokenStore(Protocol):
    """The delegation tokens of the cluster. A broker without `delegation.token.secret.key` does not use them."""

    async def start(self, listener: TokenListener) -> None:
        """Begin to pass all changes to the listener; return when the listener has the current tokens."""

    async def create(self, token: DelegationToken) -> None:
        """Store a new token, and notify all brokers. Raises CoordinationError."""

    async def change(self, token: DelegationToken) -> bool:
        """Replace a token, and notify all brokers; return False if it was removed. Raises CoordinationError."""

    async def remove(self, id: str) -> None:
        """Remove a token, and notify all brokers. Raises CoordinationError."""

    async def refresh(self) -> None:
        """Pass all changes that were written before this call to the listener. Raises CoordinationError."""


# ---- administration and diagnostics

Result = TypeVar("Result")


class Administration(Protocol):
    """The requests of administrators. Each mode decides which broker may carry them out.

    On every other broker the requests raise KafkaError NOT_CONTROLLER.
    """

    @property
    def controller_id(self) -> BrokerId:
        """Id of the broker to which clients and brokers send these requests, -1 if there is none.

        In a mode in which every broker may carry them out, this is the broker's own id.
        """

    def check_may_act(self) -> None:
        """Raise KafkaError NOT_CONTROLLER if this broker may not carry out requests now."""

    async def wait_while_controller(self, call: Awaitable[Result]) -> Result:
        """Return the result of a call to the broker `controller_id`.

        Cancels the call and raises KafkaError NOT_CONTROLLER as soon as `controller_id` changes.
        """

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> list[TopicPartition]:
        """Move the leaderships of a broker to other brokers; return the partitions that it still leads (R23).

        Raises KafkaError: NOT_CONTROLLER also if this broker resigns during the call, STALE_BROKER_EPOCH for an
        earlier registration, BROKER_NOT_AVAILABLE for an unregistered broker.
        """

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, PartitionResult]:
        """Start or replace reassignments (KIP-455, R57). A target of None cancels the reassignment."""

    async def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions that are being reassigned. Raises KafkaError."""

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        """Elect preferred or unclean leaders for these partitions (None: all partitions) (KIP-460, R61)."""

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit and that decide about elections (KIP-226)."""


class Diagnostics(Protocol):
    """The state that people see. All results can be encoded as JSON."""

    @property
    def is_active(self) -> bool:
        """True if this broker is the active controller; always False in a mode without one."""

    @property
    def epoch(self) -> int:
        """Controller epoch of the last controller election that this broker won; -1 if it has won none."""

    def summary(self) -> dict[str, Any]:
        """Return a summary of the controller's state. If this broker is not the controller, all counts are 0 (B5, D11).

        Metrics and `minikafka status` need these keys: controller_id, is_active, epoch, queue_size, topic_count,
        partition_count, offline_partition_count, preferred_replica_imbalance_count, replicas_to_delete and
        replicas_ineligible_for_deletion.
        """

    def view(self, tp: TopicPartition) -> dict[str, Any] | None:
        """Return the mode's state of a partition: the active controller's; None if this broker is not the controller.

        In a mode without a controller: the state of this broker's replica, None if it has none.
        """

    def backlog(self) -> dict[str, int]:
        """Return the number of state changes that each broker has not carried out, by broker id (C39).

        They are the requests of the controller that a broker has not answered, and the result is empty if this broker
        is not the controller. In a mode without a controller, they are the requests that wait for the broker.
        """

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the actions that an operation would cause, as ledger lines. `question`: operation and arguments.

        Raises KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT if the controller stays busy, INVALID_REQUEST.
        """
