"""The configuration keys of quotas and of limits of connections."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.config.keys import INT_MAX, ConfigType, key
from minikafka.base.config.zookeeper import ZooKeeperKeys

_, _, _, INT, _, _, LIST, _ = ConfigType


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaKeys(ZooKeeperKeys):
    """The keys of quotas and of limits of connections, a part of `BrokerConfig`."""

    quota_window_num: int = key(
        INT,
        11,
        "Number of windows over which the rates of clients with a quota are averaged.",
        low=1,
    )
    quota_window_size_seconds: int = key(
        INT, 1, "Length of each window of quota.window.num.", low=1
    )
    controller_quota_window_num: int = key(
        INT,
        11,
        "Number of windows for which a client with the quota controller_mutation_rate may save up changes of topics.",
        low=1,
    )
    controller_quota_window_size_seconds: int = key(
        INT, 1, "Length of each window of controller.quota.window.num.", low=1
    )
    max_connections_per_ip: int = key(
        INT, INT_MAX, "Maximum number of client connections from one address.", low=0
    )
    max_connections_per_ip_overrides: tuple[str, ...] = key(
        LIST,
        (),
        "Maximum number of client connections from certain addresses, as ADDRESS:NUMBER.",
    )
    max_connection_creation_rate: int = key(
        INT,
        INT_MAX,
        "New client connections per second, averaged over quota.window.num windows. Further ones are read later. "
        "listener.name.NAME.max.connection.creation.rate: of one listener.",
        low=0,
    )
