"""Requests and responses of transactions (KIP-98), and of groups without members.

OffsetFetch has version 7, the first one that waits for the end of a transaction (KIP-447). Kafka 2.5 and later serve
all these versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.kafka.messages.decoder import Entity
from minikafka.kafka.messages.encoder import Row
from minikafka.spark.wire.leaders import Position, raise_if_final
from minikafka.spark.wire.protocol import by_topic, decoded, encoded

FIND_COORDINATOR: Final = (10, 2)
ADD_PARTITIONS: Final = (24, 1)
ADD_OFFSETS: Final = (25, 1)
END: Final = (26, 1)
TXN_OFFSET_COMMIT: Final = (28, 2)
OFFSET_COMMIT: Final = (8, 7)
OFFSET_FETCH: Final = (9, 7)
API_VERSIONS: Final = (18, 0)
"""API key and version of each request of this module."""

OF_GROUPS: Final = 0
OF_TRANSACTIONS: Final = 1
"""Kinds of coordinators."""

_NOT_ATTEMPTED: Final = ErrorCode.OPERATION_NOT_ATTEMPTED


class FoundCoordinator(NamedTuple):
    """A FindCoordinator response."""

    error: int
    address: tuple[str, int]


class ErrorResponse(NamedTuple):
    """A response that has nothing but an error code."""

    error: int


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for one partition, with its metadata. Offset -1: there is none."""

    error: int
    offset: int
    metadata: str


class Identity(NamedTuple):
    """A transactional id with its producer id and its epoch."""

    transactional_id: str
    producer_id: int
    epoch: int


def find_coordinator_request(key: str, kind: int) -> bytes:
    """Return the body of FindCoordinator v2. `kind`: `OF_GROUPS` or `OF_TRANSACTIONS`."""
    return encoded(FIND_COORDINATOR, key=key, key_type=kind)


def parse_find_coordinator(answer: memoryview) -> FoundCoordinator:
    """Parse the body of a FindCoordinator v2 response."""
    found = decoded(FIND_COORDINATOR, answer)
    return FoundCoordinator(found.error_code, (found.host, found.port))


def add_partitions_request(identity: Identity, partitions: Iterable[TopicPartition]) -> bytes:
    """Return the body of AddPartitionsToTxn v1."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return encoded(
        ADD_PARTITIONS,
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            {"name": topic, "partitions": numbers} for topic, numbers in topics.items()
        ],
    )


def parse_add_partitions(answer: memoryview) -> ErrorResponse:
    """Return the first error of an AddPartitionsToTxn v1 response that names a cause."""
    topics = decoded(ADD_PARTITIONS, answer).results_by_topic_v3_and_below
    found = {
        TopicPartition(topic.name, row.partition_index): row.partition_error_code
        for topic in topics
        for row in topic.results_by_partition
    }
    return ErrorResponse(_first_cause(ADD_PARTITIONS, found))


def add_offsets_request(identity: Identity, group: str) -> bytes:
    """Return the body of AddOffsetsToTxn v1."""
    return encoded(ADD_OFFSETS, group_id=group, **_fields(identity))


def parse_add_offsets(answer: memoryview) -> ErrorResponse:
    """Return the error of an AddOffsetsToTxn v1 response."""
    return ErrorResponse(decoded(ADD_OFFSETS, answer).error_code)


def end_request(identity: Identity, *, commit: bool) -> bytes:
    """Return the body of EndTxn v1."""
    return encoded(END, committed=commit, **_fields(identity))


def parse_end(answer: memoryview) -> ErrorResponse:
    """Return the error of an EndTxn v1 response."""
    return ErrorResponse(decoded(END, answer).error_code)


def txn_offset_commit_request(
    identity: Identity, group: str, tp: TopicPartition, offset: int, metadata: str
) -> bytes:
    """Return the body of TxnOffsetCommit v2 for one partition, by a client that is no member of the group."""
    row = {
        "partition_index": tp.partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }
    topics = [{"name": tp.topic, "partitions": [row]}]
    return encoded(TXN_OFFSET_COMMIT, group_id=group, topics=topics, **_fields(identity))


def parse_txn_offset_commit(answer: memoryview) -> ErrorResponse:
    """Return the first error of a TxnOffsetCommit v2 response that names a cause."""
    return ErrorResponse(
        _first_cause(TXN_OFFSET_COMMIT, _errors(decoded(TXN_OFFSET_COMMIT, answer).topics))
    )


def offset_commit_request(group: str, read: Mapping[TopicPartition, Position]) -> bytes:
    """Return the body of OffsetCommit v7, by a client that is no member of the group."""
    rows: dict[TopicPartition, Row] = {
        tp: {
            "partition_index": tp.partition,
            "committed_offset": position.offset,
            "committed_leader_epoch": position.leader_epoch,
            "committed_metadata": "",
        }
        for tp, position in read.items()
    }
    topics = [{"name": topic, "partitions": found} for topic, found in by_topic(rows).items()]
    return encoded(
        OFFSET_COMMIT, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )


def parse_offset_commit(answer: memoryview) -> ErrorResponse:
    """Return the first error of an OffsetCommit v7 response."""
    return ErrorResponse(
        _first_cause(OFFSET_COMMIT, _errors(decoded(OFFSET_COMMIT, answer).topics))
    )


def offset_fetch_request(group: str, tp: TopicPartition) -> bytes:
    """Return the body of OffsetFetch v7 for one partition.

    The coordinator refuses the request, as UNSTABLE_OFFSET_COMMIT, while a transaction with an offset is open.
    """
    topic = {"name": tp.topic, "partition_indexes": [tp.partition]}
    return encoded(OFFSET_FETCH, group_id=group, topics=[topic], require_stable=True)


def parse_offset_fetch(answer: memoryview) -> CommittedOffset:
    """Parse the body of an OffsetFetch v7 response for one partition."""
    response = decoded(OFFSET_FETCH, answer)
    rows = [row for topic in response.topics for row in topic.partitions]
    if response.error_code or not rows:
        return CommittedOffset(response.error_code, -1, "")
    error = _first_cause(OFFSET_FETCH, _errors(response.topics))
    return CommittedOffset(error, rows[0].committed_offset, rows[0].metadata or "")


def parse_api_versions(answer: memoryview) -> dict[int, int]:
    """Return the highest version of each request that a broker serves, from an ApiVersions v0 response."""
    return {row.api_key: row.max_version for row in decoded(API_VERSIONS, answer).api_keys}


def _fields(identity: Identity) -> dict[str, Any]:
    return {
        "transactional_id": identity.transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }


def _errors(topics: Iterable[Entity]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in topics
        for row in topic.partitions
    }


def _first_cause(api: tuple[int, int], errors: Mapping[TopicPartition, int]) -> int:
    """Return the first error other than OPERATION_NOT_ATTEMPTED, which names no cause; else that error, or 0.

    Raises `KafkaError` that names the topic if the client lacks a right on it.
    """
    found = {tp: error for tp, error in errors.items() if error}
    for tp, error in found.items():
        if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise_if_final(error, str(tp), api, tp.topic)
    causes = [error for error in found.values() if error != _NOT_ATTEMPTED]
    return next(iter(causes or found.values()), 0)
