"""The options of `format("minikafka")`, with the names and rules of Spark's own Kafka source.

Names are case-insensitive. Invariant: a `ReadOptions` is free of contradictions, and every accepted
option has an effect. An unknown or unsupported option is a `ConfigError` that tells what to do.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.protocol import EARLIEST, LATEST

Offsets: TypeAlias = int | dict[TopicPartition, int]
"""EARLIEST or LATEST for all partitions, or one number per partition, which may be one of the two."""

_SERVERS: Final = "kafka.bootstrap.servers"
_SUBSCRIBE: Final = "subscribe"
_STARTING: Final = "startingOffsets"
_ENDING: Final = "endingOffsets"

DEFAULTS: Final[dict[str, str | None]] = {
    _SERVERS: None,
    _SUBSCRIBE: None,
    _STARTING: "earliest",
    _ENDING: "latest",
    "includeHeaders": "false",
    "failOnDataLoss": "true",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "kafka.client.id": "minikafka-spark",
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "60000",
    "kafka.max.partition.fetch.bytes": "4194304",
    "kafka.check.crcs": "true",
}
"""Every option and its default; None means that the option is required.

Kafka's consumer waits 30 s for a response; here it is 10 s, enough for a stopped leader to be
replaced.
"""

_UNSUPPORTED: Final = frozenset(
    {
        "assign",
        "subscribepattern",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "endingtimestamp",
        "endingoffsetsbytimestamp",
        "minpartitions",
        "maxrecordsperpartition",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "groupidprefix",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafka.group.id",
        "kafka.isolation.level",
        "topic",
    }
)
"""Options of Spark's Kafka source that are refused because they are not implemented here."""

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_BOOLEANS: Final = {"true": True, "false": False}
_INT_MAX: Final = 2**31 - 1
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
"""Only one spelling per number: "00" next to "0" would name a partition twice."""


@dataclass(frozen=True)
class ReadOptions:
    """The parsed options of a batch read. Times in milliseconds."""

    servers: tuple[tuple[str, int], ...]
    topics: tuple[str, ...]
    starting: Offsets
    ending: Offsets
    include_headers: bool
    fail_on_data_loss: bool
    client_id: str
    request_timeout_ms: int
    planning_timeout_ms: int
    """Maximum time for finding leaders and offsets while planning."""
    poll_timeout_ms: int
    """Maximum time for which a task waits without a new record."""
    fetch_bytes: int
    check_crcs: bool


def parse(given: Mapping[str, str]) -> ReadOptions:
    """Parse Spark's option map. Raises `ConfigError`."""
    lowered = {name.lower(): value for name, value in given.items()}
    names = {name.lower(): name for name in DEFAULTS}
    for name in lowered:
        if name not in names:
            raise ConfigError(_unknown(name, names))
    text = {name: lowered.get(name.lower(), default) for name, default in DEFAULTS.items()}
    topics = _topics(_required(text, _SUBSCRIBE))
    return ReadOptions(
        servers=_servers(_required(text, _SERVERS)),
        topics=topics,
        starting=_offsets(_STARTING, _required(text, _STARTING), topics, refused=LATEST),
        ending=_offsets(_ENDING, _required(text, _ENDING), topics, refused=EARLIEST),
        include_headers=_boolean(text, "includeHeaders"),
        fail_on_data_loss=_boolean(text, "failOnDataLoss"),
        client_id=_required(text, "kafka.client.id"),
        request_timeout_ms=_positive(text, "kafka.request.timeout.ms"),
        planning_timeout_ms=_positive(text, "kafka.default.api.timeout.ms"),
        poll_timeout_ms=_positive(text, "kafkaConsumer.pollTimeoutMs"),
        fetch_bytes=_positive(text, "kafka.max.partition.fetch.bytes"),
        check_crcs=_boolean(text, "kafka.check.crcs"),
    )


def _unknown(name: str, names: Mapping[str, str]) -> str:
    if name in _UNSUPPORTED:
        return f"option {name} of Spark's Kafka source is not supported; supported options are {', '.join(DEFAULTS)}"
    near = difflib.get_close_matches(name, names, n=1)
    hint = (
        f"did you mean {names[near[0]]}?"
        if near
        else f"supported options are {', '.join(DEFAULTS)}"
    )
    return f"unknown option {name}: {hint}"


def _required(text: Mapping[str, str | None], name: str) -> str:
    value = (text[name] or "").strip()
    if not value:
        raise ConfigError(f"option {name} must be given")
    return value


def _boolean(text: Mapping[str, str | None], name: str) -> bool:
    value = _required(text, name).lower()
    if value not in _BOOLEANS:
        raise ConfigError(f"option {name} must be true or false, not {value!r}")
    return _BOOLEANS[value]


def _positive(text: Mapping[str, str | None], name: str) -> int:
    value = _required(text, name)
    if not value.isdecimal() or not 0 < int(value) <= _INT_MAX:
        raise ConfigError(
            f"option {name} must be a whole number from 1 to {_INT_MAX}, not {value!r}"
        )
    return int(value)


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not topics:
        raise ConfigError(f"option {_SUBSCRIBE} names no topic: {value!r}")
    return topics


def _servers(value: str) -> tuple[tuple[str, int], ...]:
    found = []
    for entry in filter(None, (part.strip() for part in value.split(","))):
        host, _, port = entry.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"option {_SERVERS}: {entry!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigError(f"option {_SERVERS} names no broker: {value!r}")
    return tuple(found)


def _offsets(option: str, value: str, topics: tuple[str, ...], refused: int) -> Offsets:
    """Parse `earliest`, `latest`, or Spark's JSON of topic, partition and offset.

    Raises `ConfigError` if it contains `refused`: a batch cannot start at the end or end at the
    start.
    """
    word = _WORDS.get(value.lower())
    offsets = _offsets_json(option, value, topics) if word is None else word
    if offsets == refused or (isinstance(offsets, dict) and refused in offsets.values()):
        name = next(name for name, number in _WORDS.items() if number == refused)
        raise ConfigError(f"option {option}: {name} ({refused}) is not allowed for a batch read")
    return offsets


def _offsets_json(option: str, value: str, topics: tuple[str, ...]) -> dict[TopicPartition, int]:
    example = (
        f'{option} must be earliest, latest or JSON such as {{"{topics[0]}":{{"0":23,"1":-2}}}}'
    )
    try:
        tree = json.loads(value)
        entries = [
            (topic, key, offset) for topic, tree in tree.items() for key, offset in tree.items()
        ]
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"option {example}, not {value!r}") from error
    found = {}
    for topic, partition, offset in entries:
        if not _PARTITION.fullmatch(partition):
            raise ConfigError(f"option {example}; {topic}: {partition!r} is not a partition")
        if type(offset) is not int or not EARLIEST <= offset < 2**63:
            raise ConfigError(f"option {example}; {topic} {partition}: {offset!r} is not an offset")
        if topic not in topics:
            raise ConfigError(f"option {option} names topic {topic}, which {_SUBSCRIBE} does not")
        found[TopicPartition(topic, int(partition))] = offset
    return found
