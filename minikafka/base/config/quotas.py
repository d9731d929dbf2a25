"""The configuration keys of quotas and of client connections."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from minikafka.base.config.keys import INT_MAX, ConfigType, Key, key
from minikafka.base.config.zookeeper import ZooKeeperKeys
from minikafka.base.errors import ConfigError

_, _, _, INT, LONG, _, LIST, _ = ConfigType
CONNECTION_LIMITS: Final = (
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connection.creation.rate",
)
_PER_IP, _OVERRIDES = CONNECTION_LIMITS[1:3]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaKeys(ZooKeeperKeys):
    """The keys of quotas and of client connections, a part of `BrokerConfig`."""

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
    fetch_max_bytes: int = key(
        INT, 57_671_680, "Maximum bytes of records in the response to a fetch.", low=1024
    )
    max_incremental_fetch_session_cache_slots: int = key(
        INT, 1_000, "Maximum number of incremental fetch sessions.", low=0
    )
    connections_max_idle_ms: int = key(
        LONG, 600_000, "Idle time after which a connection is closed; a negative value: never."
    )
    max_connections: int = key(
        INT,
        INT_MAX,
        "Maximum number of client connections (docs/performance.md). listener.name.NAME.max.connections: of one "
        "listener, whose further ones wait.",
        low=0,
    )
    socket_request_max_bytes: int = key(
        INT, 104_857_600, "Maximum size of a request in bytes.", low=1
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


_NUMBER: Final = Key(INT, 0, "", low=0, name=_OVERRIDES)


def per_ip_overrides(config: QuotaKeys) -> dict[str, int]:
    """Return the largest number of connections by address. Raises ConfigError."""
    if not config.max_connections_per_ip and not config.max_connections_per_ip_overrides:
        raise ConfigError(f"{_PER_IP} may be 0 only if {_OVERRIDES} is set")
    found = {}
    for entry in config.max_connections_per_ip_overrides:
        host, _, count = entry.rpartition(":")
        try:
            found[str(ip_address(host.strip("[] ")))] = _NUMBER.parse(count)
        except (ValueError, ConfigError):
            raise ConfigError(
                f"{_OVERRIDES} must be a list of ADDRESS:NUMBER, got {entry!r}; "
                "names of hosts are not looked up"
            ) from None
    return found
