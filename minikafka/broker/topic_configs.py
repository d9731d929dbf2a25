"""The settings of the topics hosted here: the broker's defaults with the overrides of `/config/topics/T` (A15, R71).

Invariant: a topic's settings are read before its first replica starts, so that no produce is acknowledged with
a min.insync.replicas lower than the topic's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import ConfigError
from minikafka.base.keys import usable
from minikafka.base.ports import Coordination
from minikafka.zk import layout

logger = logging.getLogger(__name__)


class TopicConfigs:
    """Cache of effective topic settings by topic name. `broker` holds the defaults."""

    def __init__(self, coordination: Coordination, broker: BrokerConfig) -> None:
        self._coordination = coordination
        self._broker = broker
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}

    @property
    def topics(self) -> list[str]:
        """Names of the loaded topics."""
        return list(self._configs)

    def get(self, topic: str) -> TopicConfig:
        """Return the settings of a loaded topic. Raises KeyError."""
        return self._configs[topic]

    def keep(self, topics: Collection[str]) -> None:
        """Drop all other topics, which are no longer hosted here."""
        for topic in self._configs.keys() - topics:
            del self._configs[topic], self._overrides[topic]

    async def load(self, topics: Iterable[str]) -> None:
        """Read the topics that are not loaded. Raises CoordinationError when ZooKeeper does not answer."""
        missing = sorted({topic for topic in topics if topic not in self._configs})
        if missing:
            await self.read(missing)

    async def read(self, topics: Iterable[str]) -> None:
        """Read the topics, loaded or not. Raises CoordinationError when ZooKeeper does not answer."""
        names = list(topics)
        found = await self._coordination.get_many(
            [layout.topic_config_path(topic) for topic in names]
        )
        for topic, node in zip(names, found, strict=True):
            self._overrides[topic] = _overrides(topic, node[0] if node is not None else b"")
            self._configs[topic] = self._effective(topic)

    def replace_defaults(self, broker: BrokerConfig) -> None:
        """Replace the broker-level defaults."""
        self._broker = broker
        self._configs = {topic: self._effective(topic) for topic in self._configs}

    def _effective(self, topic: str) -> TopicConfig:
        try:
            return TopicConfig.from_broker(self._broker, self._overrides[topic])
        except ConfigError as error:
            logger.error(
                "settings of topic %s are invalid, using the broker's defaults: %s", topic, error
            )
            return TopicConfig.from_broker(self._broker, {})


def _overrides(topic: str, data: bytes) -> Mapping[str, str]:
    """Return the valid settings in the node; an invalid one is logged and left out."""
    try:
        stored = layout.decode_config(data)
    except ValueError as error:
        logger.error("settings node of topic %s cannot be decoded: %s", topic, error)
        return {}
    kept, faults = usable(TopicConfig.keys(), stored)
    for fault in faults:
        logger.error("ignoring a setting of topic %s: %s", topic, fault)
    return kept
