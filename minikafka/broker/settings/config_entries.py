"""Configurations for DescribeConfigs and CreateTopics: values, sources, synonyms (KIP-226).

Invariant: the value of a sensitive key is never in an entry or its synonyms. A user-defined key counts as sensitive and
read-only, as in Kafka, although it can be altered. The levels of this process's loggers are entries too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.keys import ConfigType, Key
from minikafka.base.config.security import is_listener_limit, listener_part
from minikafka.base.config.throttles import THROTTLES
from minikafka.broker.settings.dynamic_config import (
    DYNAMIC,
    RELEASE,
    RELEASE_KEY,
    DynamicConfig,
    dynamic_key,
    is_user_defined,
)

ROOT_LOGGER: Final = "root"
LOG_LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Kafka's name of each level → Python's number, from the level with the fewest records to the level with the most."""


class ConfigSource(IntEnum):
    """The possible sources of a configuration value, with Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class ConfigSynonym(NamedTuple):
    """A value of a setting: the key `name`, and the value that one source has for this key.

    The key is the key of the entry or another key of the same setting. For example, the entry of `log.retention.ms`
    may have a synonym with the key `log.retention.hours`.
    """

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One configuration key of a resource, with its value. `source` is the source of the first synonym."""

    key: Key
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


def broker_entries(settings: DynamicConfig) -> list[ConfigEntry]:
    """Return an entry for every key of a broker, and for the other keys that are set.

    Those are throttles, limits of one listener and user-defined keys. The entries of keys that cannot be altered are
    marked as read-only, and as in Kafka those of limits of one listener too.
    """
    current = settings.current
    entries = [
        _entry(key, current.text(name), name not in DYNAMIC, _broker_synonyms(settings, name))
        for name, key in BrokerConfig.keys().items()
    ]
    for name, key in THROTTLES.items():
        synonyms = _broker_synonyms(settings, name)
        if synonyms:
            entries.append(_entry(key, synonyms[0].value, False, synonyms))
    for name in filter(is_listener_limit, settings.current.listener_keys):
        synonyms = _broker_synonyms(settings, name)
        entries.append(_entry(_key(name), settings.current.text(name), True, synonyms))
    entries += [
        _entry(_key(name), None, True, _broker_synonyms(settings, name))
        for name in {**settings.cluster, **settings.own}
        if is_user_defined(name)
    ]
    fixed = (ConfigSynonym(RELEASE_KEY.name, RELEASE, ConfigSource.DEFAULT),)
    entries.append(_entry(RELEASE_KEY, RELEASE, True, fixed))
    return entries


def cluster_entries(settings: DynamicConfig) -> list[ConfigEntry]:
    """Return an entry for every dynamic setting that is set for all brokers."""
    return [_cluster_entry(name, value) for name, value in settings.cluster.items()]


def _cluster_entry(name: str, value: str) -> ConfigEntry:
    shown = None if is_user_defined(name) else value
    synonym = ConfigSynonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    return _entry(_key(name), shown, name not in DYNAMIC, (synonym,))


def _key(name: str) -> Key:
    """Return the key of a dynamic setting. A user-defined key is sensitive, because its value may be a secret."""
    return dynamic_key(name) or Key(ConfigType.UNKNOWN, None, "", name=name)


def topic_entries(config: TopicConfig, settings: DynamicConfig) -> list[ConfigEntry]:
    """Return an entry for every key of a topic."""
    return [
        _entry(key, config.text(name), False, _topic_synonyms(config, settings, name, key))
        for name, key in TopicConfig.keys().items()
    ]


def logger_entries() -> list[ConfigEntry]:
    """Return an entry for every logger of this process, with its level."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [
        ConfigEntry(Key(ConfigType.STRING, None, "", name=name), level, source, False, ())
        for name, level in log_levels().items()
    ]


def _entry(
    key: Key, value: str | None, read_only: bool, synonyms: tuple[ConfigSynonym, ...]
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(key, value, source, read_only, synonyms)


def _topic_synonyms(
    config: TopicConfig, settings: DynamicConfig, name: str, key: Key
) -> tuple[ConfigSynonym, ...]:
    inherited = _synonyms(settings, [synonym for synonym, _ in key.synonyms])
    if name in config.given:
        return (ConfigSynonym(name, config.text(name), ConfigSource.TOPIC), *inherited)
    return inherited


def _broker_synonyms(settings: DynamicConfig, name: str) -> tuple[ConfigSynonym, ...]:
    """Return the synonyms of the broker key `name`, in order of precedence.

    The list begins with the first value of `name` itself. Values of other keys with a higher precedence are left out.
    """
    family = (name, listener_part(name)[1]) if is_listener_limit(name) else (name,)
    found = _synonyms(settings, _FAMILIES.get(name, family))
    first = next((i for i, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def _synonyms(settings: DynamicConfig, names: Sequence[str]) -> tuple[ConfigSynonym, ...]:
    """Return a synonym for each value that a key in `names` has in any source, in order of precedence."""
    static = settings.static
    layers: tuple[tuple[ConfigSource, Callable[[str], str | None]], ...] = (
        (ConfigSource.DYNAMIC_BROKER, settings.own.get),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, settings.cluster.get),
        (
            ConfigSource.STATIC_BROKER,
            lambda name: static.text(name) if static.has(name) else None,
        ),
        (ConfigSource.DEFAULT, _default),
    )
    found = []
    for source, value_of in layers:
        for name in names:
            value = value_of(name)
            if value is not None or _is_set_secret(static, name, source):
                found.append(ConfigSynonym(name, None if is_user_defined(name) else value, source))
    return tuple(found)


def _default(name: str) -> str | None:
    key = BrokerConfig.keys().get(name)
    return key.text(key.default) if key is not None else None


def _is_set_secret(static: BrokerConfig, name: str, source: ConfigSource) -> bool:
    """True if the secret key `name` needs a synonym without a value for `source`; False for any other key.

    A secret key always needs a synonym for the source DEFAULT. If the broker's file sets the key, the key also
    needs one for the source STATIC_BROKER.
    """
    key = BrokerConfig.keys().get(name)
    if key is None or not key.sensitive:
        return False
    return source is ConfigSource.DEFAULT or (
        source is ConfigSource.STATIC_BROKER and name in static.given
    )


_FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(synonym for synonym, _ in key.synonyms)
    for key in TopicConfig.keys().values()
    for name, _ in key.synonyms
}
"""For each broker key, all keys of the same setting by precedence: for example, the keys of `log.retention.ms`
are `log.retention.ms`, `log.retention.minutes` and `log.retention.hours`."""


def log_levels() -> dict[str, str]:
    """Return the level in effect of every logger, by name; the root logger comes first."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT_LOGGER: _level_name(logging.root)} | {
        name: _level_name(logging.getLogger(name)) for name in names
    }


def has_logger(name: str) -> bool:
    """Return True if a logger or a package of loggers has this name."""
    return name == ROOT_LOGGER or name in logging.root.manager.loggerDict


def set_log_level(name: str, level: str | None) -> None:
    """Set the level of an existing logger to a key of `LOG_LEVELS`; None: to the level of the package around it."""
    logger = logging.root if name == ROOT_LOGGER else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LOG_LEVELS[level])


def _level_name(logger: logging.Logger) -> str:
    """Return Kafka's name of a logger's level: of the next lower number, if another program has set a level between."""
    number = logger.getEffectiveLevel()
    return next((name for name, least in LOG_LEVELS.items() if number >= least), "TRACE")
