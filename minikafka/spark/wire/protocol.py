"""Encoding and parsing for Metadata v11, ListOffsets v4, Fetch v11 and OffsetForLeaderEpoch v3.

The code is written by hand, so that executors need no codec library. Of these, only Metadata uses a flexible
version (KIP-482), because its responses must contain topic ids. The other versions have int16 lengths of strings and
int32 lengths of arrays. Kafka 2.8 and later serve all these versions. Invariant: a truncated response, or a
response with impossible sizes, raises `ProtocolViolation` and no other exception.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import chain
from struct import Struct, error
from typing import Final, NamedTuple

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.record.transactions import Aborted
from minikafka.record.varints import read_uvarint, uvarint

FETCH: Final = (1, 11)
LIST_OFFSETS: Final = (2, 4)
METADATA: Final = (3, 11)
OFFSET_FOR_LEADER_EPOCH: Final = (23, 3)
"""API key and version of each request of this module."""
OFFSET_FETCH: Final = (9, 7)
"""API key and version of the request for the offset of a group, which `transactions` encodes."""
DESCRIBE_PRODUCERS: Final = (61, 0)
LIST_TRANSACTIONS: Final = (66, 0)
"""API key and version of the requests about open transactions, which `producers` encodes."""
FLEXIBLE: Final = frozenset({METADATA, OFFSET_FETCH, DESCRIBE_PRODUCERS, LIST_TRANSACTIONS})
"""The requests in a flexible version, whose headers end with tagged fields."""

EARLIEST: Final = -2
LATEST: Final = -1
"""Special timestamps for the start and the end of a log, in ListOffsets and in Spark's offset JSON."""


class Isolation(IntEnum):
    """Whether a reader gets only committed records of transactions (`isolation.level`)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_REQUEST: Final = Struct(">ihhi")
_FETCH_HEAD: Final = Struct(">iiiibii")
_FETCH_PARTITION: Final = Struct(">iiqqi")
_LIST_PARTITION: Final = Struct(">iiq")
_EPOCH_PARTITION: Final = Struct(">iii")
_ABORTED: Final = Struct(">qq")
_CONSUMER: Final = -1
_NO_SESSION: Final = (0, -1)
_NO_ID: Final = bytes(16)
NO_TAGS: Final = b"\x00"


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


class Metadata(NamedTuple):
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
    client = string(client_id) + (NO_TAGS if api in FLEXIBLE else b"")
    size = _REQUEST.size - 4 + len(client) + len(body)
    return _REQUEST.pack(size, *api, correlation) + client + body


def without_header_tags(answer: memoryview) -> memoryview:
    """Return a response of a flexible version without the tagged fields of its header."""
    reader = Reader(answer)
    reader.skip_tags()
    return reader.rest()


def metadata_request(topics: Sequence[str] | None, *, creates: bool = False) -> bytes:
    """Return the body of Metadata v11 for these topics, or for all topics if `topics` is None.

    `creates`: ask the broker to create missing topics. The request asks for no authorized operations.
    """
    flags = bytes([creates, False]) + NO_TAGS
    if topics is None:
        return uvarint(0) + flags
    names = [_NO_ID + compact_string(topic) + NO_TAGS for topic in topics]
    return uvarint(len(topics) + 1) + b"".join(names) + flags


def list_offsets_request(
    asked: Mapping[TopicPartition, tuple[int, int]], isolation: Isolation
) -> bytes:
    """Return the body of ListOffsets v4. `asked`: (leader epoch, timestamp) of each partition.

    A timestamp is Unix milliseconds, EARLIEST or LATEST.
    """
    entries = {
        tp: (_LIST_PARTITION.pack(tp.partition, leader_epoch, timestamp),)
        for tp, (leader_epoch, timestamp) in asked.items()
    }
    return by_topic(entries, _INT32.pack(_CONSUMER) + bytes([isolation]))


def epoch_ends_request(asked: Mapping[TopicPartition, tuple[int, int]]) -> bytes:
    """Return the body of OffsetForLeaderEpoch v3.

    `asked`: (current leader epoch, epoch whose end is requested) of each partition.
    """
    entries = {
        tp: (_EPOCH_PARTITION.pack(tp.partition, current, wanted),)
        for tp, (current, wanted) in asked.items()
    }
    return by_topic(entries, _INT32.pack(_CONSUMER))


def by_topic(
    entries: Mapping[TopicPartition, Sequence[bytes | bytearray]], head: bytes = b""
) -> bytes:
    """Return `head` and an encoded array of topics. Each topic is a name and an array of partition entries.

    `entries`: the encoded entry of each partition, in one or more pieces. Every piece is copied once.
    """
    topics: dict[str, list[Sequence[bytes | bytearray]]] = {}
    for tp, entry in entries.items():
        topics.setdefault(tp.topic, []).append(entry)
    body: list[bytes | bytearray] = [head, _INT32.pack(len(topics))]
    for topic, found in topics.items():
        body += [string(topic), _INT32.pack(len(found)), *chain.from_iterable(found)]
    return b"".join(body)


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
    head = _FETCH_HEAD.pack(_CONSUMER, max_wait_ms, 1, max_bytes, isolation, *_NO_SESSION)
    entries = {
        tp: (
            _FETCH_PARTITION.pack(
                tp.partition, entry.leader_epoch, entry.offset, -1, entry.max_bytes
            ),
        )
        for tp, entry in asked.items()
    }
    return by_topic(entries, head) + _INT32.pack(0) + string("")


def parse_metadata(answer: memoryview) -> Metadata:
    """Parse the body of a Metadata v11 response."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    brokers = {}
    for _ in range(reader.compact_count()):
        broker_id = reader.int32()
        brokers[broker_id] = (reader.compact_string(), reader.int32())
        reader.compact_string()  # rack
        reader.skip_tags()
    reader.compact_string()  # cluster id
    controller = brokers.get(reader.int32())
    topics = dict(_topic(reader) for _ in range(reader.compact_count()))
    reader.skip_tags()
    return Metadata(brokers, controller, topics)


def _topic(reader: Reader) -> tuple[str, TopicMetadata]:
    code, name, raw_id = reader.int16(), reader.compact_string(), bytes(reader.take(len(_NO_ID)))
    is_internal = reader.take(1)[0] != 0
    partitions = dict(_partition(reader) for _ in range(reader.compact_count()))
    reader.int32()  # authorized operations
    reader.skip_tags()
    topic_id = "" if raw_id == _NO_ID else urlsafe_b64encode(raw_id).decode().rstrip("=")
    return name, TopicMetadata(code, is_internal, topic_id, partitions)


def _partition(reader: Reader) -> tuple[int, PartitionMetadata]:
    code, index, leader, leader_epoch = (
        reader.int16(),
        reader.int32(),
        reader.int32(),
        reader.int32(),
    )
    for _ in ("replicas", "in-sync replicas", "offline replicas"):
        reader.skip(4 * reader.compact_count())
    reader.skip_tags()
    return index, PartitionMetadata(code, leader, leader_epoch)


def parse_list_offsets(answer: memoryview) -> dict[TopicPartition, OffsetResponse]:
    """Parse the body of a ListOffsets v4 response."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    found = {}
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            tp, code = TopicPartition(topic, reader.int32()), reader.int16()
            reader.int64()  # timestamp
            found[tp] = OffsetResponse(code, reader.int64(), reader.int32())
    return found


def parse_epoch_ends(answer: memoryview) -> dict[TopicPartition, OffsetResponse]:
    """Parse the body of an OffsetForLeaderEpoch v3 response.

    For each partition, the response contains the largest epoch up to the requested epoch, and the end offset of
    this epoch.
    """
    reader = Reader(answer)
    reader.int32()  # throttle time
    found = {}
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            code, index, epoch = reader.int16(), reader.int32(), reader.int32()
            found[TopicPartition(topic, index)] = OffsetResponse(code, reader.int64(), epoch)
    return found


def parse_fetch(
    answer: memoryview, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, FetchResponse]:
    """Parse the body of a Fetch v11 response. An error of the whole response is the error of every partition.

    Raises `ProtocolViolation` if a partition in `asked` is missing.
    """
    reader = Reader(answer)
    reader.int32()  # throttle time
    code = reader.int16()
    reader.int32()  # session id
    found = {}
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            tp = TopicPartition(topic, reader.int32())
            found[tp] = _fetched(reader, code)
    missing = [tp for tp in asked if tp not in found]
    if missing and not code:
        raise ProtocolViolation(f"a Fetch response lacks the requested partition {missing[0]}")
    return found | dict.fromkeys(missing, FetchResponse(code, -1, -1, (), answer[:0]))


def _fetched(reader: Reader, code: int) -> FetchResponse:
    partition_code, high_watermark = reader.int16(), reader.int64()
    reader.int64()  # last stable offset
    log_start_offset = reader.int64()
    aborted = reader.take(_ABORTED.size * max(reader.int32(), 0))  # the count is -1 for null
    reader.int32()  # preferred read replica
    records = reader.take(max(reader.int32(), 0))
    return FetchResponse(
        code or partition_code,
        high_watermark,
        log_start_offset,
        tuple(Aborted(*found) for found in _ABORTED.iter_unpack(aborted)),
        records,
    )


def string(text: str) -> bytes:
    """Return an encoded string."""
    data = text.encode()
    return _INT16.pack(len(data)) + data


def compact_string(text: str) -> bytes:
    """Return a string in the encoding of flexible versions."""
    data = text.encode()
    return uvarint(len(data) + 1) + data


class Reader:
    """A position in a response that advances with every read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        """Return the next two bytes as a signed number."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Return the next four bytes as a signed number."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Return the next eight bytes as a signed number."""
        return self._number(_INT64)

    def uvarint(self) -> int:
        """Return the next unsigned varint."""
        number, self._position = read_uvarint(self._data, self._position)
        return number

    def count(self) -> int:
        """Return the size of the next array; 0 for null."""
        return self._checked_count(self.int32())

    def compact_count(self) -> int:
        """Return the size of the next array in the encoding of flexible versions; 0 for null."""
        return self._checked_count(self.uvarint() - 1)

    def _checked_count(self, size: int) -> int:
        if size > len(self._data) - self._position:
            raise ProtocolViolation(
                f"an array declares {size} entries in a response of {len(self._data)} bytes"
            )
        return max(size, 0)

    def string(self) -> str:
        """Return the next string; "" for null."""
        return self.nullable_string() or ""

    def nullable_string(self) -> str | None:
        """Return the next string; None for null."""
        size = self.int16()
        return None if size < 0 else str(self.take(size), "utf-8", "replace")

    def compact_string(self) -> str:
        """Return the next string in the encoding of flexible versions; "" for null."""
        return str(self.take(max(self.uvarint() - 1, 0)), "utf-8", "replace")

    def skip_tags(self) -> None:
        """Skip the tagged fields at the end of a structure in a flexible version."""
        for _ in range(self.uvarint()):
            self.uvarint()  # tag
            self.skip(self.uvarint())

    def skip(self, size: int) -> None:
        """Skip `size` bytes."""
        self.take(size)

    def rest(self) -> memoryview:
        """Return a view of all unread bytes."""
        return self._data[self._position :]

    def take(self, size: int) -> memoryview:
        """Return a view of the next `size` bytes."""
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
