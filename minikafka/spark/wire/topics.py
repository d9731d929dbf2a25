"""Encoding of CreateTopics v4, DeleteTopics v3 and DeleteRecords v1, and parsing of the responses.

The module follows the rules of `protocol`. None of these versions is flexible (KIP-482). Kafka 2.4 and later serve
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.spark.wire.protocol import Reader, by_topic, string

CREATE_TOPICS: Final = (19, 4)
DELETE_TOPICS: Final = (20, 3)
DELETE_RECORDS: Final = (21, 1)
"""API key and version of each request of this module."""

_INT32: Final = Struct(">i")
_NEW_TOPIC: Final = Struct(">ihi")
_BELOW: Final = Struct(">iq")


def create_topic_request(
    topic: str, partitions: int, replicas: int, settings: Mapping[str, str], timeout_ms: int
) -> bytes:
    """Return the body of CreateTopics v4 for one topic."""
    pairs = [string(name) + string(value) for name, value in settings.items()]
    head = _INT32.pack(1) + string(topic) + _NEW_TOPIC.pack(partitions, replicas, 0)
    return b"".join(
        [head, _INT32.pack(len(pairs)), *pairs, _INT32.pack(timeout_ms), bytes([False])]
    )


def parse_create_topic(answer: memoryview) -> int:
    """Return the error of a CreateTopics v4 response for one topic."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    reader.count()
    reader.string()
    return reader.int16()


def delete_topic_request(topic: str, timeout_ms: int) -> bytes:
    """Return the body of DeleteTopics v3 for one topic."""
    return _INT32.pack(1) + string(topic) + _INT32.pack(timeout_ms)


def parse_delete_topic(answer: memoryview) -> int:
    """Return the error of a DeleteTopics v3 response for one topic."""
    return parse_create_topic(answer)


def delete_records_request(below: Mapping[TopicPartition, int], timeout_ms: int) -> bytes:
    """Return the body of DeleteRecords v1. `below`: the new start of the log of each partition."""
    entries = {tp: (_BELOW.pack(tp.partition, offset),) for tp, offset in below.items()}
    return by_topic(entries) + _INT32.pack(timeout_ms)
