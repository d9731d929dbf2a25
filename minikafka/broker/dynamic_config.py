"""A broker's current settings: its file, and the settings altered at run time (KIP-226).

Three layers in order of precedence: this broker's own node under `/config/brokers`, the node
`<default>` for all brokers, the file. Invariant: `current` is always valid; stored settings that
are unusable are skipped and logged. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import ConfigError
from minikafka.base.keys import LONG_MAX, Key, Kind, parse_all, unknown_key

logger = logging.getLogger(__name__)

THROTTLES: Final[dict[str, Key]] = {
    name: Key(Kind.LONG, LONG_MAX, doc, low=0, name=name)
    for name, doc in (
        (
            "leader.replication.throttled.rate",
            "Bytes per second for throttled leaders; stored and shown, without effect.",
        ),
        (
            "follower.replication.throttled.rate",
            "Bytes per second for throttled followers; stored and shown, without effect.",
        ),
        (
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "Bytes per second for moves between log directories; stored and shown, without effect.",
        ),
    )
}
"""Keys that only exist as dynamic ones."""

DYNAMIC: Final[dict[str, Key]] = {
    **{
        name: BrokerConfig.keys()[name]
        for name in (
            *(row.synonyms[0][0] for row in TopicConfig.keys().values() if row.synonyms),
            "producer.id.expiration.ms",
        )
    },
    **THROTTLES,
}
"""Keys that can be altered while a broker runs: of Kafka's list, those that exist here."""


class DynamicConfig:
    """The three layers, and `current`, their result."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.cluster: Mapping[str, str] = {}
        """Usable settings of the node `<default>`."""
        self.own: Mapping[str, str] = {}
        """Usable settings of this broker's node."""
        self.current = static

    def load(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> bool:
        """Apply the settings of the two nodes; True if `current` has changed."""
        self.cluster = _usable(cluster, "<default>")
        self.own = _usable(own, str(self.static.broker_id))
        before = self.current
        try:
            self.current = self.overridden({**self.cluster, **self.own})
        except ConfigError as error:
            logger.error(
                "Dynamic settings contradict each other; using the file's settings: %s", error
            )
            self.current = self.static
        return self.current != before

    def overridden(self, values: Mapping[str, str]) -> BrokerConfig:
        """Return the file's settings overridden by these values. Raises ConfigError."""
        kept = {name: value for name, value in values.items() if name not in THROTTLES}
        parsed = parse_all(BrokerConfig.keys(), kept)
        config = replace(self.static, **parsed, given=self.static.given.union(kept))
        TopicConfig.from_broker(config, {})
        return config

    def check(self, values: Mapping[str, str]) -> None:
        """Raise ConfigError for keys that cannot be set at run time, and for values out of range."""
        fixed = sorted(values.keys() & (BrokerConfig.keys().keys() - DYNAMIC.keys()))
        if fixed:
            names = ", ".join(fixed)
            raise ConfigError(
                f"Cannot update these configs dynamically: {names}; "
                "they stand in the broker's file, which is read at its start"
            )
        _check_known(values)
        parse_all(DYNAMIC, values)
        self.overridden(values)


def _check_known(names: Collection[str]) -> None:
    for name in names:
        if name not in DYNAMIC:
            raise unknown_key(name, DYNAMIC)


def _usable(values: Mapping[str, str], of: str) -> dict[str, str]:
    """Return the settings with known, dynamic keys and valid values."""
    usable = {}
    for name, value in values.items():
        row = DYNAMIC.get(name)
        if row is None:
            logger.warning(
                "Ignoring dynamic setting %s of broker %s: it has no effect here", name, of
            )
            continue
        try:
            row.parse(value)
        except ConfigError as error:
            logger.error("Ignoring an invalid dynamic setting of broker %s: %s", of, error)
        else:
            usable[name] = value
    return usable
