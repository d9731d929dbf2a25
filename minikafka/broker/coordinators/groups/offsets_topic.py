"""Finding the coordinator of a group: the leader of the `__consumer_offsets` partition that stores the group.

Invariant: the partition depends only on the group id and on the number of partitions of the topic, so that
every broker returns the same coordinator.
"""

from __future__ import annotations

from typing import NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode
from minikafka.base.model import NO_LEADER, Node, TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.broker.admin.auto_create import AutoCreate
from minikafka.broker.cluster.metadata import MetadataCache
from minikafka.groups.partitions import partition_of


class Located(NamedTuple):
    """The coordinator of a group, or the reason why the group has no coordinator now."""

    node: Node | None
    reason: str = ""


class OffsetsTopic:
    """`__consumer_offsets` in this broker's metadata; the first coordinator lookup creates the topic."""

    def __init__(
        self, config: BrokerConfig, metadata: MetadataCache, auto_create: AutoCreate
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._auto_create = auto_create

    @property
    def exists(self) -> bool:
        """True if this broker's metadata shows `__consumer_offsets`."""
        return GROUP_TOPIC in self._metadata.topics

    @property
    def partition_count(self) -> int:
        """Number of partitions of the topic; the configured number if the topic does not exist yet."""
        states = self._metadata.topics.get(GROUP_TOPIC)
        return len(states) if states else self._config.offsets_topic_num_partitions

    def locate(self, group_id: str, listener: str) -> Located:
        """Return the group's coordinator, with its address for this listener; create the topic if it is missing."""
        states = self._metadata.topics.get(GROUP_TOPIC)
        if not states:
            return Located(None, self._create())
        number = partition_of(group_id, len(states))
        state = states.get(number)
        leader = NO_LEADER if state is None else state.leader
        broker = self._metadata.brokers.get(leader)
        node = broker.node(listener) if broker else None
        if node is None:
            tp = TopicPartition(GROUP_TOPIC, number)
            return Located(None, f"{tp} has no leader that clients of this listener can reach")
        return Located(node)

    def _create(self) -> str:
        """Start creating `__consumer_offsets`; return the reason why no group has a coordinator yet.

        Nothing is started if the creation is impossible now or already in progress.
        """
        if not self._metadata.version:
            return "this broker has no metadata yet"
        error = self._auto_create.start(GROUP_TOPIC)
        if error == ErrorCode.INVALID_REPLICATION_FACTOR:
            wanted = self._config.offsets_topic_replication_factor
            live = len(self._metadata.brokers)
            return (
                f"{GROUP_TOPIC} needs {wanted} live brokers (offsets.topic.replication.factor), "
                f"there are {live}"
            )
        return f"{GROUP_TOPIC} is being created"
