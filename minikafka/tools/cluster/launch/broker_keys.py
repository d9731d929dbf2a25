"""The keys of a cluster's brokers: what a start lays below the configuration, and what a cluster remembers.

Invariant: a cluster keeps the keys of its last start unless a configuration replaces them, and keeps the replication
factor and the minimum ISR size that it was made with unless a configuration sets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.cluster import (
    ClusterConfig,
    internal_topic_defaults,
    laid_topic_defaults,
)
from minikafka.base.coordination import COORDINATION
from minikafka.base.endpoints import PLAINTEXT
from minikafka.base.errors import ConfigError
from minikafka.broker.rpc.messages import SettingChange
from minikafka.tools.cluster.settings import ClusterSettings

SECRET_KEY: Final = "minikafka.cluster.secret"  # noqa: S105 - the name of the key
ADVERTISED: Final = "advertised.listeners"
SOURCE: Final = "minikafka.source.address"
"""The keys with which a cluster with faults puts its brokers behind a proxy."""
_OWN: Final = frozenset(
    ("broker.id", "listeners", "log.dir", "log.dirs", "zookeeper.connect", COORDINATION, SECRET_KEY)
)
"""The keys in a broker's file that the cluster sets for each broker."""
STARTED: Final = "started"
"""The effect of a change in the file of a broker that this start has started (`SettingChange.effect`)."""


def laid_keys(settings: ClusterSettings, brokers: int) -> dict[str, object]:
    """Return the keys that apply where the configuration is silent, for a cluster of this many brokers."""
    return {**internal_topic_defaults(brokers), **laid_topic_defaults(settings.made_with, brokers)}


def settings_after(
    before: ClusterSettings | None, config: ClusterConfig, brokers: int
) -> ClusterSettings:
    """Return the settings of a cluster that is started with `config`; `before` is None for a new cluster."""
    if before is not None and config.is_default:
        return before
    made_with = before.made_with if before else config.topic_defaults(brokers)
    overrides = {id_: _without_secret(keys) for id_, keys in config.overrides.items()}
    return ClusterSettings(made_with, _without_secret(config.broker), overrides)


def settings_in(files: Mapping[int, BrokerConfig]) -> ClusterSettings:
    """Return the settings of a cluster of an older version, which remembers them only in its brokers' files."""
    first = files[min(files)] if files else BrokerConfig(broker_id=0)
    names = ClusterConfig().topic_defaults(1)
    made_with: dict[str, int] = {
        name: getattr(first, BrokerConfig.keys()[name].attribute) for name in names
    }
    laid = {*_OWN, *names, *internal_topic_defaults(1)}
    return ClusterSettings(
        made_with,
        {},
        {
            id_: {name: text for name in file.given - laid if (text := file.text(name)) is not None}
            for id_, file in files.items()
        },
    )


def changes_between(before: BrokerConfig, after: BrokerConfig) -> list[SettingChange]:
    """Return the settings that differ between two files of one broker, without those that the cluster sets."""
    has_proxy = SOURCE in {*before.given, *after.given}
    own = _OWN | {ADVERTISED, SOURCE} if has_proxy else _OWN
    names = {*BrokerConfig.keys(), *before.listener_keys, *after.listener_keys} - own
    return [
        SettingChange(name, before.text(name), after.text(name), STARTED)
        for name in sorted(names)
        if before.text(name) != after.text(name)
    ]


def kept_settings(
    settings: ClusterSettings, config: ClusterConfig, brokers: int, file: object
) -> list[str]:
    """Return a line for each topic default where the configuration file and the first start of the cluster differ."""
    laid = laid_keys(settings, brokers)
    lines = []
    for name, made in settings.made_with.items():
        row = BrokerConfig.keys()[name]
        if name not in config.broker:
            if (kept := laid.get(name, row.default)) != row.default:
                lines.append(
                    f"{name} = {kept}: the cluster was made with it, {file} does not set it"
                )
        elif (given := row.parse(config.broker[name])) < made:
            lines.append(f"{name} = {given} in {file} counts: the cluster was made with {made}")
    return lines


def protocols_of(config: BrokerConfig) -> dict[str, str]:
    """Return the security protocol of each listener that is not PLAINTEXT, by the name of the listener."""
    listeners = config.endpoints
    every = (*listeners.kafka, listeners.control)
    return {item.name: item.security.value for item in every if item.security is not PLAINTEXT}


def check_inter_broker(keys: Mapping[str, object], listeners: Iterable[str]) -> None:
    """Raise ConfigError if brokers would connect to each other through PLAINTEXT, which the cluster does not have.

    `listeners`: the names of its listeners.
    """
    name, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if str(keys.get(name) or keys.get(protocol, PLAINTEXT.value)).upper() == PLAINTEXT.value:
        raise ConfigError(
            f"{protocol} is PLAINTEXT, but [listeners] is set and cluster.port is not, so there is no such listener: "
            f"set {name} to one of {', '.join(listeners)}, or set cluster.port"
        )


def _without_secret(keys: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in keys.items() if name != SECRET_KEY}
