"""Encoding of the sink's Kafka requests InitProducerId v1 and Produce v8, and parsing of the responses.

The module follows the rules of `protocol`. Neither version is flexible (KIP-482). Kafka 2.4 and later serve both
versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.spark.wire.protocol import Reader, by_topic, string

PRODUCE: Final = (0, 8)
INIT_PRODUCER_ID: Final = (22, 1)
"""API key and version of each request of this module."""

_PRODUCE_HEAD: Final = Struct(">hi")
_NO_TRANSACTION: Final = b"\xff\xff"
_PRODUCE_PARTITION: Final = Struct(">ii")
_INT32: Final = Struct(">i")
_ALL_REPLICAS: Final = -1
_TRANSACTION_TIMEOUT_MS: Final = 60_000


class NewProducer(NamedTuple):
    """An InitProducerId response."""

    error: int
    id: int
    epoch: int


class Produced(NamedTuple):
    """One partition of a Produce response. `refused`: (index in the batch, reason) of each refused record."""

    error: int
    base_offset: int
    refused: tuple[tuple[int, str], ...]
    message: str


def init_producer_request(
    transactional_id: str | None = None, timeout_ms: int = _TRANSACTION_TIMEOUT_MS
) -> bytes:
    """Return the body of InitProducerId v1. `transactional_id` None: a producer without transactions."""
    return _name(transactional_id) + _INT32.pack(timeout_ms)


def produce_request(
    batches: Mapping[TopicPartition, bytes | bytearray],
    timeout_ms: int,
    transactional_id: str | None = None,
) -> bytes:
    """Return the body of Produce v8 with acks=all and one batch per partition."""
    head = _name(transactional_id) + _PRODUCE_HEAD.pack(_ALL_REPLICAS, timeout_ms)
    entries = {
        tp: (_PRODUCE_PARTITION.pack(tp.partition, len(batch)), batch)
        for tp, batch in batches.items()
    }
    return by_topic(entries, head)


def parse_init_producer(answer: memoryview) -> NewProducer:
    """Parse the body of an InitProducerId v1 response."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    return NewProducer(reader.int16(), reader.int64(), reader.int16())


def parse_produce(answer: memoryview) -> dict[TopicPartition, Produced]:
    """Parse the body of a Produce v8 response."""
    reader = Reader(answer)
    found = {}
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            tp = TopicPartition(topic, reader.int32())
            found[tp] = _produced(reader)
    return found


def _produced(reader: Reader) -> Produced:
    code, base_offset = reader.int16(), reader.int64()
    reader.int64()  # log append time
    reader.int64()  # log start offset
    refused = tuple((reader.int32(), reader.string()) for _ in range(reader.count()))
    return Produced(code, base_offset, refused, reader.string())


def _name(transactional_id: str | None) -> bytes:
    return _NO_TRANSACTION if transactional_id is None else string(transactional_id)
