"""The stored state of the cluster: ISRs, topics and dynamic settings.

If the service that stores the state does not answer, every async method raises CoordinationError. A write that the
mode does not allow on this broker raises KafkaError NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from minikafka.base.config import TopicConfig
from minikafka.base.model import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

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
