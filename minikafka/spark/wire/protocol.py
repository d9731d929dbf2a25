"""Requests and responses of Metadata v11, ListOffsets v4, Fetch v11 and OffsetForLeaderEpoch v3.

`kafka.messages` encodes and decodes them. Metadata has version 11 because its responses must contain topic ids.
Kafka 2.8 and later serve all these versions. Invariant: a truncated response, or a response with impossible sizes,
raises `ProtocolViolation` and no other exception.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.kafka.messages import table
from minikafka.kafka.messages.decoder import Entity, decode, decoder, skip_tags
from minikafka.kafka.messages.encoder import Row, encode, encoder
from minikafka.kafka.records.transactions import Aborted

FETCH: Final = (1, 11)
LIST_OFFSETS: Final = (2, 4)
METADATA: Final = (3, 11)
OFFSET_FOR_LEADER_EPOCH: Final = (23, 3)
"""API key and version of each request of this module."""
EARLIEST: Final = -2
LATEST: Final = -1
"""Special timestamps for the start and the end of a log, in ListOffsets and in Spark's offset JSON."""


class Isolation(IntEnum):
    """Whether a reader gets only committed records of transactions (`isolation.level`)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


_REQUEST: Final = Struct(">ihhih")
_ELEMENTS_MAX: Final = 10_000_000
_CONSUMER: Final = -1
_NO_TAGS: Final = b"\x00"


class PartitionMetadata(NamedTuple):
    """The leader of a partition, from one broker's metadata."""

    error: int
    leader: int
    leader_epoch: int


class TopicMetadata(NamedTuple):
    """The metadata of a topic, with the partitions by partition number."""

    error: int
    is_internal: bool
    topic_id: str
    """The topic id in the format of Kafka's tools. Empty if Kafka before 2.8 created the topic, without id."""
    partitions: dict[int, PartitionMetadata]


class MetadataResponse(NamedTuple):
    """A Metadata response: live brokers as (host, port) by broker id, and topics by name.

    `controller` is the address of the controller; None if no listed broker is the controller.
    """

    brokers: dict[int, tuple[str, int]]
    controller: tuple[str, int] | None
    topics: dict[str, TopicMetadata]


class OffsetResponse(NamedTuple):
    """One partition of a ListOffsets or OffsetForLeaderEpoch response. Offset -1: no offset was found."""

    error: int
    offset: int
    leader_epoch: int


class FetchEntry(NamedTuple):
    """One partition of a Fetch request."""

    leader_epoch: int
    offset: int
    max_bytes: int


class FetchResponse(NamedTuple):
    """One partition of a Fetch response. `records` is a view of the response's bytes."""

    error: int
    high_watermark: int
    log_start_offset: int
    aborted: tuple[Aborted, ...]
    """Aborted transactions, only with read_committed. `records` includes the records of these transactions."""
    records: memoryview


def request(api: tuple[int, int], correlation: int, client_id: str, body: bytes) -> bytes:
    """Return a complete request: length, request header (v1, or v2 for flexible versions), body."""
    client = client_id.encode()
    rest = b"".join((client, _NO_TAGS if is_flexible(api) else b"", body))
    return _REQUEST.pack(_REQUEST.size - 4 + len(rest), *api, correlation, len(client)) + rest


def is_flexible(api: tuple[int, int]) -> bool:
    """True if the headers of an API and version end with tagged fields (KIP-482). ApiVersions has version 0 here."""
    key, version = api
    return version in table.request(key).flexible


def without_header_tags(answer: memoryview) -> memoryview:
    """Return a response of a flexible version without the tagged fields of its header."""
    return answer[skip_tags(answer, 0) :]


def encoded(api: tuple[int, int], **values: Any) -> bytes:
    """Return the body of a request. `values`: its fields, by Kafka's names in snake case."""
    key, version = api
    return encode(table.request(key), version, values)


def decoded(api: tuple[int, int], answer: memoryview) -> Entity:
    """Return the fields of a response. Raises ProtocolViolation."""
    key, version = api
    return decode(table.response(key), version, answer, 0, _ELEMENTS_MAX)


def prepare(*apis: tuple[int, int]) -> None:
    """Generate the code that encodes and decodes these messages, which takes some milliseconds in a new process."""
    for key, version in apis:
        encoder(table.request(key), version)
        decoder(table.response(key), version)


def by_topic(rows: Mapping[TopicPartition, Row]) -> dict[str, list[Row]]:
    """Return the rows of partitions by topic."""
    topics: dict[str, list[Row]] = {}
    for tp, row in rows.items():
        topics.setdefault(tp.topic, []).append(row)
    return topics


def metadata_request(topics: Sequence[str] | None, *, creates: bool = False) -> bytes:
    """Return the body of Metadata v11 for these topics, or for all topics if `topics` is None.

    `creates`: ask the broker to create missing topics. The request asks for no authorized operations.
    """
    names = None if topics is None else [{"name": topic} for topic in topics]
    return encoded(METADATA, topics=names, allow_auto_topic_creation=creates)


def list_offsets_request(
    asked: Mapping[TopicPartition, tuple[int, int]], isolation: Isolation
) -> bytes:
    """Return the body of ListOffsets v4. `asked`: (leader epoch, timestamp) of each partition.

    A timestamp is Unix milliseconds, EARLIEST or LATEST.
    """
    rows: dict[TopicPartition, Row] = {
        tp: {
            "partition_index": tp.partition,
            "current_leader_epoch": leader_epoch,
            "timestamp": timestamp,
        }
        for tp, (leader_epoch, timestamp) in asked.items()
    }
    topics = [{"name": topic, "partitions": found} for topic, found in by_topic(rows).items()]
    return encoded(LIST_OFFSETS, replica_id=_CONSUMER, isolation_level=isolation, topics=topics)


def epoch_ends_request(asked: Mapping[TopicPartition, tuple[int, int]]) -> bytes:
    """Return the body of OffsetForLeaderEpoch v3.

    `asked`: (current leader epoch, epoch whose end is requested) of each partition.
    """
    rows: dict[TopicPartition, Row] = {
        tp: {"partition": tp.partition, "current_leader_epoch": current, "leader_epoch": wanted}
        for tp, (current, wanted) in asked.items()
    }
    topics = [{"topic": topic, "partitions": found} for topic, found in by_topic(rows).items()]
    return encoded(OFFSET_FOR_LEADER_EPOCH, replica_id=_CONSUMER, topics=topics)


def fetch_request(
    asked: Mapping[TopicPartition, FetchEntry],
    isolation: Isolation,
    *,
    max_bytes: int,
    max_wait_ms: int,
) -> bytes:
    """Return the body of Fetch v11 without a fetch session.

    The response has at most `max_bytes`, and the partitions in the order of `asked` as long as they fit. The first
    batch of the response may be larger.
    """
    rows: dict[TopicPartition, Row] = {
        tp: {
            "partition": tp.partition,
            "current_leader_epoch": entry.leader_epoch,
            "fetch_offset": entry.offset,
            "partition_max_bytes": entry.max_bytes,
        }
        for tp, entry in asked.items()
    }
    return encoded(
        FETCH,
        replica_id=_CONSUMER,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[{"topic": topic, "partitions": found} for topic, found in by_topic(rows).items()],
    )


def parse_metadata(answer: memoryview) -> MetadataResponse:
    """Parse the body of a Metadata v11 response."""
    found = decoded(METADATA, answer)
    brokers = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
    topics = {topic.name: _topic(topic) for topic in found.topics}
    return MetadataResponse(brokers, brokers.get(found.controller_id), topics)


def _topic(topic: Entity) -> TopicMetadata:
    partitions = {
        row.partition_index: PartitionMetadata(row.error_code, row.leader_id, row.leader_epoch)
        for row in topic.partitions
    }
    has_id = topic.topic_id != table.NULL_UUID
    topic_id = urlsafe_b64encode(topic.topic_id).decode().rstrip("=") if has_id else ""
    return TopicMetadata(topic.error_code, topic.is_internal, topic_id, partitions)


def parse_list_offsets(answer: memoryview) -> dict[TopicPartition, OffsetResponse]:
    """Parse the body of a ListOffsets v4 response."""
    return {
        TopicPartition(topic.name, row.partition_index): OffsetResponse(
            row.error_code, row.offset, row.leader_epoch
        )
        for topic in decoded(LIST_OFFSETS, answer).topics
        for row in topic.partitions
    }


def parse_epoch_ends(answer: memoryview) -> dict[TopicPartition, OffsetResponse]:
    """Parse the body of an OffsetForLeaderEpoch v3 response.

    For each partition, the response contains the largest epoch up to the requested epoch, and the end offset of
    this epoch.
    """
    return {
        TopicPartition(topic.topic, row.partition): OffsetResponse(
            row.error_code, row.end_offset, row.leader_epoch
        )
        for topic in decoded(OFFSET_FOR_LEADER_EPOCH, answer).topics
        for row in topic.partitions
    }


def parse_fetch(
    answer: memoryview, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, FetchResponse]:
    """Parse the body of a Fetch v11 response. An error of the whole response is the error of every partition.

    Raises `ProtocolViolation` if a partition in `asked` is missing.
    """
    response = decoded(FETCH, answer)
    code, nothing = response.error_code, answer[:0]
    found = {
        TopicPartition(topic.topic, row.partition_index): FetchResponse(
            code or row.error_code,
            row.high_watermark,
            row.log_start_offset,
            tuple(Aborted(*aborted) for aborted in row.aborted_transactions or ()),
            nothing if row.records is None else row.records,
        )
        for topic in response.responses
        for row in topic.partitions
    }
    missing = [tp for tp in asked if tp not in found]
    if missing and not code:
        raise ProtocolViolation(f"a Fetch response lacks the requested partition {missing[0]}")
    return found | dict.fromkeys(missing, FetchResponse(code, -1, -1, (), nothing))
