"""The settings of Kafka's Java clients that have no effect in this data source, each with what happens instead.

Spark's own Kafka connector passes every `kafka.…` option to a Java client, so programs written for it set such
options. The names are those of Apache Kafka 3.9. A setting that changes what is read or written, or that
protects the connection, is in none of these tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

logger = logging.getLogger(__name__)
_logged: Final[set[str]] = set()

PREFIX: Final = "kafka."
PROTOCOL: Final = "kafka.security.protocol"

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

UNPROTECTED: Final = "connections to the brokers are neither encrypted nor authenticated"
_PROTECTED: Final = ("kafka.ssl.", "kafka.sasl.", "kafka.security.")


def unprotected(name: str) -> str | None:
    """Return why an option that should protect the connection is refused; None for any other option."""
    return UNPROTECTED if name.startswith(_PROTECTED) else None


def is_plaintext(name: str, value: str) -> bool:
    """True if the option sets the security protocol PLAINTEXT, which asks for no protection of the connection."""
    return name == PROTOCOL and value.strip().upper() == "PLAINTEXT"


def warn_of_ignored(kind: str, ignored: Mapping[str, str]) -> None:
    """Log one warning about all ignored options. `kind`: "source" or "sink".

    Spark creates the writer of a stream for each micro-batch, so each process logs a warning only once.
    """
    parts = "; ".join(f"{name} ({instead})" for name, instead in sorted(ignored.items()))
    text = f"The minikafka {kind} ignores options of Spark's Kafka connector: {parts}"
    if ignored and text not in _logged:
        _logged.add(text)
        logger.warning("%s", text)
