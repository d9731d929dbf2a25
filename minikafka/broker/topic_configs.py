"""The settings of the topics hosted here, as `/config/topics/T` overrides the broker's (A15, R71).

Invariant: a topic's settings are read before its first replica starts, so that min.insync.replicas is
never taken for less than it is.
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
    """Cache of effective topic settings by topic name. `broker` has the values that topics inherit."""

    def __init__(self, coordination: Coordination, broker: BrokerConfig) -> None:
        self._coordination = coordination
        self._broker = broker
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}

    @property
    def topics(self) -> list[str]:
        """The loaded topics."""
        return list(self._configs)

    def get(self, topic: str) -> TopicConfig:
        """Settings of a loaded topic."""
        return self._configs[topic]

    def keep(self, topics: Collection[str]) -> None:
        """Forget all others: they are hosted here no more."""
        for topic in self._configs.keys() - topics:
            del self._configs[topic], self._overrides[topic]

    async def load(self, topics: Iterable[str]) -> None:
        """Read the topics that are not known yet. Raises CoordinationError when ZooKeeper does not answer."""
        missing = sorted({topic for topic in topics if topic not in self._configs})
        if missing:
            await self.read(missing)

    async def read(self, topics: Iterable[str]) -> None:
        """Read the topics, known or not. Raises CoordinationError."""
        names = list(topics)
        found = await self._coordination.get_many(
            [layout.topic_config_path(topic) for topic in names]
        )
        for topic, node in zip(names, found, strict=True):
            self._overrides[topic] = _overrides(topic, node[0] if node is not None else b"")
            self._configs[topic] = self._effective(topic)

    def inherit(self, broker: BrokerConfig) -> None:
        """The broker's values are these from now on."""
        self._broker = broker
        self._configs = {topic: self._effective(topic) for topic in self._configs}

    def _effective(self, topic: str) -> TopicConfig:
        try:
            return TopicConfig.from_broker(self._broker, self._overrides[topic])
        except ConfigError as error:
            logger.error(
                "settings of topic %s are not usable, the broker's are used: %s", topic, error
            )
            return TopicConfig.from_broker(self._broker, {})


def _overrides(topic: str, data: bytes) -> Mapping[str, str]:
    """What of the node can be used: a setting that cannot be does not take the others with it."""
    try:
        stored = layout.decode_config(data)
    except ValueError as error:
        logger.error("the settings node of topic %s is not readable: %s", topic, error)
        return {}
    kept, faults = usable(TopicConfig.keys(), stored)
    for fault in faults:
        logger.error("a setting of topic %s is not used: %s", topic, fault)
    return kept
