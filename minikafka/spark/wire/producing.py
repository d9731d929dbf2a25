"""Requests and responses of the sink: InitProducerId v1 and Produce v8. Kafka 2.4 and later serve both versions.

Produce requests are encoded by hand, so that every batch is copied only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.kafka.messages.decoder import Entity
from minikafka.spark.wire.protocol import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    decoded,
    encoded,
    prepare,
)

PRODUCE: Final = (0, 8)
INIT_PRODUCER_ID: Final = (22, 1)
"""API key and version of each request of this module."""

_PRODUCE_HEAD: Final = Struct(">hii")
_NO_TRANSACTION: Final = b"\xff\xff"
_PRODUCE_PARTITION: Final = Struct(">ii")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ALL_REPLICAS: Final = -1
_TRANSACTION_TIMEOUT_MS: Final = 60_000


class NewProducer(NamedTuple):
    """An InitProducerId response."""

    error: int
    id: int
    epoch: int


class ProducedPartition(NamedTuple):
    """One partition of a Produce response. `refused`: (index in the batch, reason) of each refused record."""

    error: int
    base_offset: int
    refused: tuple[tuple[int, str], ...]
    message: str


def prepare_messages() -> None:
    """Generate the code for the messages of reads and writes. Later forks of this process save some milliseconds."""
    prepare(METADATA, LIST_OFFSETS, FETCH, PRODUCE, INIT_PRODUCER_ID)


def init_producer_request(
    transactional_id: str | None = None, timeout_ms: int = _TRANSACTION_TIMEOUT_MS
) -> bytes:
    """Return the body of InitProducerId v1. `transactional_id` None: a producer without transactions."""
    return encoded(
        INIT_PRODUCER_ID,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
    )


def produce_request(
    batches: Mapping[TopicPartition, bytes | bytearray],
    timeout_ms: int,
    transactional_id: str | None = None,
) -> bytes:
    """Return the body of Produce v8 with acks=all and one batch per partition."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in batches:
        topics.setdefault(tp.topic, []).append(tp)
    transaction = _NO_TRANSACTION if transactional_id is None else _string(transactional_id)
    head = _PRODUCE_HEAD.pack(_ALL_REPLICAS, timeout_ms, len(topics))
    body: list[bytes | bytearray] = [transaction, head]
    for topic, partitions in topics.items():
        body += [_string(topic), _INT32.pack(len(partitions))]
        for tp in partitions:
            batch = batches[tp]
            body += [_PRODUCE_PARTITION.pack(tp.partition, len(batch)), batch]
    return b"".join(body)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def parse_init_producer(answer: memoryview) -> NewProducer:
    """Parse the body of an InitProducerId v1 response."""
    found = decoded(INIT_PRODUCER_ID, answer)
    return NewProducer(found.error_code, found.producer_id, found.producer_epoch)


def parse_produce(answer: memoryview) -> dict[TopicPartition, ProducedPartition]:
    """Parse the body of a Produce v8 response."""
    return {
        TopicPartition(topic.name, row.index): _produced(row)
        for topic in decoded(PRODUCE, answer).responses
        for row in topic.partition_responses
    }


def _produced(row: Entity) -> ProducedPartition:
    refused = tuple(
        (found.batch_index, found.batch_index_error_message or "") for found in row.record_errors
    )
    return ProducedPartition(row.error_code, row.base_offset, refused, row.error_message or "")
