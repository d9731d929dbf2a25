"""The options of a write, named as in Spark's own Kafka sink and Kafka's producer.

Invariant: every accepted option has an effect or is in `WriteOptions.ignored`. This sink always writes with
acks=all and idempotence, so the options kafka.acks and kafka.enable.idempotence accept no other values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ConfigError
from minikafka.base.known_cluster import Address
from minikafka.base.names import parse_topic
from minikafka.kafka.records.header import CODECS
from minikafka.spark.option_map import IGNORED_BY_WRITES, SERVERS, OptionMap
from minikafka.spark.security_options import PREFIX
from minikafka.spark.source import options as source_options

TOPIC: Final = "topic"
ORIGIN: Final = "originHeader"
CREATE: Final = "createTopics"
ONCE: Final = "exactlyOnce"
ONCE_FROM: Final = "exactlyOnceFrom"
ID_PREFIX: Final = "transactionalIdPrefix"
TRANSACTION_TIMEOUT: Final = "kafka.transaction.timeout.ms"

IN_FLIGHT: Final = "kafka.max.in.flight.requests.per.connection"
MOST_IN_FLIGHT: Final = 5
"""Maximum value of `in_flight`: a broker recognizes as duplicates only the last five batches of a producer."""

DEFAULTS: Final[dict[str, str | None]] = {
    SERVERS: None,
    TOPIC: None,
    ORIGIN: None,
    CREATE: "false",
    ONCE: "false",
    ONCE_FROM: None,
    ID_PREFIX: "minikafka-spark",
    "kafka.compression.type": "none",
    "kafka.batch.size": "131072",
    IN_FLIGHT: str(MOST_IN_FLIGHT),
    "kafka.client.id": "minikafka-spark",
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.partitioner.ignore.keys": "false",
    "kafka.request.timeout.ms": "30000",
    "kafka.delivery.timeout.ms": "120000",
    TRANSACTION_TIMEOUT: "60000",
}
"""Every option and its default value. None: the option is required, or has no default."""

MEANINGS: Final[dict[str, str]] = {
    "topic": "The topic of all rows; without this option, the column `topic` is required.",
    SERVERS: "Required: `host:port,…` of one or more brokers.",
    "originHeader": "The key of a header that names the origin of each record.",
    "createTopics": "`true`: a write to a topic that does not exist asks the brokers to create it, "
    "with their defaults (`num.partitions`, `default.replication.factor`), if their "
    "`auto.create.topics.enable` is true. `false`: the task fails.",
    "exactlyOnce": "`true`: readers with `read_committed` see each micro-batch, or each table, "
    "[exactly once](spark.md#exactly-once).",
    "exactlyOnceFrom": "The number of a micro-batch that is written although the brokers have no "
    "[marker](spark.md#exactly-once) of the query; needed only after an error that names it.",
    "transactionalIdPrefix": "The beginning of each transactional id. Several writes of one "
    "`foreachBatch` need different prefixes.",
    "kafka.transaction.timeout.ms": "Maximum time to write the rows of a micro-batch or table after "
    "the transaction has begun. At most `transaction.max.timeout.ms` of the brokers.",
    "kafka.compression.type": "`none`, `gzip`, `snappy`, `lz4` or `zstd`.",
    "kafka.batch.size": "Approximate size of a batch in bytes, before compression.",
    "kafka.max.in.flight.requests.per.connection": "Maximum number of requests that a task sends to "
    "a broker before it receives the answer to the first one. Values above 5 count as 5.",
    "kafka.client.id": "The client id in requests to brokers.",
    "kafka.acks": "No other value is allowed, except `-1`, which means the same.",
    "kafka.enable.idempotence": "No other value is allowed.",
    "kafka.partitioner.ignore.keys": "No other value is allowed.",
    "kafka.request.timeout.ms": "Maximum time to wait for the response of a broker.",
    "kafka.delivery.timeout.ms": "Maximum time in which no batch is acknowledged; then the task "
    "fails.",
}
"""The meaning of every option, for docs/spark-options.md."""

_REFUSED: Final = {
    "kafka.transactional.id": f"the sink names its transactions itself: set {ONCE} to true to write in transactions,"
    f" and {ID_PREFIX} to choose the beginning of their ids",
    "kafka.key.serializer": "keys are binary or string columns",
    "kafka.value.serializer": "values are binary or string columns",
    "kafka.partitioner.class": "a column named partition sets the partition of each row; remove the option",
    "kafka.interceptor.classes": "there is no Java producer; remove it",
    "kafka.bootstrap.controllers": f"name brokers in {SERVERS}",
}
_ID_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,150}")
_OF_SOURCE: Final = "it is an option of the source"
_IGNORED: Final = (
    dict.fromkeys(
        (name for name in source_options.DEFAULTS if not name.startswith(PREFIX)), _OF_SOURCE
    )
    | {"includeHeaders": "a column named headers is written if there is one"}
    | dict.fromkeys(
        ("groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"), _OF_SOURCE
    )
    | IGNORED_BY_WRITES
    | {"kafka.allow.auto.create.topics": f"option {CREATE} creates missing topics"}
)


@dataclass(frozen=True)
class WriteOptions:
    """The parsed options of a write. Times in milliseconds."""

    servers: tuple[Address, ...]
    topic: str | None
    """The topic of all rows; None if the column `topic` names the topic of each row."""
    origin: str | None
    """Key of the header that names the micro-batch and the row of each record; None writes no header."""
    creates_topics: bool
    """Ask the brokers to create missing topics."""
    codec: int
    batch_bytes: int
    """Approximate size of a batch before compression."""
    in_flight: int
    """Maximum number of requests in flight to each leader, and of batches of each partition."""
    client_id: str
    request_timeout_ms: int
    delivery_timeout_ms: int
    """Maximum time to wait for the next acknowledged batch."""
    exactly_once: bool
    """Write the rows of a micro-batch, or of a table, in one transaction."""
    first_batch: int | None
    """The micro-batch at which a query begins to write exactly once; None if the user does not say this."""
    checkpoint: str | None
    """The checkpoint of the query, as far as Spark passes it to data sources."""
    id_prefix: str
    """The beginning of each transactional id."""
    transaction_timeout_ms: int
    security: ClientConfig
    """How connections are encrypted, and with what the client logs in."""
    ignored: Mapping[str, str]
    """The options that have no effect in this write, each with what happens instead."""


def parse(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write from Spark's option map. Raises `ConfigError`."""
    options = OptionMap(given, DEFAULTS, _REFUSED, _IGNORED)
    options.choice("kafka.acks", "all", "-1")
    options.choice("kafka.enable.idempotence", "true")
    options.choice("kafka.partitioner.ignore.keys", "false")
    exactly_once = options.boolean(ONCE)
    if not exactly_once:
        for name in (ONCE_FROM, ID_PREFIX, TRANSACTION_TIMEOUT):
            options.ignore(name, f"rows are written in transactions only if {ONCE} is true")
    return WriteOptions(
        servers=options.servers(),
        topic=_topic(options.optional(TOPIC)),
        origin=options.optional(ORIGIN),
        creates_topics=options.boolean(CREATE),
        codec=CODECS[options.choice("kafka.compression.type", *CODECS)],
        batch_bytes=options.positive("kafka.batch.size"),
        in_flight=min(options.positive(IN_FLIGHT), MOST_IN_FLIGHT),
        client_id=options.text("kafka.client.id"),
        request_timeout_ms=options.positive("kafka.request.timeout.ms"),
        delivery_timeout_ms=options.positive("kafka.delivery.timeout.ms"),
        exactly_once=exactly_once,
        first_batch=options.not_negative(ONCE_FROM) if options.optional(ONCE_FROM) else None,
        checkpoint=options.checkpoint,
        id_prefix=_id_prefix(options.text(ID_PREFIX)),
        transaction_timeout_ms=options.positive(TRANSACTION_TIMEOUT),
        security=options.security,
        ignored=options.ignored,
    )


def _topic(name: str | None) -> str | None:
    try:
        return name if name is None else parse_topic(name)
    except ValueError as error:
        raise ConfigError(f"option {TOPIC}: {error}") from error


def _id_prefix(text: str) -> str:
    """Return the prefix of transactional ids, which is also a part of the name of a topic. Raises `ConfigError`."""
    if not _ID_PREFIX.fullmatch(text):
        raise ConfigError(
            f"option {ID_PREFIX} must have 1 to 150 letters, digits, dots, hyphens or underscores, not {text!r}"
        )
    return text
