"""The options of a write, with the names of Spark's own Kafka sink and of Kafka's producer.

Invariant: every accepted option has an effect. The options for what this sink always does
(acks=all, idempotence) accept no other value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from minikafka.spark.option_map import SERVERS, Address, OptionMap
from minikafka.spark.records.deflate import CODECS

TOPIC: Final = "topic"
ORIGIN: Final = "originHeader"

DEFAULTS: Final[dict[str, str | None]] = {
    SERVERS: None,
    TOPIC: None,
    ORIGIN: None,
    "kafka.compression.type": "none",
    "kafka.batch.size": "131072",
    "kafka.client.id": "minikafka-spark",
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.request.timeout.ms": "30000",
    "kafka.delivery.timeout.ms": "120000",
}
"""Every option and its default; None if the option is required, or has no default."""

_OF_SPARK: Final = frozenset({"checkpointlocation"})
"""Options of a stream that Spark uses itself and passes on, in lower case."""
_COLUMN: Final = "the column of this name decides; remove it"
_REFUSED: Final = {
    "includeheaders": _COLUMN,
    "kafka.transactional.id": "this sink writes without transactions",
    "kafka.key.serializer": "keys are binary or string columns",
    "kafka.value.serializer": "values are binary or string columns",
    "kafka.partitioner.class": "a column partition names partitions",
    "kafka.interceptor.classes": "there is no Java producer; remove it",
    "subscribe": "it is an option of the source; use topic",
}


@dataclass(frozen=True)
class WriteOptions:
    """The parsed options of a write. Times in milliseconds."""

    servers: tuple[Address, ...]
    topic: str | None
    """The topic of all rows; None if a column names it."""
    origin: str | None
    """Key of the header that tells which row of which micro-batch a record comes from."""
    codec: int
    batch_bytes: int
    """About how many bytes of records go into a batch before compression."""
    client_id: str
    request_timeout_ms: int
    delivery_timeout_ms: int
    """Maximum time without an acknowledged batch."""


def parse(given: Mapping[str, str]) -> WriteOptions:
    """Parse Spark's option map. Raises `ConfigError`."""
    own = {name: text for name, text in given.items() if name.lower() not in _OF_SPARK}
    options = OptionMap(own, DEFAULTS, _REFUSED)
    options.choice("kafka.acks", "all", "-1")
    options.choice("kafka.enable.idempotence", "true")
    return WriteOptions(
        servers=options.servers(),
        topic=options.optional(TOPIC),
        origin=options.optional(ORIGIN),
        codec=CODECS[options.choice("kafka.compression.type", *CODECS)],
        batch_bytes=options.positive("kafka.batch.size"),
        client_id=options.text("kafka.client.id"),
        request_timeout_ms=options.positive("kafka.request.timeout.ms"),
        delivery_timeout_ms=options.positive("kafka.delivery.timeout.ms"),
    )
