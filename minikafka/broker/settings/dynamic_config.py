"""A broker's current settings: its file, and the settings altered at run time (KIP-226).

Three layers in order of precedence: this broker's own node under `/config/brokers`, the node
`<default>` for all brokers, the file. Invariant: `current` is always valid; unusable stored
settings are skipped and logged. Keys that this broker does not know are stored and shown, as in
Kafka, and have no effect. This module does no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.broker import check_cleaner, check_inherited
from minikafka.base.config.keys import LONG_MAX, ConfigType, Key, parse_all
from minikafka.base.config.quotas import CONNECTION_LIMITS, per_ip_overrides
from minikafka.base.config.security import (
    LISTENER_LIMITS,
    PREFIX,
    is_listener_limit,
    listener_key,
    listener_part,
    parse_prefixed,
)
from minikafka.base.config.throttles import FOLLOWER_RATE, LEADER_RATE, MOVE_RATE, THROTTLES
from minikafka.base.errors import ConfigError
from minikafka.broker.rpc.messages import SettingChange
from minikafka.broker.settings.dynamic_stores import STORE_KEYS, is_store_key

logger = logging.getLogger(__name__)

RELEASE: Final = "3.3-IV3"
"""The Kafka release whose API versions are served. User interfaces enable features according to this release."""
RELEASE_KEY: Final = Key(
    ConfigType.STRING,
    RELEASE,
    "The Kafka release whose API versions are served; fixed.",
    name="inter.broker.protocol.version",
)

CLEANER: Final = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.backoff.ms",
)
"""Keys of the log cleaner. A new value applies from the next cleaning on."""

DYNAMIC: Final[dict[str, Key]] = {
    **{
        name: BrokerConfig.keys()[name]
        for name in (
            *(row.synonyms[0][0] for row in TopicConfig.keys().values() if row.synonyms),
            "producer.id.expiration.ms",
            "transaction.partition.verification.enable",
            *CLEANER,
            *CONNECTION_LIMITS,
        )
    },
    **{name: replace(BrokerConfig.keys()[name], low=1) for name in LISTENER_LIMITS},
    **THROTTLES,
}
"""Keys that can be altered while a broker runs: Kafka's dynamic keys, as far as this broker has them."""

_STATIC: Final = {*BrokerConfig.keys(), RELEASE_KEY.name} - DYNAMIC.keys()
"""Keys that cannot be altered at run time: they are set in the broker's file, or have a fixed value."""


class DynamicConfig:
    """The three layers of a broker's settings, and `current`, the settings that result from them."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.cluster: Mapping[str, str] = {}
        """Usable settings of the node `<default>`."""
        self.own: Mapping[str, str] = {}
        """Usable settings of this broker's node."""
        self.current = static

    def load(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> bool:
        """Apply the settings of the node `<default>` (`cluster`) and of this broker's node (`own`).

        Return True if `current` has changed.
        """
        self.cluster = _usable(cluster, "<default>")
        self.own = _usable(own, str(self.static.broker_id))
        before = self.current
        try:
            self.current = self.overridden({**self.cluster, **self.own})
        except ConfigError as error:
            logger.error(
                "Dynamic settings contradict each other, so only the broker's file is used: %s",
                error,
            )
            self.current = self.static
        return self.current != before

    @property
    def replication_rates(self) -> tuple[int, int, int]:
        """The replication throttles in bytes per second.

        They limit what leaders send, what followers fetch, and what is moved between log directories.
        """
        values = {**self.cluster, **self.own}
        leader, follower, moves = (
            THROTTLES[name].parse(values.get(name, LONG_MAX))
            for name in (LEADER_RATE, FOLLOWER_RATE, MOVE_RATE)
        )
        return leader, follower, moves

    def reload(self, wanted: BrokerConfig) -> tuple[list[SettingChange], bool]:
        """Apply the dynamic settings of the changed file.

        Settings that are not dynamic keep the values that the broker was started with. Return all changes in the file,
        and True if `current` has changed. A setting that was altered at run time is returned each time, if the file
        sets another value.
        """
        before = self.static
        changes = [
            change
            for name in (
                *BrokerConfig.keys(),
                *sorted({*before.listener_keys, *wanted.listener_keys}),
            )
            if (change := self._change_of(name, wanted)) is not None
        ]
        attributes = {row.attribute for name, row in BrokerConfig.keys().items() if name in DYNAMIC}
        given = (before.given - DYNAMIC.keys()) | (wanted.given & DYNAMIC.keys())
        taken = {attribute: getattr(wanted, attribute) for attribute in attributes}
        listener_keys = {
            name: value
            for config, is_limit in ((before, False), (wanted, True))
            for name, value in config.listener_keys.items()
            if is_listener_limit(name) == is_limit
        }
        self.static = replace(before, **taken, given=given, listener_keys=listener_keys)
        return changes, self.load(self.cluster, self.own)

    def _change_of(self, name: str, wanted: BrokerConfig) -> SettingChange | None:
        """Return how a setting of the file differs from the setting that this broker has; None if it does not."""
        is_dynamic = dynamic_key(name) is not None
        is_overridden = is_dynamic and (name in self.own or name in self.cluster)
        has = self.current if is_overridden else self.static
        change = SettingChange(name, has.text(name), wanted.text(name), "restart")
        if change.old == change.new:
            return None
        if is_overridden:
            is_set = wanted.has(name) or self.static.has(name)
            return change._replace(effect="overridden") if is_set else None
        return change._replace(effect="now") if is_dynamic else change

    def overridden(self, values: Mapping[str, str]) -> BrokerConfig:
        """Return the settings of the file, overridden by `values`. Raises ConfigError."""
        keys = BrokerConfig.keys()
        kept = {name: value for name, value in values.items() if name in keys}
        parsed = parse_all(keys, kept)
        limits = parse_prefixed({n: value for n, value in values.items() if is_listener_limit(n)})
        config = replace(
            self.static,
            **parsed,
            given=self.static.given.union(kept),
            listener_keys={**self.static.listener_keys, **limits},
        )
        check_inherited(config)
        check_cleaner(config)
        per_ip_overrides(config)
        return config

    def check(self, values: Mapping[str, str]) -> None:
        """Raise ConfigError for keys that cannot be set at run time, and for values out of range."""
        unprefixed = ", ".join(sorted(values.keys() & STORE_KEYS))
        if unprefixed:
            raise ConfigError(
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                + unprefixed
            )
        self._check_of_listeners(sorted(n for n in values if n.startswith(PREFIX)))
        fixed = sorted(values.keys() & _STATIC)
        if fixed:
            names = ", ".join(fixed)
            raise ConfigError(
                f"Cannot update these configs dynamically: {names}; "
                "they are read from the broker's file only, when it starts"
            )
        parse_all(DYNAMIC, {name: value for name, value in values.items() if name in DYNAMIC})
        self.overridden(values)

    def _check_of_listeners(self, names: Iterable[str]) -> None:
        """Raise ConfigError for keys `listener.name.…` that cannot be set at run time, or have an unknown listener."""
        limits = [name for name in names if is_listener_limit(name)]
        others = [name for name in names if name not in limits and not is_store_key(name)]
        if others:
            raise ConfigError(
                f"Cannot update these configs dynamically: {', '.join(others)}; of a listener, only the keys of its "
                f"ssl.keystore and ssl.truststore, and {' and '.join(LISTENER_LIMITS)} can be updated"
            )
        known = [item.name.lower() for item in self.static.endpoints.kafka]
        for name in limits:
            if (listener := listener_part(name)[0]) not in known:
                raise ConfigError(
                    f"{name}: this broker has no listener {listener}; its listeners are {', '.join(known)}"
                )


def dynamic_key(name: str) -> Key | None:
    """Return the key if it can be altered while a broker runs, also `listener.name.NAME.max.connections`."""
    return listener_key(name) if is_listener_limit(name) else DYNAMIC.get(name)


def is_user_defined(name: str) -> bool:
    """True if the name is not the key of any broker setting, except of a listener's stores, which may be secret too."""
    return dynamic_key(name) is None and name not in _STATIC


def _usable(values: Mapping[str, str], of: str) -> dict[str, str]:
    """Return the settings that are user-defined, or that have a dynamic key and a valid value."""
    usable = {}
    for name, value in values.items():
        row = dynamic_key(name)
        if is_store_key(name):
            usable[name] = value
            continue
        if row is None:
            logger.warning(
                "Dynamic setting %s of broker %s has no effect: a running broker cannot change it",
                name,
                of,
            )
            if is_user_defined(name):
                usable[name] = value
            continue
        try:
            row.parse(value)
        except ConfigError as error:
            logger.error("Ignoring an invalid dynamic setting of broker %s: %s", of, error)
        else:
            usable[name] = value
    return usable
