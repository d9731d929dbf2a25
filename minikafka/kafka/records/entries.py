"""The records of one stored batch as a log cleaner needs them: decoded, and as their encoded bytes.

The compiled reader of aiokafka decodes the records. A batch that this reader refuses is decoded in Python,
because the reader also refuses header keys that are not UTF-8, which Kafka accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.batch import DECOMPRESSED_LIMIT, records_of
from minikafka.kafka.records.codecs import decompress
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    Header,
)
from minikafka.kafka.records.varints import read_varint, varint

PADDING: Final = bytes(64)
"""The compiled reader may read up to this many bytes after the end of a batch before it checks a length."""


class DecodedRecord(Protocol):
    """One decoded record; offset and timestamp (Unix ms) are absolute."""

    @property
    def offset(self) -> int:
        """The offset in the log."""

    @property
    def timestamp(self) -> int:
        """The timestamp of the record; the time of the append if the batch has timestamp type LogAppendTime."""

    @property
    def key(self) -> bytes | None:
        """The key, None if there is none."""

    @property
    def value(self) -> bytes | None:
        """The value, None for a delete marker."""


class Entries(NamedTuple):
    """The decoded records of a batch. `body`: the encoded records, without compression."""

    decoded: Sequence[DecodedRecord]
    body: memoryview


def entries_of(batch: memoryview, header: Header) -> Entries:
    """Return the records of a batch whose CRC was checked. Raises CorruptBatch.

    At least `PADDING` bytes must follow the batch in memory.
    """
    codec = header[ATTRIBUTES] & CODEC_MASK
    if codec:
        body = decompress(codec, batch[HEADER_BYTES:], DECOMPRESSED_LIMIT)
        header = _uncompressed(header, len(body))
        size = HEADER_BYTES + len(body)
        batch = memoryview(b"".join((HEADER.pack(*header), body, PADDING)))[:size]
    decoded: Sequence[DecodedRecord]
    try:
        decoded = list(DefaultRecordBatch(batch))
    except (CorruptRecordException, ValueError, MemoryError, OverflowError):
        decoded = list(records_of(batch[HEADER_BYTES:], header))
    return Entries(decoded, batch[HEADER_BYTES:])


def _uncompressed(header: Header, body_bytes: int) -> Header:
    fields = list(header)
    fields[ATTRIBUTES] &= ~CODEC_MASK
    fields[BATCH_LENGTH] = HEADER_BYTES - OVERHEAD + body_bytes
    return tuple(fields)


def spans(body: memoryview, count: int) -> list[int]:
    """Return the start position of each record in the body, then the end of the last record.

    Raises CorruptBatch.
    """
    position, end = 0, len(body)
    found = [0]
    for _ in range(count):
        if position + 1 < end and body[position] < 128:  # the usual lengths, of one or two bytes
            position += 1 + (body[position] >> 1)
        elif position + 2 < end and body[position + 1] < 128:
            position += 2 + ((body[position] & 127 | body[position + 1] << 7) >> 1)
        else:
            size, position = read_varint(body, position)
            position += max(size, 0)
        found.append(position)
    if position != end:
        raise CorruptBatch("the records of a batch do not end where the batch ends")
    return found


def with_timestamp_delta(record: memoryview, delta: int) -> bytes:
    """Return the encoded record with its timestamp delta replaced by `delta`. Raises CorruptBatch."""
    _, start = read_varint(record, 0)
    _, after = read_varint(record, start + 1)
    body = b"".join((record[start : start + 1], varint(delta), record[after:]))
    return varint(len(body)) + body
