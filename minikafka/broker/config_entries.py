"""Configurations as DescribeConfigs and CreateTopics show them: value, source, synonyms (KIP-226).

Invariant: the value of a sensitive key is never in an entry, nor in its synonyms. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.keys import Key, Kind

RELEASE: Final = "3.3-IV3"
"""The Kafka release that the served API versions are those of; what UIs gate their features on."""
RELEASE_KEY: Final = Key(
    Kind.STRING,
    RELEASE,
    "The Kafka release whose protocol is spoken; fixed.",
    name="inter.broker.protocol.version",
)


class Source(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One place where a key's value could come from."""

    name: str
    value: str | None
    source: Source


class ConfigEntry(NamedTuple):
    """One key of a resource; the first synonym is where the value comes from."""

    key: Key
    value: str | None
    source: Source
    read_only: bool
    synonyms: tuple[Synonym, ...]


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Every key of a broker; all are read-only, as none can be altered while it runs."""
    entries = [
        _entry(key, config.text(name), True, tuple(_broker_synonyms(config, name, key)))
        for name, key in BrokerConfig.keys().items()
    ]
    entries.append(
        _entry(RELEASE_KEY, RELEASE, True, (Synonym(RELEASE_KEY.name, RELEASE, Source.DEFAULT),))
    )
    return entries


def topic_entries(config: TopicConfig, broker: BrokerConfig) -> list[ConfigEntry]:
    """Every key of a topic."""
    return [
        _entry(key, config.text(name), False, tuple(_topic_synonyms(config, broker, name, key)))
        for name, key in TopicConfig.keys().items()
    ]


def _entry(
    key: Key, value: str | None, read_only: bool, synonyms: tuple[Synonym, ...]
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigEntry(key, value, source, read_only, synonyms)


def _topic_synonyms(
    config: TopicConfig, broker: BrokerConfig, name: str, key: Key
) -> Iterator[Synonym]:
    if name in config.given:
        yield Synonym(name, config.text(name), Source.TOPIC)
    broker_keys = BrokerConfig.keys()
    for synonym, _ in key.synonyms:
        yield from _broker_synonyms(broker, synonym, broker_keys[synonym])


def _broker_synonyms(broker: BrokerConfig, name: str, key: Key) -> Iterator[Synonym]:
    if name in broker.given:
        yield Synonym(name, broker.text(name), Source.STATIC_BROKER)
    default: Any = key.text(key.default)
    if default is not None or key.sensitive:
        yield Synonym(name, default, Source.DEFAULT)
