"""Updates of dynamic settings, applied to this broker's replicas, elections, known users and quotas (R71)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.base.printable import printable
from minikafka.broker.capabilities import Administration, Overrides
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.rpc.messages import SettingChange
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.settings.dynamic_stores import DynamicStores
from minikafka.security.credentials import KnownCredentials
from minikafka.security.quotas import QuotaEntity

logger = logging.getLogger(__name__)


class ConfiguredReplicas(Protocol):
    """The part of the replica manager (`broker/replicas/manager.py`) that applies changed settings."""

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        """Read and apply the settings of these topics (None: all topics). Raises CoordinationError."""

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit."""

    def set_replication_rates(self, leader: int, follower: int, moves: int) -> None:
        """Set the throttles: bytes per second that leaders may send, followers may fetch, and moves may copy."""


class ConfigUpdates:
    """The ConfigListener of one broker, which applies changed settings to its replicas, elections and connections."""

    def __init__(
        self,
        settings: DynamicConfig,
        replicas: ConfiguredReplicas,
        administration: Administration,
        credentials: KnownCredentials,
        stores: DynamicStores,
        quotas: BrokerQuotas,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._administration = administration
        self._credentials = credentials
        self._stores = stores
        self._quotas = quotas
        self.limit_connections: Callable[[BrokerConfig], None] = lambda config: None
        """Applies the limits of connections."""

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        await self._replicas.topics_configured(topics)

    def brokers_configured(self, cluster: Overrides, own: Overrides) -> None:
        """Apply the dynamic settings to replicas and elections.

        `cluster`: the settings for all brokers. `own`: the settings for this broker only.
        """
        before = self._settings.replication_rates
        has_changed = self._settings.load(cluster, own)
        self._stores.apply(self._settings.own)
        if self._settings.replication_rates != before:
            logger.info(
                "replication throttles are now %d bytes/s for leaders, %d for followers and %d for moves between "
                "log directories",
                *self._settings.replication_rates,
            )
            self._replicas.set_replication_rates(*self._settings.replication_rates)
        if not has_changed:
            return
        names = sorted({**self._settings.cluster, **self._settings.own})
        logger.info("dynamic settings have changed; set are now: %s", ", ".join(names) or "none")
        self._apply()

    def users_configured(self, users: Mapping[str, Overrides]) -> None:
        for user, overrides in users.items():
            for mechanism in self._credentials.load(user, overrides):
                logger.error(
                    "The %s credential of user %s is malformed", mechanism, printable(user)
                )

    def quotas_configured(self, quotas: Mapping[QuotaEntity, Overrides]) -> None:
        self._quotas.load(quotas)

    def file_changed(self, settings: Mapping[str, str]) -> list[SettingChange]:
        """Apply the dynamic settings after a change of the broker's file; return all settings with a changed value.

        `settings`: all settings in the file except secrets. Secrets keep their current values. Raises
        KafkaError INVALID_CONFIG.
        """
        static = self._settings.static
        secrets = {
            name: getattr(static, row.attribute)
            for name, row in BrokerConfig.keys().items()
            if row.sensitive and name in static.given
        }
        secrets |= {n: value for n, value in static.listener_keys.items() if static.text(n) is None}
        try:
            wanted = BrokerConfig.from_mapping({**settings, **secrets})
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        changes, has_effect = self._settings.reload(wanted)
        if changes:
            names = ", ".join(f"{change.name} ({change.effect})" for change in changes)
            logger.info("The broker's configuration file has changed: %s", names)
        if has_effect:
            self._apply()
        return changes

    def _apply(self) -> None:
        self._administration.set_broker_defaults(self._settings.current)
        self._replicas.set_broker_defaults(self._settings.current)
        self.limit_connections(self._settings.current)
