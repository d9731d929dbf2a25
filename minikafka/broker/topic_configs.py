"""The settings of the topics hosted here, as `/config/topics/T` overrides the broker's (A15, R71).

Invariant: a topic's settings are read before its first replica starts, so that min.insync.replicas is
never taken for less than it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Coordination
from minikafka.zk import layout

logger = logging.getLogger(__name__)


class TopicConfigs:
    """Cache of effective topic settings by topic name."""

    def __init__(self, coordination: Coordination, config: BrokerConfig) -> None:
        self._coordination = coordination
        self._config = config
        self._configs: dict[str, TopicConfig] = {}

    def get(self, topic: str) -> TopicConfig:
        """Settings of a loaded topic."""
        return self._configs[topic]

    async def load(self, topics: Iterable[str]) -> None:
        """Read the topics that are not known yet. Raises CoordinationError when ZooKeeper does not answer."""
        missing = sorted({topic for topic in topics if topic not in self._configs})
        if not missing:
            return
        found = await self._coordination.get_many(
            [layout.topic_config_path(topic) for topic in missing]
        )
        for topic, node in zip(missing, found, strict=True):
            self._configs[topic] = self._effective(topic, node[0] if node is not None else None)

    def forget(self, topic: str) -> None:
        """Read it again the next time."""
        self._configs.pop(topic, None)

    def _effective(self, topic: str, data: bytes | None) -> TopicConfig:
        if data is None:
            return TopicConfig.from_broker(self._config, {})
        try:
            return TopicConfig.from_broker(self._config, layout.decode_config(data))
        except (ConfigError, ValueError) as error:
            logger.error(
                "settings of topic %s are not usable, the broker's are used: %s", topic, error
            )
            return TopicConfig.from_broker(self._config, {})
