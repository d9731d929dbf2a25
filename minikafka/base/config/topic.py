"""The configuration keys of a topic. Most of them inherit the value of a broker key unless the topic overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from minikafka.base.config.broker import HOUR_MS, RETENTION, BrokerConfig
from minikafka.base.config.keys import (
    LONG_MAX,
    ConfigType,
    Key,
    first_set,
    key,
    parse_all,
    table,
    unknown_key,
)
from minikafka.base.errors import ConfigError


def _from_broker_key(
    broker_key: str, *in_other_units: tuple[str, int], default: Any = None, doc: str = ""
) -> Any:
    """Return the field of a topic key that inherits type, default, bounds and documentation from `broker_key`.

    `in_other_units`: broker keys for the same value in a larger unit, each with its factor. These keys have an
    effect only while `broker_key` is not set. `default` and `doc` replace the values of the broker key.
    """
    keys = BrokerConfig.keys()
    row = keys[broker_key]
    synonyms = ((broker_key, 1), *in_other_units)
    if default is None:
        default = first_set({name: keys[name].default for name, _ in synonyms}, synonyms)
    topic_key = replace(row, default=default, doc=doc or row.doc, synonyms=synonyms)
    return field(default=default, metadata={"key": topic_key})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Settings of one topic: its own overrides, and the broker's values for all other keys.

    Keys that have no effect in minikafka (`Key.waits_for`) are checked and stored like all other keys.
    """

    cleanup_policy: tuple[str, ...] = _from_broker_key("log.cleanup.policy")
    compression_type: str = _from_broker_key("compression.type")
    compression_gzip_level: int = _from_broker_key("compression.gzip.level")
    compression_lz4_level: int = _from_broker_key("compression.lz4.level")
    compression_zstd_level: int = _from_broker_key("compression.zstd.level")
    delete_retention_ms: int = _from_broker_key("log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = _from_broker_key("log.segment.delete.delay.ms")
    flush_messages: int = _from_broker_key("log.flush.interval.messages")
    flush_ms: int = _from_broker_key("log.flush.interval.ms", default=LONG_MAX)
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        ConfigType.LIST,
        (),
        "Followers that are throttled while they are not in sync, as partition:broker; `*`: all.",
        form="[0-9]+:[0-9]+",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        ConfigType.LIST,
        (),
        "Leaders whose sends to followers not in sync are throttled, as partition:broker; `*`: all.",
        form="[0-9]+:[0-9]+",
    )
    index_interval_bytes: int = _from_broker_key("log.index.interval.bytes")
    max_compaction_lag_ms: int = _from_broker_key("log.cleaner.max.compaction.lag.ms")
    max_message_bytes: int = _from_broker_key("message.max.bytes")
    message_downconversion_enable: bool = _from_broker_key("log.message.downconversion.enable")
    message_format_version: str = _from_broker_key("log.message.format.version")
    message_timestamp_difference_max_ms: int = _from_broker_key(
        "log.message.timestamp.difference.max.ms",
        doc="Limit for message.timestamp.before.max.ms and message.timestamp.after.max.ms if they are not set.",
    )
    message_timestamp_after_max_ms: int = _from_broker_key("log.message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = _from_broker_key("log.message.timestamp.before.max.ms")
    message_timestamp_type: str = _from_broker_key("log.message.timestamp.type")
    min_cleanable_dirty_ratio: float = _from_broker_key("log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = _from_broker_key("log.cleaner.min.compaction.lag.ms")
    min_insync_replicas: int = _from_broker_key("min.insync.replicas")
    preallocate: bool = _from_broker_key("log.preallocate")
    retention_bytes: int = _from_broker_key("log.retention.bytes")
    retention_ms: int = _from_broker_key(
        "log.retention.ms",
        *RETENTION[1:],
    )
    segment_bytes: int = _from_broker_key("log.segment.bytes")
    segment_index_bytes: int = _from_broker_key("log.index.size.max.bytes")
    segment_jitter_ms: int = _from_broker_key(
        "log.roll.jitter.ms",
        ("log.roll.jitter.hours", HOUR_MS),
        doc="Maximum random time subtracted from segment.ms.",
    )
    segment_ms: int = _from_broker_key("log.roll.ms", ("log.roll.hours", HOUR_MS))
    unclean_leader_election_enable: bool = _from_broker_key("unclean.leader.election.enable")

    given: frozenset[str] = frozenset()
    """The keys that the topic overrides."""

    @classmethod
    def keys(cls) -> dict[str, Key]:
        """Return every topic key by its Kafka name, such as `retention.ms`."""
        return _TOPIC_KEYS

    @classmethod
    def from_broker(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """Create a topic's config from its overrides and the broker's values. Raises ConfigError."""
        name = next((name for name in overrides if name not in _TOPIC_KEYS), None)
        if name is not None:
            raise unknown_key(name, _TOPIC_KEYS, "Unknown topic config name:")  # Kafka's words
        own = parse_all(_TOPIC_KEYS, overrides)
        inherited = {row.attribute: _broker_value(row, broker) for row in _TOPIC_KEYS.values()}
        config = cls(**{**inherited, **own}, given=frozenset(overrides))
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError("min.compaction.lag.ms must be at most max.compaction.lag.ms")
        return config

    def text(self, name: str) -> str | None:
        """Return the value of a key in Kafka's text form."""
        row = _TOPIC_KEYS[name]
        return row.text(getattr(self, row.attribute))


_TOPIC_KEYS: Final = table(TopicConfig)


def _broker_value(row: Key, broker: BrokerConfig) -> Any:
    """Return the broker's value of a topic key, or the key's default if the broker sets no value."""
    value = broker.first_set(row.synonyms)
    return row.default if value is None else value
