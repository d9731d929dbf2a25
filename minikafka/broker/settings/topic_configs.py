"""The settings of the topics that this broker hosts: the broker's defaults with each topic's overrides (A15, R71).

Invariant: a topic's settings are read before its first replica starts, so that no Produce request is acknowledged
under a min.insync.replicas that is lower than the topic's setting.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.keys import usable
from minikafka.base.errors import ConfigError
from minikafka.broker.capabilities import ConfigStore

logger = logging.getLogger(__name__)


class TopicConfigs:
    """Cache of the effective settings of topics, by topic name. `broker` holds the defaults."""

    def __init__(self, store: ConfigStore, broker: BrokerConfig) -> None:
        self._store = store
        self._broker = broker
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}

    @property
    def topics(self) -> list[str]:
        """Names of the topics whose settings are loaded."""
        return list(self._configs)

    def get(self, topic: str) -> TopicConfig:
        """Return the settings of a topic. Raises KeyError if the settings are not loaded."""
        return self._configs[topic]

    def keep(self, topics: Collection[str]) -> None:
        """Drop the settings of all topics except `topics`, the topics that this broker still hosts."""
        for topic in self._configs.keys() - topics:
            del self._configs[topic], self._overrides[topic]

    async def load(self, topics: Iterable[str]) -> None:
        """Read the settings of the topics, except settings that are already loaded. Raises CoordinationError."""
        missing = sorted({topic for topic in topics if topic not in self._configs})
        if missing:
            await self.read(missing)

    async def read(self, topics: Iterable[str], *, latest: bool = False) -> None:
        """Read the settings of the topics, even if they are already loaded. Raises CoordinationError.

        `latest`: read the stored settings instead of a copy that may be old.
        """
        names = list(topics)
        for topic, stored in zip(
            names, await self._store.topics(names, latest=latest), strict=True
        ):
            self._overrides[topic] = _usable_overrides(topic, stored)
            self._configs[topic] = self._effective(topic)

    def set_broker_defaults(self, broker: BrokerConfig) -> None:
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


def _usable_overrides(topic: str, stored: Mapping[str, str]) -> Mapping[str, str]:
    """Return the valid overrides of a topic. Invalid overrides are logged and left out."""
    kept, faults = usable(TopicConfig.keys(), stored)
    for fault in faults:
        logger.error("ignoring a setting of topic %s: %s", topic, fault)
    return kept
