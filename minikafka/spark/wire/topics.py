"""Requests and responses of CreateTopics v4, DeleteTopics v3 and DeleteRecords v1. Kafka 2.4 and later serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.kafka.messages.decoder import Entity
from minikafka.kafka.messages.encoder import Row
from minikafka.spark.wire.protocol import by_topic, decoded, encoded

CREATE_TOPICS: Final = (19, 4)
DELETE_TOPICS: Final = (20, 3)
DELETE_RECORDS: Final = (21, 1)
"""API key and version of each request of this module."""


def create_topic_request(
    topic: str, partitions: int, replicas: int, settings: Mapping[str, str], timeout_ms: int
) -> bytes:
    """Return the body of CreateTopics v4 for one topic."""
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [{"name": name, "value": value} for name, value in settings.items()],
    }
    return encoded(CREATE_TOPICS, topics=[wanted], timeout_ms=timeout_ms)


def parse_create_topic(answer: memoryview) -> int:
    """Return the error of a CreateTopics v4 response for one topic."""
    return _error(decoded(CREATE_TOPICS, answer).topics)


def delete_topic_request(topic: str, timeout_ms: int) -> bytes:
    """Return the body of DeleteTopics v3 for one topic."""
    return encoded(DELETE_TOPICS, topic_names=[topic], timeout_ms=timeout_ms)


def parse_delete_topic(answer: memoryview) -> int:
    """Return the error of a DeleteTopics v3 response for one topic."""
    return _error(decoded(DELETE_TOPICS, answer).responses)


def _error(topics: Sequence[Entity]) -> int:
    if not topics:
        raise ProtocolViolation("a response lacks the requested topic")
    code: int = topics[0].error_code
    return code


def delete_records_request(below: Mapping[TopicPartition, int], timeout_ms: int) -> bytes:
    """Return the body of DeleteRecords v1. `below`: the new start of the log of each partition."""
    rows: dict[TopicPartition, Row] = {
        tp: {"partition_index": tp.partition, "offset": offset} for tp, offset in below.items()
    }
    topics = [{"name": topic, "partitions": found} for topic, found in by_topic(rows).items()]
    return encoded(DELETE_RECORDS, topics=topics, timeout_ms=timeout_ms)
