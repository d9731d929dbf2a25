"""The three Kafka requests that a batch read needs, as bytes: Metadata v7, ListOffsets v4, Fetch v11.

Written by hand so that executors need no codec library. None of the versions is flexible, so
strings and arrays have plain int16 and int32 lengths. Layouts follow Kafka's protocol guide; Kafka
2.3 and later serve all three versions. Invariant: a truncated response, or one with impossible
sizes, is a `ProtocolViolation`, never another exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition

FETCH: Final = (1, 11)
LIST_OFFSETS: Final = (2, 4)
METADATA: Final = (3, 7)
"""API key and version."""

EARLIEST: Final = -2
LATEST: Final = -1
"""Timestamps that stand for the two ends of a log in ListOffsets and in Spark's offset JSON."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_REQUEST: Final = Struct(">ihhi")
_FETCH_HEAD: Final = Struct(">iiiibii")
_FETCH_PARTITION: Final = Struct(">iiqqi")
_LIST_PARTITION: Final = Struct(">iiq")
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_NO_SESSION: Final = (0, -1)


class PartitionMetadata(NamedTuple):
    """The leader of a partition, as one broker knows it."""

    error: int
    leader: int
    leader_epoch: int


class TopicMetadata(NamedTuple):
    """A topic and its partitions by index."""

    error: int
    partitions: dict[int, PartitionMetadata]


class Metadata(NamedTuple):
    """A Metadata response: live brokers as (host, port) by id, and the requested topics."""

    brokers: dict[int, tuple[str, int]]
    topics: dict[str, TopicMetadata]


class OffsetResponse(NamedTuple):
    """One partition of a ListOffsets response."""

    error: int
    offset: int


class FetchResponse(NamedTuple):
    """One partition of a Fetch response; `records` is a view into the response's bytes."""

    error: int
    high_watermark: int
    log_start_offset: int
    records: memoryview


def request(api: tuple[int, int], correlation: int, client_id: str, body: bytes) -> bytes:
    """Return a whole frame: length, request header v1, body."""
    client = _string(client_id)
    size = _REQUEST.size - 4 + len(client) + len(body)
    return _REQUEST.pack(size, *api, correlation) + client + body


def metadata_request(topics: Sequence[str]) -> bytes:
    """Return the body of Metadata v7 for these topics, without auto-creation."""
    names = b"".join(_string(topic) for topic in topics)
    return _INT32.pack(len(topics)) + names + b"\x00"


def list_offsets_request(asked: Mapping[TopicPartition, tuple[int, int]]) -> bytes:
    """Return the body of ListOffsets v4; `asked` maps partitions to (leader epoch, EARLIEST or LATEST)."""
    topics: dict[str, list[bytes]] = {}
    for tp, (leader_epoch, timestamp) in asked.items():
        entry = _LIST_PARTITION.pack(tp.partition, leader_epoch, timestamp)
        topics.setdefault(tp.topic, []).append(entry)
    body = [_INT32.pack(_CONSUMER), bytes([_READ_UNCOMMITTED]), _INT32.pack(len(topics))]
    for topic, entries in topics.items():
        body += [_string(topic), _INT32.pack(len(entries)), *entries]
    return b"".join(body)


def fetch_request(
    tp: TopicPartition, leader_epoch: int, offset: int, *, max_bytes: int, max_wait_ms: int
) -> bytes:
    """Return the body of Fetch v11 for one partition, without a fetch session."""
    head = _FETCH_HEAD.pack(_CONSUMER, max_wait_ms, 1, max_bytes, _READ_UNCOMMITTED, *_NO_SESSION)
    entry = _FETCH_PARTITION.pack(tp.partition, leader_epoch, offset, -1, max_bytes)
    one, none = _INT32.pack(1), _INT32.pack(0)
    return b"".join([head, one, _string(tp.topic), one, entry, none, _string("")])


def parse_metadata(answer: memoryview) -> Metadata:
    """Parse the body of a Metadata v7 response."""
    reader = _Reader(answer)
    reader.int32()  # throttle time
    brokers = {}
    for _ in range(reader.count()):
        broker_id = reader.int32()
        brokers[broker_id] = (reader.string(), reader.int32())
        reader.nullable_string()  # rack
    reader.nullable_string()  # cluster id
    reader.int32()  # controller
    topics = {}
    for _ in range(reader.count()):
        code, name = reader.int16(), reader.string()
        reader.skip(1)  # is internal
        topics[name] = TopicMetadata(code, dict(_partition(reader) for _ in range(reader.count())))
    return Metadata(brokers, topics)


def _partition(reader: _Reader) -> tuple[int, PartitionMetadata]:
    code, index, leader, leader_epoch = (
        reader.int16(),
        reader.int32(),
        reader.int32(),
        reader.int32(),
    )
    for _ in ("replicas", "in-sync replicas", "offline replicas"):
        reader.skip(4 * reader.count())
    return index, PartitionMetadata(code, leader, leader_epoch)


def parse_list_offsets(answer: memoryview) -> dict[TopicPartition, OffsetResponse]:
    """Parse the body of a ListOffsets v4 response."""
    reader = _Reader(answer)
    reader.int32()  # throttle time
    found = {}
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            tp, code = TopicPartition(topic, reader.int32()), reader.int16()
            reader.int64()  # timestamp
            found[tp] = OffsetResponse(code, reader.int64())
            reader.int32()  # leader epoch
    return found


def parse_fetch(answer: memoryview) -> FetchResponse:
    """Parse the body of a Fetch v11 response for one partition."""
    reader = _Reader(answer)
    reader.int32()  # throttle time
    code = reader.int16()
    reader.int32()  # session id
    if reader.count() != 1:
        return FetchResponse(code or -1, -1, -1, answer[:0])
    reader.string()  # topic
    if reader.count() != 1:
        raise ProtocolViolation("a Fetch response lacks the requested partition")
    reader.int32()  # partition
    partition_code, high_watermark = reader.int16(), reader.int64()
    reader.int64()  # last stable offset
    log_start_offset = reader.int64()
    reader.skip(16 * max(reader.int32(), 0))  # aborted transactions, null when there are none
    reader.int32()  # preferred read replica
    records = reader.take(max(reader.int32(), 0))
    return FetchResponse(code or partition_code, high_watermark, log_start_offset, records)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


class _Reader:
    """A position in a response that advances with every read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def count(self) -> int:
        """Read the size of an array; null counts as empty."""
        size = self.int32()
        if size > len(self._data) - self._position:
            raise ProtocolViolation(
                f"an array of {size} entries in a response of {len(self._data)} bytes"
            )
        return max(size, 0)

    def string(self) -> str:
        return self.nullable_string() or ""

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else str(self.take(size), "utf-8", "replace")

    def skip(self, size: int) -> None:
        self.take(size)

    def take(self, size: int) -> memoryview:
        end = self._position + size
        if end > len(self._data):
            raise ProtocolViolation("a response is shorter than its lengths say")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _number(self, layout: Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._data, self._position)
        except error as cause:
            raise ProtocolViolation("a response is shorter than its lengths say") from cause
        self._position += layout.size
        return int(value)
