"""Results of administrative requests: outcomes, settings with their sources, log directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.base.meanings import meaning
from minikafka.base.model import TopicPartition
from minikafka.client.metadata import error_code


class Outcome(NamedTuple):
    """The result of a request for one item, for example one topic. Its text is `CODE: reason`."""

    code: ErrorCode
    message: str | None = None

    @property
    def ok(self) -> bool:
        """True if the request succeeded for this item."""
        return self.code is ErrorCode.NONE

    @property
    def reason(self) -> str:
        """The broker's text, else the meaning of the code; "" if the request succeeded."""
        return self.message or meaning(self.code)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.reason}" if self.reason else self.code.name


class DeletedRecords(NamedTuple):
    """The result of DeleteRecords for one partition.

    `low_watermark`: the smallest log start offset of the live replicas, -1 if the request failed.
    """

    outcome: Outcome
    low_watermark: int


class ResourceType(IntEnum):
    """Kafka's numbers for the kinds of resources that have settings."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """A resource with settings: a topic (by name), a broker (by id) or all brokers (the empty name)."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """Kafka's numbers for the places where a setting's value can come from (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


class Synonym(NamedTuple):
    """One source of a setting, and the value in this source. The first source with a value takes effect."""

    name: str
    value: str | None
    source: ConfigSource


class Setting(NamedTuple):
    """One setting of a resource; `value` is None if the value is secret or not set."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a resource; `outcome` is the error if the settings could not be read."""

    outcome: Outcome
    entries: tuple[Setting, ...] = ()


class StoredReplica(NamedTuple):
    """One replica in a log directory.

    `offset_lag`: the offsets by which the log end is behind the high watermark. `is_future`: True if the replica is
    being moved into this directory, and replaces the one in another directory at the end of the move.
    """

    tp: TopicPartition
    size: int
    offset_lag: int = 0
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker. An unknown total or usable size is -1."""

    path: str
    outcome: Outcome
    replicas: Sequence[StoredReplica]
    total_bytes: int
    usable_bytes: int

    @property
    def sizes(self) -> dict[TopicPartition, int]:
        """Bytes by partition, without future replicas."""
        return {replica.tp: replica.size for replica in self.replicas if not replica.is_future}


def read_outcome(answer: Any) -> Outcome:
    """Return the outcome of one item of a response."""
    code = error_code(answer.error_code)
    return Outcome(code, getattr(answer, "error_message", None) or None)


def read_settings(answer: Any) -> Settings:
    """Return the settings of one resource in a DescribeConfigs response."""
    entries = (
        Setting(
            entry.name,
            entry.value,
            _source(entry.config_source),
            entry.read_only,
            entry.is_sensitive,
            tuple(Synonym(s.name, s.value, _source(s.source)) for s in entry.synonyms),
        )
        for entry in answer.configs
    )
    return Settings(read_outcome(answer), tuple(entries))


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


def read_log_dir(found: Any) -> LogDir:
    """Return one log directory in a DescribeLogDirs response."""
    replicas = tuple(
        StoredReplica(
            TopicPartition(topic.name, partition.partition_index),
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
        )
        for topic in found.topics
        for partition in topic.partitions
    )
    return LogDir(
        found.log_dir, read_outcome(found), replicas, found.total_bytes, found.usable_bytes
    )
