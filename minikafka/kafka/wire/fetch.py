"""Fetch requests and responses, versions 4 to 17 (key 1), encoded and decoded.

Consumers may send any of these versions; followers send version 12 in an incremental session (KIP-227) with the last
fetched epoch of KIP-595. From version 13 a topic is its 16-byte id (KIP-516); in earlier versions it is its name in
UTF-8. A response is a list of buffers: encoded headers, and slices of records, which are not copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import ProtocolViolation
from minikafka.base.fetch_rows import PartitionData, RequestRow
from minikafka.base.ports import Slice
from minikafka.kafka.messages.decoder import skip_tags
from minikafka.kafka.messages.steps import finished
from minikafka.kafka.records.varints import read_uvarint, uvarint
from minikafka.kafka.wire.current_leaders import CurrentLeaders
from minikafka.kafka.wire.primitives import tags

FLEXIBLE: Final = 12
FOLLOWER_VERSION: Final = 12
"""The version that minikafka's followers send."""
TOPIC_IDS_SINCE: Final = 13
"""The first version in which topics are ids."""
_REPLICA_STATE_SINCE: Final = 15
"""The first version with the replica id in a tagged field (KIP-903)."""
LEADERS_SINCE: Final = 16
"""The first version whose response names current leaders (KIP-951)."""

STEP_ROWS: Final = 256
"""Number of partitions that are encoded or decoded in one step, in at most 0.3 ms."""
_ReadTopic: TypeAlias = Callable[[bytearray, int, int], tuple[bytes, int]]
"""(buffer, position, end of the request) -> (topic, position after it)."""


class FetchRequest(NamedTuple):
    """A decoded request; the rack is UTF-8 bytes, and so are topics before version 13, in which they become ids.

    Defaults of fields that the request's version lacks: all epochs and log start offsets -1, session id 0, rack b"".
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[RequestRow]]]
    forgotten: list[tuple[bytes, list[int]]]
    rack: bytes


_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_LIMITS: Final = Struct(">iiiib")
_SESSION: Final = Struct(">ii")
_V4: Final = Struct(">iqi")
_V5: Final = Struct(">iqqi")
_V9: Final = Struct(">iiqqi")
_V12: Final = Struct(">iiqiqix")
"""A partition of a version 12 request; the pad byte is an empty section of tagged fields."""
_HEAD_V12: Final = Struct(">iiiibii")
_HEAD_V15: Final = Struct(">iiibii")
_TOPIC_ID_BYTES: Final = 16
_REPLICA_STATE: Final = 1
"""Tag of the field with the replica id."""


def decode(buf: bytearray, view: memoryview, body: int, end: int, version: int) -> FetchRequest:
    """Decode a Fetch request whose body begins after the client id.

    The bytes after `end` belong to other requests. For speed, not every read is checked against `end`: a read
    beyond `end` is detected after the last field. Raises ProtocolViolation if a field exceeds `end`.
    """
    return finished(decode_in_steps(buf, view, body, end, version))


def decode_in_steps(
    buf: bytearray, view: memoryview, body: int, end: int, version: int
) -> Generator[None, None, FetchRequest]:
    """Do what `decode` does, as a generator that yields after each topic and every `STEP_ROWS` partitions."""
    try:
        if version >= FLEXIBLE:
            return (yield from _decode_flexible(buf, view, body, end, version))
        return (yield from _decode(buf, view, body, end, version))
    except (struct.error, IndexError):
        raise ProtocolViolation("a Fetch request is shorter than its fields") from None


def _decode(
    buf: bytearray, view: memoryview, body: int, end: int, version: int
) -> Generator[None, None, FetchRequest]:
    position = body
    replica_id, max_wait, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(buf, position)
    position += 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(buf, position)
        position += 8
    (count,) = _INT32.unpack_from(buf, position)
    position += 4
    topics = []
    for _ in range(count):
        topic, position = _string(buf, position, end)
        partitions: list[RequestRow] = []
        position = yield from _partitions(view, buf, position, end, version, partitions)
        topics.append((topic, partitions))
        yield
    forgotten: list[tuple[bytes, list[int]]] = []
    if version >= 7:
        forgotten, position = yield from _forgotten(buf, view, position, end)
    rack = b""
    if version >= 11:
        start = position + 2
        position = start + max(_INT16.unpack_from(buf, position)[0], 0)
        rack = bytes(buf[start : _within(position, start, end)])
    _within(position, body, end)
    return FetchRequest(
        replica_id,
        max_wait,
        min_bytes,
        max_bytes,
        isolation == 1,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
    )


def _forgotten(
    buf: bytearray, view: memoryview, position: int, end: int
) -> Generator[None, None, tuple[list[tuple[bytes, list[int]]], int]]:
    """Return the forgotten topics with their partitions, and the position after them."""
    (count,) = _INT32.unpack_from(buf, position)
    position += 4
    forgotten = []
    for _ in range(count):
        topic, position = _string(buf, position, end)
        (size,) = _INT32.unpack_from(buf, position)
        stop = _within(position + 4 + 4 * size, position + 4, end)
        forgotten.append((topic, (yield from _numbers(view[position + 4 : stop]))))
        position = stop
    return forgotten, position


def _numbers(data: memoryview) -> Generator[None, None, list[int]]:
    found: list[int] = []
    for start in range(0, len(data), 4 * STEP_ROWS):
        found += [row[0] for row in _INT32.iter_unpack(data[start : start + 4 * STEP_ROWS])]
        yield
    return found


def _partitions(
    view: memoryview,
    buf: bytearray,
    position: int,
    end: int,
    version: int,
    found: list[RequestRow],
) -> Generator[None, None, int]:
    """Append the partitions of one topic to `found`; return the position after them."""
    (count,) = _INT32.unpack_from(buf, position)
    position += 4
    layout = _V9 if version >= 9 else _V5 if version >= 5 else _V4
    stop = _within(position + layout.size * count, position, end)
    while position < stop:
        following = min(position + STEP_ROWS * layout.size, stop)
        rows = layout.iter_unpack(view[position:following])
        if version >= 9:
            found += [(p, epoch, offset, -1, start, n) for p, epoch, offset, start, n in rows]
        elif version >= 5:
            found += [(p, -1, offset, -1, start, n) for p, offset, start, n in rows]
        else:
            found += [(p, -1, offset, -1, -1, n) for p, offset, n in rows]
        position = following
        if position < stop:
            yield
    return stop


def _decode_flexible(
    buf: bytearray, view: memoryview, body: int, end: int, version: int
) -> Generator[None, None, FetchRequest]:
    read_topic = _topic_id if version >= TOPIC_IDS_SINCE else _compact_string
    position = body
    position = position + 1 if buf[position] == 0 else skip_tags(buf, position)
    head, position = _flexible_head(buf, position, version)
    replica_id, max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch = head
    count, position = read_uvarint(buf, position)
    topics = []
    for _ in range(count - 1):
        topic, position = read_topic(buf, position, end)
        partitions: list[RequestRow] = []
        position = yield from _flexible_partitions(buf, view, position, end, partitions)
        position = position + 1 if buf[position] == 0 else skip_tags(buf, position)
        topics.append((topic, partitions))
        yield
    forgotten, position = yield from _flexible_forgotten(buf, view, position, end, read_topic)
    size, start = read_uvarint(buf, position)
    position = _within(start + max(size - 1, 0), start, end)
    rack = bytes(buf[start:position])
    _within(skip_tags(buf, position), body, end)
    if version >= _REPLICA_STATE_SINCE and buf[position]:
        replica_id = _replica_id(buf, position)
    return FetchRequest(
        replica_id,
        max_wait,
        min_bytes,
        max_bytes,
        isolation == 1,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
    )


def _flexible_head(buf: bytearray, position: int, version: int) -> tuple[tuple[int, ...], int]:
    """Return the fields before the topics, the replica id first, and the position after them."""
    if version >= _REPLICA_STATE_SINCE:
        return (-1, *_HEAD_V15.unpack_from(buf, position)), position + _HEAD_V15.size
    return _HEAD_V12.unpack_from(buf, position), position + _HEAD_V12.size


def _replica_id(buf: bytearray, position: int) -> int:
    """Return the replica id in a request's section of tagged fields, -1 if the section lacks it."""
    count, position = read_uvarint(buf, position)
    for _ in range(count):
        tag, position = read_uvarint(buf, position)
        size, position = read_uvarint(buf, position)
        if tag == _REPLICA_STATE:
            return int(_INT32.unpack_from(buf, position)[0])
        position += size
    return -1


def _flexible_forgotten(
    buf: bytearray, view: memoryview, position: int, end: int, read_topic: _ReadTopic
) -> Generator[None, None, tuple[list[tuple[bytes, list[int]]], int]]:
    count, position = read_uvarint(buf, position)
    forgotten = []
    for _ in range(count - 1):
        topic, position = read_topic(buf, position, end)
        size, position = read_uvarint(buf, position)
        stop = _within(position + 4 * max(size - 1, 0), position, end)
        forgotten.append((topic, (yield from _numbers(view[position:stop]))))
        position = skip_tags(buf, stop)
    return forgotten, position


def _flexible_partitions(
    buf: bytearray, view: memoryview, position: int, end: int, found: list[RequestRow]
) -> Generator[None, None, int]:
    """Append the partitions of one topic to `found`; return the position after them."""
    count, position = read_uvarint(buf, position)
    count = max(count - 1, 0)
    size = _V12.size
    stop = _within(position + size * count, position, end)
    has_tags = any(buf[position + size - 1 : stop : size])
    while position < stop and not has_tags:
        following = min(position + STEP_ROWS * size, stop)
        found += _V12.iter_unpack(view[position:following])
        position = following
        if position < stop:
            yield
    for number in range(len(found), count):
        found.append(_V12.unpack_from(buf, position))
        position = skip_tags(buf, position + size - 1)
        if not number % STEP_ROWS:
            yield
    return position


def _within(position: int, start: int, end: int) -> int:
    if position > end or position < start:
        raise ProtocolViolation("a field exceeds the end of its request")
    return position


def _string(buf: bytearray, position: int, end: int) -> tuple[bytes, int]:
    (size,) = _INT16.unpack_from(buf, position)
    stop = _within(position + 2 + size, position + 2, end)
    return bytes(buf[position + 2 : stop]), stop


def _compact_string(buf: bytearray, position: int, end: int) -> tuple[bytes, int]:
    size = buf[position]
    if size < 128:
        position += 1
    else:
        size, position = read_uvarint(buf, position)
    stop = position + size - 1
    if size == 0 or stop > end:
        raise ProtocolViolation("a topic name is null or exceeds the end of its request")
    return bytes(buf[position:stop]), stop


def _topic_id(buf: bytearray, position: int, end: int) -> tuple[bytes, int]:
    stop = position + _TOPIC_ID_BYTES
    if stop > end:
        raise ProtocolViolation("a topic id exceeds the end of its request")
    return bytes(buf[position:stop]), stop


_RESPONSE_V4: Final = Struct(">ihqqi")
_RESPONSE_V5: Final = Struct(">ihqqqi")
_TAIL_V11: Final = Struct(">ii")
_ABORTED: Final = Struct(">qq")
_RESPONSE_V12: Final = Struct(">ihqqqBi")
"""A partition of a version 12 response whose array of aborted transactions is null or empty (one byte)."""
_HEAD_OF_ROW_V12: Final = Struct(">ihqqq")
_ABORTED_V12: Final = Struct(">qqB")
_PREFIX: Final = Struct(">iiBihi")
_PREFIX_V7: Final = Struct(">iiihii")
_PREFIX_V4: Final = Struct(">iiii")
_DIVERGING: Final = Struct(">iqB")
_DIVERGING_EPOCH: Final = 0
_CURRENT_LEADER: Final = 1
"""Tags of the fields of a partition in a response."""


def encode_response(
    correlation: int,
    version: int,
    error: int,
    session_id: int,
    topics: Sequence[tuple[bytes, Sequence[PartitionData]]],
    leaders: CurrentLeaders | None = None,
) -> list[Slice]:
    """Return the whole response as a list of buffers, length prefix included.

    `leaders`: the current leaders to name, from version 16 on.
    """
    steps = encode_response_in_steps(correlation, version, error, session_id, topics, leaders)
    return finished(steps)


def set_throttle(head: bytearray, version: int, throttle_ms: int) -> None:
    """Set the throttle time in the first buffer of a response."""
    _INT32.pack_into(head, 9 if version >= FLEXIBLE else 8, throttle_ms)


def encode_response_in_steps(
    correlation: int,
    version: int,
    error: int,
    session_id: int,
    topics: Sequence[tuple[bytes, Sequence[PartitionData]]],
    leaders: CurrentLeaders | None = None,
) -> Generator[None, None, list[Slice]]:
    """Do what `encode_response` does, as a generator that yields after every `STEP_ROWS` partitions."""
    if version >= FLEXIBLE:
        head = bytearray(_PREFIX.pack(0, correlation, 0, 0, error, session_id))
        return (yield from _encode_flexible(head, version >= TOPIC_IDS_SINCE, topics, leaders))
    if version >= 7:
        head = bytearray(_PREFIX_V7.pack(0, correlation, 0, error, session_id, len(topics)))
    else:
        head = bytearray(_PREFIX_V4.pack(0, correlation, 0, len(topics)))
    out: list[Slice] = []
    total, rows, current = 0, 0, head
    for topic, partitions in topics:
        current += _INT16.pack(len(topic)) + topic + _INT32.pack(len(partitions))
        for data in partitions:
            rows += 1
            if not rows % STEP_ROWS:
                yield
            current += _partition_header(data, version)
            slices, size = data.slices, data.size
            if size:
                total += len(current) + size
                out.append(current)
                out.extend(slices)
                current = bytearray()
    if current:
        out.append(current)
        total += len(current)
    _INT32.pack_into(head, 0, total - 4)
    return out


def _partition_header(data: PartitionData, version: int) -> bytes:
    partition, error, hw, lso, start, _, size, _, aborted, preferred = data
    count = -1 if aborted is None else len(aborted)
    if version >= 5:
        head = _RESPONSE_V5.pack(partition, error, hw, lso, start, count)
    else:
        head = _RESPONSE_V4.pack(partition, error, hw, lso, count)
    if aborted:
        head += b"".join([_ABORTED.pack(*transaction) for transaction in aborted])
    return head + (_TAIL_V11.pack(preferred, size) if version >= 11 else _INT32.pack(size))


def _encode_flexible(
    head: bytearray,
    has_ids: bool,
    topics: Sequence[tuple[bytes, Sequence[PartitionData]]],
    leaders: CurrentLeaders | None,
) -> Generator[None, None, list[Slice]]:
    current = head
    current += uvarint(len(topics) + 1)
    out: list[Slice] = []
    total = rows = 0
    for topic, partitions in topics:
        current += topic if has_ids else uvarint(len(topic) + 1) + topic
        current += uvarint(len(partitions) + 1)
        for row in partitions:
            current += _flexible_header(row)
            slices, size, diverging = row.slices, row.size, row.diverging
            current += uvarint(size + 1)
            if size:
                total += len(current) + size
                out.append(current)
                out.extend(slices)
                current = bytearray()
            rows += 1
            if not rows % STEP_ROWS:
                yield
            if diverging is None and leaders is None:
                current += b"\0"
            else:
                current += _row_tags(topic, row, leaders)
        current += b"\0"
    current += b"\0" if leaders is None else leaders.node_endpoints()
    out.append(current)
    _INT32.pack_into(head, 0, total + len(current) - 4)
    return out


def _row_tags(topic: bytes, row: PartitionData, leaders: CurrentLeaders | None) -> bytes:
    """Return the tagged fields of a partition: its diverging epoch and its current leader, if there are any."""
    fields = []
    if row.diverging is not None:
        fields.append((_DIVERGING_EPOCH, _DIVERGING.pack(*row.diverging, 0)))
    if leaders is not None and (leader := leaders.of(topic, row.partition)):
        fields.append((_CURRENT_LEADER, leader))
    return tags(fields)


def _flexible_header(data: PartitionData) -> bytes:
    partition, error, hw, lso, start, _, _, _, aborted, preferred = data
    if not aborted:
        count = 0 if aborted is None else 1
        return _RESPONSE_V12.pack(partition, error, hw, lso, start, count, preferred)
    head = _HEAD_OF_ROW_V12.pack(partition, error, hw, lso, start) + uvarint(len(aborted) + 1)
    head += b"".join([_ABORTED_V12.pack(*pair, 0) for pair in aborted])
    return head + _INT32.pack(preferred)


_REQUEST: Final = Struct(">hhih")
_ROW: Final = Struct(">iiqiqiB")


def encode_request(
    correlation: int,
    client_id: bytes,
    replica_id: int,
    limits: tuple[int, int, int],
    session: tuple[int, int],
    topics: Sequence[tuple[bytes, Sequence[RequestRow]]],
    forgotten: Sequence[tuple[bytes, Sequence[int]]] = (),
) -> bytes:
    """Return a follower's Fetch v12, length prefix included. `limits` is (max wait ms, min bytes, max bytes)."""
    out = bytearray(_REQUEST.pack(1, FOLLOWER_VERSION, correlation, len(client_id)))
    out += client_id + b"\0" + _LIMITS.pack(replica_id, *limits, 0) + _SESSION.pack(*session)
    out += uvarint(len(topics) + 1)
    for topic, partitions in topics:
        out += uvarint(len(topic) + 1) + topic + uvarint(len(partitions) + 1)
        out += b"".join([_ROW.pack(*row, 0) for row in partitions]) + b"\0"
    out += uvarint(len(forgotten) + 1)
    for topic, numbers in forgotten:
        out += uvarint(len(topic) + 1) + topic + uvarint(len(numbers) + 1)
        out += b"".join([_INT32.pack(number) for number in numbers]) + b"\0"
    out += b"\x01\0"
    return _INT32.pack(len(out)) + bytes(out)


ResponsePartition: TypeAlias = tuple[bytes, int, int, int, int, int, int, "tuple[int, int] | None"]
"""Fields: topic, partition, error, high watermark, log start offset, records start, records end, diverging."""


class ResponseHead(NamedTuple):
    """The fields of a response before its partitions, which begin at `position`."""

    error: int
    session_id: int
    topic_count: int
    position: int


_HEAD: Final = Struct(">ihi")


def decode_response_head(buf: bytearray, body: int) -> ResponseHead:
    """Decode the fields of a v12 response before its partitions. `body`: the position after the correlation id."""
    position = body + 1 if buf[body] == 0 else skip_tags(buf, body)
    _, error, session_id = _HEAD.unpack_from(buf, position)
    count, position = read_uvarint(buf, position + 10)
    return ResponseHead(error, session_id, max(count - 1, 0), position)


def response_partitions(
    buf: bytearray, head: ResponseHead, end: int
) -> Iterator[ResponsePartition]:
    """Yield the partitions of a v12 response, which ends at `end` in the buffer. Records are not copied."""
    position = head.position
    for _ in range(head.topic_count):
        topic, position = _compact_string(buf, position, end)
        count, position = read_uvarint(buf, position)
        for _ in range(count - 1):
            partition, error, hw, _, start, aborted, _ = _RESPONSE_V12.unpack_from(buf, position)
            if aborted > 1:
                raise ProtocolViolation("a response to a follower has aborted transactions")
            size, position = read_uvarint(buf, position + _RESPONSE_V12.size)
            records = position
            position += max(size - 1, 0)
            if position >= end:
                raise ProtocolViolation("a Fetch response is shorter than its fields")
            diverging = None
            if buf[position]:
                diverging = _diverging(buf, position)
                position = skip_tags(buf, position)
            else:
                position += 1
            yield topic, partition, error, hw, start, records, records + max(size - 1, 0), diverging
        position = position + 1 if buf[position] == 0 else skip_tags(buf, position)


def _diverging(buf: bytearray, position: int) -> tuple[int, int] | None:
    count, position = read_uvarint(buf, position)
    for _ in range(count):
        tag, position = read_uvarint(buf, position)
        size, position = read_uvarint(buf, position)
        if tag == 0:
            epoch, end_offset, _ = _DIVERGING.unpack_from(buf, position)
            return epoch, end_offset
        position += size
    return None
