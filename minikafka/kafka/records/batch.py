"""RecordBatch v2 (KIP-98) as a view over a buffer: check, stamp in place, iterate, build.

Invariant: an append does not change the records of a batch. It writes only base offset and leader
epoch, which the CRC does not cover, and in topics with LogAppendTime the timestamp and a new CRC. A
header is the tuple that `HEADER` unpacks (`header.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch, ErrorCode, OffsetGap
from minikafka.base.ports import Buffer
from minikafka.kafka.records.codecs import compress, crc32c, decompress
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    CONTROL,
    COUNT,
    CRC,
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    OVERHEAD,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.kafka.records.transactions import ABORT, COMMIT, Marker, marker_type
from minikafka.kafka.records.varints import read_varint, varint

UNDATED: Final = -(2**63) - 1
"""Timestamp of a record to produce for which the caller gives no time.

It does not fit into an int64, so it differs from every timestamp in a log.
"""
DECOMPRESSED_LIMIT: Final = 256 * 1024 * 1024
"""Maximum decompressed size of the records of one batch that this package reads."""

_LAST_CODEC: Final = 4
_LEAST_RECORD_BYTES: Final = 7
"""Minimum size of a record: length, attributes, two deltas, key length, value length, header count."""
_COMPRESSION_MAX: Final = 1024
"""Upper bound of any codec's compression ratio. A record count that needs a higher ratio is invalid."""
stamp: Final = Struct(">qii").pack_into
"""stamp(buf, start, base_offset, batch_length, leader_epoch): write the leader's fields into a batch in one call.

`batch_length` is written unchanged, because it lies between the other two fields.
"""
_END_TRANSACTION: Final = Struct(">hi")
"""Fields in the value of a transaction marker: version, coordinator epoch."""
_MARKER_RECORD: Final = Struct(">5shhBhiB")
"""The record of a marker: constants, version and type in the key, a constant, version and coordinator epoch in the
value, a constant."""
_MARKER_CONSTANTS: Final = (b"\x20\0\0\0\x08", 12, 0)
"""Length of the record, attributes, deltas of timestamp and offset, size of the key; size of the value; no headers."""
_MARKER_BYTES: Final = HEADER_BYTES + _MARKER_RECORD.size
_UINT32: Final = Struct(">I")
_APPEND_TIME: Final = Struct(">h")
_INT64: Final = Struct(">q")
_LONG_MIN: Final = -(2**63)
_unpack_header: Final = HEADER.unpack_from

_CORRUPT: Final = int(ErrorCode.CORRUPT_MESSAGE)
_INVALID_RECORD: Final = int(ErrorCode.INVALID_RECORD)
_INVALID_TIMESTAMP: Final = int(ErrorCode.INVALID_TIMESTAMP)
_UNSUPPORTED_CODEC: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_MAGIC_AT: Final = 16
_MAX_TIMESTAMP_AT: Final = 35
_LEAST_LEGACY_BYTES: Final = 14
"""Kafka's minimum message length for any magic."""


class Record(NamedTuple):
    """One record. Offset and timestamp (Unix ms) are absolute. Offset -1 means unknown.

    The client replaces the timestamp UNDATED by the current time, and `build` by NO_TIMESTAMP.
    """

    offset: int = -1
    timestamp: int = UNDATED
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def check_produced(field: memoryview, header: Header, internal: bool) -> int:
    """Return the error code for a records field that a leader is to append, 0 if the field is valid.

    `header` is `HEADER` unpacked from the field. The rules are Kafka's (ProduceRequest, UnifiedLog, LogValidator).
    The CRC is checked last, because it costs most. `internal`: one of the broker's own coordinators wrote the batch.
    Such a batch may be a control batch, and needs no sequence number.
    """
    _, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if (
        magic != 2
        or header[BASE_OFFSET] != 0
        or length != len(field) - OVERHEAD
        or length < HEADER_BYTES - OVERHEAD
        or (
            not 0 <= attributes <= _LAST_CODEC
            and not (producer_id >= 0 and 0 <= attributes ^ TRANSACTIONAL <= _LAST_CODEC)
        )
        or count <= 0
        or count != last_delta + 1
        or (producer_id >= 0 and sequence < 0)
        or count * _LEAST_RECORD_BYTES > length
    ):
        error = _refusal(field, header, internal)
        if error:
            return error
    return 0 if crc32c(field[CRC_START:]) == crc else _CORRUPT


def refusal_of_fragment(field: memoryview) -> int:
    """Return the error code for a records field that is null, empty or too short for a batch header.

    As in Kafka, the code is CORRUPT_MESSAGE for garbage. It is INVALID_RECORD, which clients do not retry,
    for a field without a whole message or with magic 0 or 1.
    """
    if len(field) < OVERHEAD:
        return _INVALID_RECORD
    length = int.from_bytes(field[8:OVERHEAD], "big", signed=True)
    if len(field) > _MAGIC_AT and length >= _LEAST_LEGACY_BYTES:
        whole = OVERHEAD + length <= len(field)
        return _refusal_by_magic(field[_MAGIC_AT], whole) or _CORRUPT
    return _CORRUPT if length < _LEAST_LEGACY_BYTES else _INVALID_RECORD


def _refusal_by_magic(magic: int, is_whole: bool) -> int:
    if not 0 <= magic <= 2:
        return _CORRUPT
    return 0 if magic == 2 and is_whole else _INVALID_RECORD


def end_of_batch(view: memoryview, start: int, end: int) -> int:
    """Return the end of the batch in the records field [start, end), without the bytes after it that are ignored.

    As in Kafka, these are bytes that are no whole batch and could become one if more bytes followed. Return `end` if
    there are other bytes after the batch, or no whole batch at all.
    """
    stop = start + OVERHEAD + int.from_bytes(view[start + 8 : start + OVERHEAD], signed=True)
    is_whole = start + HEADER_BYTES <= stop < end
    return stop if is_whole and not _refusal_of_rest(view[stop:end]) else end


def _refusal_of_rest(rest: memoryview) -> int:
    """Return the error code for the bytes after a batch, 0 if they are ignored."""
    if len(rest) < OVERHEAD:
        return 0
    length = int.from_bytes(rest[8:OVERHEAD], signed=True)
    if length < _LEAST_LEGACY_BYTES:
        return _CORRUPT
    if len(rest) <= _MAGIC_AT:
        return 0
    if not 0 <= rest[_MAGIC_AT] <= 2:
        return _CORRUPT
    return _INVALID_RECORD if OVERHEAD + length <= len(rest) else 0


def _refusal(field: memoryview, header: Header, internal: bool) -> int:
    """Return the error code for a header that is not of the usual form, 0 if the header is valid."""
    size = len(field)
    length, attributes, producer_id = header[BATCH_LENGTH], header[ATTRIBUTES], header[PRODUCER_ID]
    if length < _LEAST_LEGACY_BYTES:
        return _CORRUPT
    error = _refusal_by_magic(header[MAGIC], length + OVERHEAD <= size)
    if error:
        return error
    if length < HEADER_BYTES - OVERHEAD:
        return _CORRUPT
    if attributes & LOG_APPEND_TIME:
        return _INVALID_TIMESTAMP
    if attributes & CODEC_MASK > _LAST_CODEC:
        return _UNSUPPORTED_CODEC
    count = header[COUNT]
    if length + OVERHEAD < size:
        return _refusal_of_rest(field[length + OVERHEAD :]) or _INVALID_RECORD
    refused = (
        header[BASE_OFFSET] != 0
        or (attributes & CONTROL and not internal)
        or count <= 0
        or count != header[LAST_OFFSET_DELTA] + 1
        or (producer_id >= 0 and header[BASE_SEQUENCE] < 0 and not internal)
        or (producer_id < 0 and attributes & TRANSACTIONAL)
        or count * _LEAST_RECORD_BYTES
        > length * (_COMPRESSION_MAX if attributes & CODEC_MASK else 1)
    )
    return _INVALID_RECORD if refused else 0


def valid_run(
    buf: Buffer, view: memoryview, start: int, end: int, offset: int, accept_gaps: bool
) -> tuple[list[Header], int, int]:
    """Return the headers of the whole, valid batches from `start` on, then the end position and the end offset.

    The end position is the position after the last of these batches. The end offset is the offset after its last
    record. A batch is valid if it has magic 2 and a correct CRC, lies within [start, end), has no negative last offset
    delta, and has the expected base offset: `offset` for the first batch (the CRC does not cover the base
    offset). With `accept_gaps` the base offset may also be higher than expected, as in a compacted log.
    """
    headers: list[Header] = []
    at = start
    while end - at >= HEADER_BYTES:
        header = _unpack_header(buf, at)
        base, length, _, magic, crc, _, last_delta, _, _, _, _, _, _ = header
        stop = at + OVERHEAD + length
        if (
            stop > end
            or length < HEADER_BYTES - OVERHEAD
            or magic != 2
            or last_delta < 0
            or (base != offset and (base < offset or not accept_gaps))
            or crc32c(view[at + CRC_START : stop]) != crc
        ):
            break
        headers.append(header)
        offset = base + last_delta + 1
        at = stop
    return headers, at, offset


def has_gap(headers: Sequence[Header], expected: int) -> bool:
    """Return True if offsets are missing between `expected` and the first batch, or between two batches."""
    for header in headers:
        if header[BASE_OFFSET] != expected:
            return True
        expected = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    return False


def whole_batches(data: bytes | memoryview, limit: int) -> tuple[int, int]:
    """Return (size, next offset) of the whole batches that lie in the first `limit` bytes of `data`.

    The next offset is the offset after the last of these batches; -1 if there is no whole batch.
    """
    at, next_offset = 0, -1
    limit = min(limit, len(data))
    while limit - at >= HEADER_BYTES:
        header = _unpack_header(data, at)
        stop = at + OVERHEAD + header[BATCH_LENGTH]
        if stop > limit or stop - at < HEADER_BYTES:
            break
        next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        at = stop
    return at, next_offset


def base_offset_below(buf: Buffer, start: int, end: int, offset: int) -> int:
    """Return the base offset of the batch at `start` if it begins below `offset` and holds `offset`, else `offset`.

    The batch may be invalid.
    """
    if end - start >= HEADER_BYTES:
        header = _unpack_header(buf, start)
        if 0 <= header[BASE_OFFSET] < offset <= header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]:
            return int(header[BASE_OFFSET])
    return offset


def unsound_error(buf: Buffer, view: memoryview, at: int, end: int, expected: int) -> CorruptBatch:
    """Return the exception for the batch at position `at`, which `valid_run` refused.

    `expected`: the base offset that the batch must have.
    """
    reason = _damage(buf, view, at, end)
    if reason:
        return CorruptBatch(f"the batch at offset {expected} {reason}")
    header = _unpack_header(buf, at)
    first, last = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
    if first > expected:
        return OffsetGap(f"offsets {expected} to {first - 1} are missing", expected, first)
    return CorruptBatch(f"the batch of offsets {first} to {last} begins below offset {expected}")


def _damage(buf: Buffer, view: memoryview, at: int, end: int) -> str:
    """Return the reason why `valid_run` refuses the batch at position `at` at every offset; "" if there is none."""
    size = end - at
    if size < HEADER_BYTES:
        return f"is cut off after {size} bytes"
    header = _unpack_header(buf, at)
    length, magic, delta = header[BATCH_LENGTH], header[MAGIC], header[LAST_OFFSET_DELTA]
    if magic != 2:
        return f"has magic {magic}, expected 2"
    if length < HEADER_BYTES - OVERHEAD:
        return f"has length {length}, expected at least {HEADER_BYTES - OVERHEAD}"
    if OVERHEAD + length > size:
        return f"is cut off after {size} of {OVERHEAD + length} bytes"
    if crc32c(view[at + CRC_START : at + OVERHEAD + length]) != header[CRC]:
        return "has a wrong CRC"
    return f"has the negative last offset delta {delta}" if delta < 0 else ""


def end_of_transaction(batch: Buffer) -> tuple[int | None, int]:
    """Return the type of a transaction marker, such as `ABORT`, and its coordinator epoch. Raises CorruptBatch.

    The type is None and the epoch -1 if the marker does not contain them.
    """
    if len(batch) == _MARKER_BYTES:  # the form that every coordinator writes
        head, _, kind, middle, _, epoch, end = _MARKER_RECORD.unpack_from(batch, HEADER_BYTES)
        (crc,) = _UINT32.unpack_from(batch, CRC_AT)
        is_usual = (head, middle, end) == _MARKER_CONSTANTS
        if is_usual and crc32c(memoryview(batch)[CRC_START:]) == crc:
            return kind, epoch
    for record in records(batch, control=True):
        if record.value is not None and len(record.value) >= _END_TRANSACTION.size:
            return marker_type(record.key), int(_END_TRANSACTION.unpack_from(record.value)[1])
        return marker_type(record.key), -1
    return None, -1


def marker_of(batch: memoryview) -> Marker:
    """Return the transaction marker in a control batch. Raises CorruptBatch."""
    kind, _ = end_of_transaction(batch)
    return Marker(_unpack_header(batch)[PRODUCER_ID], kind == COMMIT)


def stamp_append_time(batch: memoryview, wall_ms: int) -> None:
    """Set the timestamp type of the batch to LogAppendTime, its max timestamp to `wall_ms`, and its CRC."""
    attributes = _unpack_header(batch)[ATTRIBUTES]
    _APPEND_TIME.pack_into(batch, CRC_START, attributes | LOG_APPEND_TIME)
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, wall_ms)
    _UINT32.pack_into(batch, CRC_AT, crc32c(batch[CRC_START:]))


def records(buf: Buffer, *, control: bool = False) -> Iterator[Record]:
    """Yield the records of the whole batches in `buf`, in order. Control batches are skipped unless `control` is set.

    A partial batch at the end, as in a Fetch response, is ignored. Raises CorruptBatch.
    """
    view = memoryview(buf)
    at = 0
    while len(view) - at >= HEADER_BYTES:
        header = _unpack_header(view, at)
        stop = at + OVERHEAD + header[BATCH_LENGTH]
        if header[BATCH_LENGTH] < HEADER_BYTES - OVERHEAD or header[MAGIC] != 2:
            raise CorruptBatch(f"no record batch of version 2 at byte {at}")
        if stop > len(view):
            return
        if crc32c(view[at + CRC_START : stop]) != header[CRC]:
            raise CorruptBatch(f"batch at offset {header[BASE_OFFSET]} has a wrong CRC")
        if control or not header[ATTRIBUTES] & CONTROL:
            yield from records_of(view[at + HEADER_BYTES : stop], header)
        at = stop


def records_of(data: memoryview, header: Header) -> Iterator[Record]:
    """Yield the records of a batch; `data` holds the bytes after the header. Raises CorruptBatch."""
    attributes = header[ATTRIBUTES]
    body = decompress(attributes & CODEC_MASK, data, DECOMPRESSED_LIMIT)
    base_offset, base_timestamp = header[BASE_OFFSET], header[BASE_TIMESTAMP]
    append_time = header[MAX_TIMESTAMP] if attributes & LOG_APPEND_TIME else None
    pos = 0
    for _ in range(header[COUNT]):
        size, pos = read_varint(body, pos)
        stop = pos + size
        if size < 0 or stop > len(body):
            raise CorruptBatch(f"a record of the batch at offset {base_offset} is cut off")
        timestamp_delta, at = read_varint(body, pos + 1)
        offset_delta, at = read_varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        headers, at = _headers(body, at)
        timestamp = append_time
        if timestamp is None:
            timestamp = _as_int64(base_timestamp + timestamp_delta)
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
        pos = stop


def _bytes(body: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(body, pos)
    if size < 0:
        return None, pos
    if pos + size > len(body):
        raise CorruptBatch("a field of a record is cut off")
    return body[pos : pos + size], pos + size


def _headers(body: bytes, pos: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = read_varint(body, pos)
    headers = []
    for _ in range(count):
        name, pos = _bytes(body, pos)
        value, pos = _bytes(body, pos)
        headers.append(((name or b"").decode("utf-8", "replace"), value))
    return tuple(headers), pos


def build(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return one batch of at least one record. The records get consecutive offsets from `base_offset` on.

    The offsets in `records` are ignored. `codec` is stored in the attributes; `attributes` adds
    other bits (TRANSACTIONAL, CONTROL).
    """
    timestamps = [NO_TIMESTAMP if r.timestamp == UNDATED else r.timestamp for r in records]
    base_timestamp = timestamps[0]
    body = b"".join(
        _encode(delta, _as_int64(timestamp - base_timestamp), record)
        for delta, (timestamp, record) in enumerate(zip(timestamps, records, strict=True))
    )
    if codec:
        body = compress(codec, body)
    batch = bytearray(HEADER_BYTES + len(body))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - OVERHEAD + len(body),
        leader_epoch,
        2,
        0,
        attributes | codec,
        len(records) - 1,
        base_timestamp,
        max(timestamps),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[HEADER_BYTES:] = body
    _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def build_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    coordinator_epoch: int,
    timestamp: int,
) -> bytes:
    """Return the control batch that ends a producer's transaction, as Kafka's transaction coordinator writes it.

    `timestamp`: Unix milliseconds. `coordinator_epoch`: the coordinator's leader epoch.
    """
    batch = bytearray(_MARKER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        0,
        _MARKER_BYTES - OVERHEAD,
        -1,
        2,
        0,
        TRANSACTIONAL | CONTROL,
        0,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        -1,
        1,
    )
    head, middle, end = _MARKER_CONSTANTS
    kind = COMMIT if committed else ABORT
    _MARKER_RECORD.pack_into(batch, HEADER_BYTES, head, 0, kind, middle, 0, coordinator_epoch, end)
    _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def _as_int64(number: int) -> int:
    """Return a sum or difference of two timestamps as Java's long: the difference of far timestamps wraps around."""
    if _LONG_MIN <= number < -_LONG_MIN:
        return number
    return (number - _LONG_MIN) % 2**64 + _LONG_MIN


def _encode(offset_delta: int, timestamp_delta: int, record: Record) -> bytes:
    parts = [b"\x00", varint(timestamp_delta), varint(offset_delta)]
    parts += (_encode_bytes(record.key), _encode_bytes(record.value), varint(len(record.headers)))
    for name, value in record.headers:
        parts += (_encode_bytes(name.encode()), _encode_bytes(value))
    body = b"".join(parts)
    return varint(len(body)) + body


def _encode_bytes(field: bytes | None) -> bytes:
    return varint(-1) if field is None else varint(len(field)) + field
