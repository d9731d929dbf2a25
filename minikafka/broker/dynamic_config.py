"""A broker's settings as they are now: its file, and what was altered while it runs (KIP-226).

Three layers in the order in which they count: this broker's own node under `/config/brokers`, the node
`<default>` for all brokers, the file. Invariant: `current` is always valid; what is stored but cannot
be used is passed over and logged. Pure.
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
    """The layers, and `current`, which is made of them."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.cluster: Mapping[str, str] = {}
        """Usable settings of the node `<default>`."""
        self.own: Mapping[str, str] = {}
        """Usable settings of this broker's node."""
        self.current = static

    def load(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> bool:
        """Take over what the two nodes say; whether `current` is another now."""
        self.cluster = _usable(cluster, "<default>")
        self.own = _usable(own, str(self.static.broker_id))
        before = self.current
        try:
            self.current = self.overridden({**self.cluster, **self.own})
        except ConfigError as error:
            logger.error("dynamic settings do not go together, the file's are used: %s", error)
            self.current = self.static
        return self.current != before

    def overridden(self, values: Mapping[str, str]) -> BrokerConfig:
        """The file's settings with these over them. Raises ConfigError."""
        kept = {name: value for name, value in values.items() if name not in THROTTLES}
        parsed = parse_all(BrokerConfig.keys(), kept)
        config = replace(self.static, **parsed, given=self.static.given.union(kept))
        TopicConfig.from_broker(config, {})
        return config

    def check(self, values: Mapping[str, str]) -> None:
        """Raises ConfigError for what cannot be set while brokers run, and for values out of range."""
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
    """The settings that exist, can be altered while a broker runs, and are in range."""
    usable = {}
    for name, value in values.items():
        row = DYNAMIC.get(name)
        if row is None:
            logger.warning("dynamic setting %s of broker %s is not used here", name, of)
            continue
        try:
            row.parse(value)
        except ConfigError as error:
            logger.error("dynamic setting of broker %s is not used: %s", of, error)
        else:
            usable[name] = value
    return usable
