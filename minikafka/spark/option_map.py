"""Parsing of Spark's option map: names in upper or lower case, default values, and errors that name the option.

Invariant: an option that is in no table of options raises `ConfigError`, and an option without an effect is in
`OptionMap.ignored` with what happens instead. So no option is silently ignored.

Spark's own Kafka connector passes every `kafka.…` option to a Java client, so programs written for it set such
options. The tables of these settings have the names of Apache Kafka 3.9. A setting that changes what is read or
written is in none of them, and `security_options.py` parses those that protect the connection.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.base.known_cluster import Address
from minikafka.spark import security_options
from minikafka.spark.security_options import PREFIX, is_of_security
from minikafka.spark.security_options import SERVERS as SERVERS

_BOOLEANS: Final = {"true": True, "false": False}
_WHOLE: Final = re.compile(r"0*[0-9]{1,19}")
"""A number that is not long: Python refuses to convert more than 4,300 digits, even zeros."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_SHOWN_MAX: Final = 100
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
CHECKPOINT: Final = "checkpointLocation"
_OF_SPARK: Final = frozenset({CHECKPOINT.lower(), "queryname"})
"""Lower-case names of options that Spark itself uses but also passes to data sources."""
_PROVIDER: Final = "provider"
"""The property of a table from which `CREATE TABLE … USING` takes the data source."""
_OPTION_OF_TABLE: Final = "option."
"""The prefix that Spark adds to the user's options among the properties of a table."""
_PATH: Final = "the options name the topics"
_PATHS: Final = {"path": _PATH, "paths": _PATH}
"""The argument of `load`, `save` and `start`, which Spark's Kafka connector ignores too."""


class OptionMap:
    """The options that the user gave, and the defaults of all other options."""

    def __init__(
        self,
        given: Mapping[str, str],
        defaults: Mapping[str, str | None],
        refused: Mapping[str, str],
        ignored: Mapping[str, str],
    ) -> None:
        """Check the names of the user's options. Raises `ConfigError` for an unknown or refused name.

        `refused`: lower-case names of options that only Spark's Kafka connector has, each with the reason why
        this data source does not support the option. `ignored`: options that have no effect here, each with
        what happens instead.
        """
        lowered = _of_the_user(given)
        if not lowered:
            raise ConfigError(_NOTHING_GIVEN)
        names = {name.lower(): name for name in (*_PATHS, *ignored, *defaults)}
        effects = {**ignored, **_PATHS}
        self.checkpoint = {name.lower(): text for name, text in given.items()}.get(
            CHECKPOINT.lower()
        )
        """The checkpoint that the user has given to Spark."""
        self.ignored: dict[str, str] = {}
        self._given = set[str]()
        protecting = {name: value for name, value in lowered.items() if is_of_security(name)}
        self.security, unused = security_options.parse(protecting)
        """How connections are encrypted and authenticated."""
        self.ignored |= unused
        for name in [name for name in lowered if name not in protecting]:
            known = names.get(name, name)
            if name in refused or known not in (*effects, *defaults):
                raise ConfigError(_unknown(name, defaults, names, refused))
            if known in defaults:
                self._given.add(known)
            else:
                self.ignored[known] = effects[known]
        self._text = {name: lowered.get(name.lower(), text) for name, text in defaults.items()}

    def ignore(self, name: str, instead: str) -> None:
        """Note that an option has no effect in this read or write, if the user gave it."""
        if name in self._given:
            self.ignored[name] = instead

    def given(self, name: str) -> bool:
        """True if the user gave the option."""
        return name in self._given

    def optional(self, name: str) -> str | None:
        """Return the option's text without surrounding spaces; None if it is missing. Raises `ConfigError` if blank."""
        text = (self._text[name] or "").strip()
        if not text and name in self._given:
            raise ConfigError(f"option {name} is empty: give a value, or leave it out")
        return text or None

    def text(self, name: str) -> str:
        """Return the text of a required option. Raises `ConfigError` if the option is missing or blank."""
        if found := self.optional(name):
            return found
        raise ConfigError(f"option {name} must be given")

    def boolean(self, name: str) -> bool:
        """Return the option as a boolean. Raises `ConfigError` if the text is not true or false."""
        value = self.text(name).lower()
        if value not in _BOOLEANS:
            raise ConfigError(f"option {name} must be true or false, not {value!r}")
        return _BOOLEANS[value]

    def choice(self, name: str, *words: str) -> str:
        """Return the option's text in lower case. Raises `ConfigError` if the text is not in `words`."""
        value = self.text(name).lower()
        if value not in words:
            raise ConfigError(f"option {name} must be {' or '.join(words)}, not {value!r}")
        return value

    def positive(self, name: str, most: int = _INT_MAX) -> int:
        """Return the option as a whole number from 1 to `most`."""
        return _whole(name, self.text(name), 1, most)

    def not_negative(self, name: str) -> int:
        """Return the option as a whole number from 0 to 2^63 - 1."""
        return _whole(name, self.text(name), 0, _LONG_MAX)

    def optional_positive(self, name: str) -> int | None:
        """Return the option as a whole number from 1 to 2^63 - 1; None if the option is missing or blank."""
        value = self.optional(name)
        return None if value is None else _whole(name, value, 1, _LONG_MAX)

    def servers(self) -> tuple[Address, ...]:
        """Return the bootstrap servers as (host, port). Like Kafka's clients, ignore `PROTOCOL://` before an entry."""
        value = self.text(SERVERS)
        found = []
        for entry in filter(None, (part.strip() for part in value.split(","))):
            host, _, port = entry.rpartition("://")[2].rpartition(":")
            if not host or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
                raise ConfigError(f"option {SERVERS}: {entry!r} is not host:port")
            found.append((host.strip("[]"), int(port)))
        if not found:
            raise ConfigError(f"option {SERVERS} names no broker: {value!r}")
        return tuple(found)


_NOTHING_GIVEN: Final = (
    f"option {SERVERS} must be given. Spark does not pass the options of CREATE TABLE to queries of the table:"
    f" use CREATE TEMPORARY VIEW, or name the options after the table, as in t WITH ('{SERVERS}' = '…')"
)


def _of_the_user(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the user gave, by lower-case name, without those that Spark adds.

    For CREATE TABLE, Spark passes all properties of the table, such as its owner and its comment. Among these,
    the options of the user are those with the prefix `option.`.
    """
    lowered = {name.lower(): value for name, value in given.items()}
    if _PROVIDER in lowered:
        start = len(_OPTION_OF_TABLE)
        lowered = {
            name[start:]: value
            for name, value in lowered.items()
            if name.startswith(_OPTION_OF_TABLE)
        }
    return {name: value for name, value in lowered.items() if name not in _OF_SPARK}


def _whole(name: str, value: str, least: int, most: int) -> int:
    if not _WHOLE.fullmatch(value) or not least <= int(value) <= most:
        raise ConfigError(
            f"option {name} must be a whole number from {least} to {most}, not {value[:_SHOWN_MAX]!r}"
        )
    return int(value)


def _unknown(
    name: str, supported: Iterable[str], names: Mapping[str, str], refused: Mapping[str, str]
) -> str:
    if reason := refused.get(name):
        return f"option {name} of Spark's Kafka connector is not supported: {reason}"
    if near := difflib.get_close_matches(name, names, n=1):
        return f"unknown option {name}: did you mean {names[near[0]]}?"
    return f"unknown option {name}: supported options are {', '.join(supported)}"


logger = logging.getLogger(__name__)
_logged: Final[set[str]] = set()

_NO_GROUP: Final = "this data source belongs to no consumer group"
_NO_METRICS: Final = "no Java client runs whose metrics could be reported"
_PAUSES: Final = "the pauses between attempts grow from 50 ms to 1 s"
_BUFFERS: Final = "the operating system chooses the buffers of sockets"
_CONNECTING: Final = "kafka.request.timeout.ms also limits the time to connect"
_RANGES: Final = "a task reads a planned range of offsets, and decodes it in blocks"
_NO_WAIT: Final = "a task reads only offsets that exist, so a broker need not wait for more"
_BUFFERED: Final = "a task sends whenever it has collected 8 MiB of rows, and at its end"
_MEMORY: Final = "a task encodes no further rows while 8 MiB of encoded rows are not acknowledged"
_LEVELS: Final = "codecs compress with their default level"
_BY_KEY: Final = "the column partition or the key chooses the partition of a row"
_TASKS: Final = "Spark plans the tasks, and the checkpoint keeps the offsets"

_BOTH: Final = {
    "client.dns.lookup": "all addresses of a host name are tried",
    "metadata.max.age.ms": "leaders are looked up for each plan, in the first task of a worker, and after errors",
    "metadata.recovery.strategy": "the bootstrap servers stay in use",
    "send.buffer.bytes": _BUFFERS,
    "receive.buffer.bytes": _BUFFERS,
    "reconnect.backoff.ms": _PAUSES,
    "reconnect.backoff.max.ms": _PAUSES,
    "retry.backoff.ms": _PAUSES,
    "retry.backoff.max.ms": _PAUSES,
    "socket.connection.setup.timeout.ms": _CONNECTING,
    "socket.connection.setup.timeout.max.ms": _CONNECTING,
    "connections.max.idle.ms": "idle connections are kept for the next task as long as the worker runs",
    "enable.metrics.push": _NO_METRICS,
    "metrics.sample.window.ms": _NO_METRICS,
    "metrics.num.samples": _NO_METRICS,
    "metrics.recording.level": _NO_METRICS,
    "metric.reporters": _NO_METRICS,
    "auto.include.jmx.reporter": _NO_METRICS,
}
_CONSUMER: Final = {
    "group.id": _NO_GROUP,
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "session.timeout.ms": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "internal.leave.group.on.close": _NO_GROUP,
    "internal.throw.on.fetch.stable.offset.unsupported": _NO_GROUP,
    "partition.assignment.strategy": _TASKS,
    "auto.commit.interval.ms": _TASKS,
    "max.poll.records": _RANGES,
    "fetch.max.bytes": "kafka.max.partition.fetch.bytes limits a response, also one with several partitions",
    "fetch.min.bytes": _NO_WAIT,
    "fetch.max.wait.ms": _NO_WAIT,
    "client.rack": "records are read from the leader of a partition",
    "exclude.internal.topics": "a pattern never matches internal topics; subscribe reads them by name",
    "allow.auto.create.topics": "a read creates no topic",
}
_PRODUCER: Final = {
    "linger.ms": _BUFFERED,
    "buffer.memory": _MEMORY,
    "max.block.ms": "kafka.delivery.timeout.ms limits the time to find a topic and its leaders",
    "retries": "a batch is sent again until kafka.delivery.timeout.ms has passed",
    "max.request.size": "kafka.batch.size and the topic's max.message.bytes limit a batch",
    "compression.gzip.level": _LEVELS,
    "compression.lz4.level": _LEVELS,
    "compression.zstd.level": _LEVELS,
    "metadata.max.idle.ms": "a task knows its topics until it ends",
    "partitioner.adaptive.partitioning.enable": _BY_KEY,
    "partitioner.availability.timeout.ms": _BY_KEY,
}
_OF_READS: Final = "it is a setting of reads"
_OF_WRITES: Final = "it is a setting of writes"
_MORE_OF_READS: Final = (
    "auto.offset.reset",
    "check.crcs",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "isolation.level",
    "key.deserializer",
    "max.partition.fetch.bytes",
    "value.deserializer",
)
"""Settings of consumers that a write ignores, and that a read does not."""
_MORE_OF_WRITES: Final = (
    "acks",
    "batch.size",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "key.serializer",
    "max.in.flight.requests.per.connection",
    "partitioner.class",
    "partitioner.ignore.keys",
    "transaction.timeout.ms",
    "transactional.id",
    "value.serializer",
)
"""Settings of producers that a read ignores, and that a write does not."""

IGNORED_BY_READS: Final = {
    PREFIX + name: text
    for name, text in (
        _BOTH | _CONSUMER | dict.fromkeys([*_PRODUCER, *_MORE_OF_WRITES], _OF_WRITES)
    ).items()
}
IGNORED_BY_WRITES: Final = {
    PREFIX + name: text
    for name, text in (
        _BOTH | _PRODUCER | dict.fromkeys([*_CONSUMER, *_MORE_OF_READS], _OF_READS)
    ).items()
}
"""For each option that a read or a write ignores: the text that says what happens instead."""


def warn_of_ignored(kind: str, ignored: Mapping[str, str]) -> None:
    """Log one warning about all ignored options. `kind`: "source" or "sink".

    Spark creates the writer of a stream for each micro-batch, so each process logs a warning only once.
    """
    parts = "; ".join(f"{name} ({instead})" for name, instead in sorted(ignored.items()))
    text = f"The minikafka {kind} ignores options: {parts}"
    if ignored and text not in _logged:
        _logged.add(text)
        logger.warning("%s", text)
