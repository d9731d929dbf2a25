"""Produce requests and responses, versions 3 to 11 (key 0), decoded without copying records.

The decoder returns the positions of the record batches in the buffer and does not read the batches. The most
frequent response, for one partition, is made by a function that `single_answer` prepares once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import ProtocolViolation
from minikafka.kafka.messages.decoder import skip_tags
from minikafka.kafka.records.varints import read_uvarint, uvarint
from minikafka.kafka.wire.current_leaders import CurrentLeaders
from minikafka.kafka.wire.primitives import (
    NO_TAGS,
    array,
    compact_array,
    compact_string,
    string,
    tags,
)

FLEXIBLE: Final = 9
LEADERS_SINCE: Final = 10
"""The first version whose response names current leaders (KIP-951)."""
NULL_RECORDS: Final = -1
ELEMENTS_MAX: Final = 10_000
"""Maximum number of topics and partitions, counted together, in one request."""
STEP_ELEMENTS: Final = 256
"""Number of topics and partitions that are decoded in one step, in at most 0.2 ms."""
_ACKS_TIMEOUT: Final = Struct(">hi")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ii")


class PartitionRecords(NamedTuple):
    """Start and end of one partition's records in the receive buffer; both are NULL_RECORDS for a null field."""

    partition: int
    start: int
    end: int


class ProduceRequest(NamedTuple):
    """A decoded request; topics are UTF-8 bytes.

    `head_end` is the position after the partition number if the request has a single partition, else 0.
    """

    transactional_id: bytes | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[PartitionRecords]]]
    head_end: int


RecordTexts: TypeAlias = tuple[str, Sequence[tuple[int, str]]]
"""The message about a refused batch, and (index in the batch, message) of each bad record (KIP-467)."""
NO_TEXTS: Final[RecordTexts] = "", ()


class PartitionAnswer(NamedTuple):
    """One partition of a response. `texts`: the bad records of a refused batch, from version 8 on."""

    partition: int
    error: int
    base_offset: int = -1
    append_time: int = -1
    log_start_offset: int = -1
    texts: RecordTexts = NO_TEXTS


SingleAnswer: TypeAlias = Callable[[int, int, int, int], bytes]
"""(correlation, error, base offset, log start offset) -> the whole response."""
Refuse: TypeAlias = Callable[[int, int], bytes]
"""(correlation, error) -> the whole response of a refused request for one partition."""


def decode_in_steps(
    buf: bytearray, body: int, end: int, version: int
) -> Iterator[ProduceRequest | None]:
    """Decode a Produce request whose body begins after the client id.

    Yield None after every `STEP_ELEMENTS` topics and partitions, and finally the request. Raises
    ProtocolViolation if a field exceeds the frame, or for more than `ELEMENTS_MAX` topics and partitions.
    """
    decode = _decode_flexible if version >= FLEXIBLE else _decode
    try:
        for elements, request in enumerate(decode(buf, body, end), start=1):
            if request is not None:
                yield request
            elif elements > ELEMENTS_MAX:
                raise ProtocolViolation(
                    f"a Produce request must have at most {ELEMENTS_MAX} topics and partitions"
                )
            elif not elements % STEP_ELEMENTS:
                yield None
    except (struct.error, IndexError):
        raise ProtocolViolation("a Produce request is shorter than its fields") from None


def _decode(buf: bytearray, position: int, end: int) -> Iterator[ProduceRequest | None]:
    """Decode a request below version 9: yield None after each partition and each topic, and finally the request."""
    transactional_id, position = _string(buf, position, end)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buf, position)
    (topic_count,) = _INT32.unpack_from(buf, position + 6)
    position += 10
    topics = []
    head_end = 0
    for _ in range(topic_count):
        topic, position = _string(buf, position, end)
        (count,) = _INT32.unpack_from(buf, position)
        position += 4
        partitions: list[PartitionRecords] = []
        topics.append((topic or b"", partitions))
        for _ in range(count):
            partition, size = _PARTITION.unpack_from(buf, position)
            head_end = position + 4
            position += 8
            partitions.append(_records(partition, position, size))
            position = _within(position + max(size, 0), end)
            yield None
        yield None
    yield _finish(transactional_id, acks, timeout_ms, topics, head_end, position, end)


def _decode_flexible(buf: bytearray, position: int, end: int) -> Iterator[ProduceRequest | None]:
    position = skip_tags(buf, position)
    transactional_id, position = _compact_string(buf, position, end)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buf, position)
    topic_count, position = _count(buf, position + 6, end)
    topics = []
    head_end = 0
    for _ in range(topic_count):
        topic, position = _compact_string(buf, position, end)
        count, position = _count(buf, position, end)
        partitions: list[PartitionRecords] = []
        topics.append((topic or b"", partitions))
        for _ in range(count):
            (partition,) = _INT32.unpack_from(buf, position)
            head_end = position + 4
            size, position = read_uvarint(buf, head_end)
            partitions.append(_records(partition, position, size - 1))
            position = skip_tags(buf, _within(position + max(size - 1, 0), end))
            yield None
        position = skip_tags(buf, position)
        yield None
    position = skip_tags(buf, position)
    yield _finish(transactional_id, acks, timeout_ms, topics, head_end, position, end)


def _records(partition: int, position: int, size: int) -> PartitionRecords:
    if size < 0:
        return PartitionRecords(partition, NULL_RECORDS, NULL_RECORDS)
    return PartitionRecords(partition, position, position + size)


def _finish(
    transactional_id: bytes | None,
    acks: int,
    timeout_ms: int,
    topics: list[tuple[bytes, list[PartitionRecords]]],
    head_end: int,
    position: int,
    end: int,
) -> ProduceRequest:
    _within(position, end)
    single = len(topics) == 1 and len(topics[0][1]) == 1
    return ProduceRequest(transactional_id, acks, timeout_ms, topics, head_end if single else 0)


def single_records(buf: bytearray, head_end: int, end: int, version: int) -> int:
    """Return the position of the records in a request for one partition, without decoding the head.

    The head ends at `head_end`, after the partition number. The caller has already decoded an identical head.
    Return -1 if the rest of the frame is not exactly one records field (before empty tagged fields). The caller must
    then decode the request.
    """
    if version < FLEXIBLE:
        if head_end + 4 > end:
            return -1
        size: int = _INT32.unpack_from(buf, head_end)[0]
        return head_end + 4 if size > 0 and head_end + 4 + size == end else -1
    if head_end + 5 > end:
        return -1
    size, start = read_uvarint(buf, head_end)
    if size > 1 and start + size + 2 == end and not (buf[end - 3] or buf[end - 2] or buf[end - 1]):
        return start
    return -1


def tail_bytes(version: int) -> int:
    """Return the number of bytes after the records in a request for one partition.

    In version 9, these are three empty sections of tagged fields. Earlier versions have no bytes there.
    """
    return 3 if version >= FLEXIBLE else 0


def _within(position: int, end: int) -> int:
    if position > end:
        raise ProtocolViolation("a field exceeds the end of its request")
    return position


def _count(buf: bytearray, position: int, end: int) -> tuple[int, int]:
    count, position = read_uvarint(buf, position)
    return max(count - 1, 0), _within(position, end)


def _string(buf: bytearray, position: int, end: int) -> tuple[bytes | None, int]:
    (size,) = _INT16.unpack_from(buf, position)
    position += 2
    if size < 0:
        return None, position
    stop = _within(position + size, end)
    return bytes(buf[position:stop]), stop


def _compact_string(buf: bytearray, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_uvarint(buf, position)
    if size == 0:
        return None, position
    stop = _within(position + size - 1, end)
    return bytes(buf[position:stop]), stop


def single_answer(topic: bytes, partition: int, version: int, refuse: Refuse) -> SingleAnswer:
    """Return a function that encodes a whole response with only this partition.

    The arguments of the returned function are correlation id, error code, base offset and log start offset. The log
    append time in the response is -1. `refuse` encodes the response if there is an error code.
    """
    flexible = version >= FLEXIBLE
    if flexible:
        head = b"\0\x02" + uvarint(len(topic) + 1) + topic + b"\x02" + _INT32.pack(partition)
        tail = b"\x01\0\0\0" + _INT32.pack(0) + b"\0"
    else:
        head = (
            _INT32.pack(1)
            + _INT16.pack(len(topic))
            + topic
            + _INT32.pack(1)
            + _INT32.pack(partition)
        )
        tail = (_INT32.pack(0) + _INT16.pack(-1) if version >= 8 else b"") + _INT32.pack(0)
    with_start = version >= 5
    layout = Struct(f">ii{len(head)}shqq{'q' if with_start else ''}{len(tail)}s")
    pack, size = layout.pack, layout.size - 4

    def answer(correlation: int, error: int, base_offset: int, log_start_offset: int) -> bytes:
        if error:
            return refuse(correlation, error)
        return pack(size, correlation, head, error, base_offset, -1, log_start_offset, tail)

    def answer_without_start(
        correlation: int, error: int, base_offset: int, log_start_offset: int
    ) -> bytes:
        if error:
            return refuse(correlation, error)
        return pack(size, correlation, head, error, base_offset, -1, tail)

    return answer if with_start else answer_without_start


def encode_response(
    correlation: int,
    version: int,
    topics: Sequence[tuple[bytes, Sequence[PartitionAnswer]]],
    leaders: CurrentLeaders | None = None,
) -> bytes:
    """Return the whole response for any number of partitions, length prefix included.

    `leaders`: the current leaders to name, from version 10 on.
    """
    flexible = version >= FLEXIBLE
    out = bytearray(_INT32.pack(correlation))
    out += b"\0" + uvarint(len(topics) + 1) if flexible else _INT32.pack(len(topics))
    for topic, partitions in topics:
        if flexible:
            out += uvarint(len(topic) + 1) + topic + uvarint(len(partitions) + 1)
        else:
            out += _INT16.pack(len(topic)) + topic + _INT32.pack(len(partitions))
        for answer in partitions:
            out += _encode_partition(answer, version)
            if flexible:
                out += _leader_tags(topic, answer, leaders)
        if flexible:
            out += NO_TAGS
    out += _INT32.pack(0)
    if flexible:
        out += NO_TAGS if leaders is None else leaders.node_endpoints()
    return _INT32.pack(len(out)) + bytes(out)


_NOT_THROTTLED: Final = _INT32.pack(0) + NO_TAGS


def with_throttle(frame: bytes, version: int, throttle_ms: int) -> bytes:
    """Return a response with this throttle time. A response that names leaders keeps the time 0.

    It would have to be decoded: the leaders' addresses follow the time. No address ends with five zero bytes.
    """
    time = _INT32.pack(throttle_ms)
    if version < FLEXIBLE:
        return frame[: -len(time)] + time
    if not frame.endswith(_NOT_THROTTLED):
        return frame
    return frame[: -len(_NOT_THROTTLED)] + time + NO_TAGS


_ANSWER: Final = Struct(">ihqq")
_LOG_START: Final = Struct(">q")
_CURRENT_LEADER: Final = 0
"""Tag of a partition's current leader."""


def _encode_partition(answer: PartitionAnswer, version: int) -> bytes:
    """Return the fields of one partition, without its tagged fields."""
    partition, error, base_offset, append_time, log_start_offset, texts = answer
    out = _ANSWER.pack(partition, error, base_offset, append_time)
    if version >= 5:
        out += _LOG_START.pack(log_start_offset)
    if version >= FLEXIBLE:
        return out + _encode_texts(texts, compact_array, compact_string, NO_TAGS)
    return out + _encode_texts(texts, array, string, b"") if version >= 8 else out


def _encode_texts(
    texts: RecordTexts,
    length: Callable[[int], bytes],
    text: Callable[[str | None], bytes],
    end: bytes,
) -> bytes:
    """Return the bad records and the message. `end`: the end of each record's structure."""
    message, errors = texts
    rows = [_INT32.pack(index) + text(found) + end for index, found in errors]
    return length(len(rows)) + b"".join(rows) + text(message or None)


def _leader_tags(topic: bytes, answer: PartitionAnswer, leaders: CurrentLeaders | None) -> bytes:
    leader = b"" if leaders is None else leaders.of(topic, answer.partition)
    return tags([(_CURRENT_LEADER, leader)]) if leader else NO_TAGS
