"""Updates of dynamic settings, applied to this broker's replicas and its controller (R71)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from minikafka.base.config import BrokerConfig
from minikafka.broker.coordinator import Controller, Overrides
from minikafka.broker.dynamic_config import DynamicConfig

logger = logging.getLogger(__name__)


class Replicas(Protocol):
    """The replicas that the settings apply to (`broker/replicas.py`)."""

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        """Read and apply the settings of these topics, of all if None. Raises CoordinationError."""

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit."""


class ConfigUpdates:
    """The ConfigListener of one broker."""

    def __init__(self, settings: DynamicConfig, replicas: Replicas, controller: Controller) -> None:
        self._settings = settings
        self._replicas = replicas
        self._controller = controller

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        """Read and apply the settings of these topics, of all if None. Raises CoordinationError."""
        await self._replicas.topics_configured(topics)

    def brokers_configured(self, cluster: Overrides, own: Overrides) -> None:
        """Apply the settings of all brokers, and of this one, to replicas and controller."""
        if not self._settings.load(cluster, own):
            return
        logger.info("dynamic settings are now %s", {**self._settings.cluster, **self._settings.own})
        self._controller.set_broker_defaults(self._settings.current)
        self._replicas.set_broker_defaults(self._settings.current)
