"""The internal topic of a coordinator: its settings, its creation, and the broker that coordinates a key.

Invariant: the partition depends only on the key and on the number of partitions of the topic, so that every broker
returns the same coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode
from minikafka.base.model import NO_LEADER, Node, RequestedTopic, TopicPartition
from minikafka.broker.admin.auto_create import AutoCreate
from minikafka.broker.metadata import MetadataCache


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of an internal topic. `configs` are the topic's own settings, with Kafka's keys.

    `replication_key`: the key of the broker's configuration that sets `replication_factor`. `codec`: Kafka's number
    of the codec that compresses appends. An append times out after `append_timeout_ms`. A load reads `load_bytes`
    at once.
    """

    name: str
    partitions: int
    replication_factor: int
    replication_key: str
    configs: Mapping[str, str]
    codec: int = 0
    append_timeout_ms: int = 5_000
    load_bytes: int = 5 << 20


class Located(NamedTuple):
    """The coordinator of a key, or the reason why the key has no coordinator now."""

    node: Node | None
    reason: str = ""


class InternalTopic:
    """An internal topic in this broker's metadata; the first lookup of a coordinator creates the topic."""

    def __init__(
        self, settings: TopicSettings, metadata: MetadataCache, auto_create: AutoCreate
    ) -> None:
        self.settings = settings
        self._name = settings.name
        self._metadata = metadata
        self._auto_create = auto_create
        auto_create.define(
            RequestedTopic(
                settings.name,
                settings.partitions,
                settings.replication_factor,
                configs=settings.configs,
            )
        )

    @property
    def exists(self) -> bool:
        """True if this broker's metadata shows the topic."""
        return self._name in self._metadata.topics

    @property
    def partition_count(self) -> int:
        """Number of partitions of the topic; the configured number if the topic does not exist yet."""
        states = self._metadata.topics.get(self._name)
        return len(states) if states else self.settings.partitions

    def locate(self, key: str, listener: str) -> Located:
        """Return the coordinator of the key, with its address for this listener; create the topic if it is missing."""
        states = self._metadata.topics.get(self._name)
        if not states:
            return Located(None, self._create())
        number = partition_of(key, len(states))
        state = states.get(number)
        leader = NO_LEADER if state is None else state.leader
        broker = self._metadata.brokers.get(leader)
        node = broker.node(listener) if broker else None
        if node is None:
            tp = TopicPartition(self._name, number)
            return Located(None, f"{tp} has no leader that clients of this listener can reach")
        return Located(node)

    def _create(self) -> str:
        """Start creating the topic; return the reason why no key has a coordinator yet.

        Nothing is started if the creation is impossible now or already in progress.
        """
        if not self._metadata.version:
            return "this broker has no metadata yet"
        error = self._auto_create.start(self._name)
        if error == ErrorCode.INVALID_REPLICATION_FACTOR:
            wanted, key = self.settings.replication_factor, self.settings.replication_key
            live = len(self._metadata.brokers)
            return f"{self._name} needs {wanted} live brokers ({key}), there are {live}"
        return f"{self._name} is being created"
