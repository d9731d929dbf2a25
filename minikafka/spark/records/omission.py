"""Leaves out large keys and values of records before the records are decoded.

The decoder looks at every byte of its records, so 1 MB values take most of the time of a read that needs only
offsets. Small records are not changed: for them the decoder, which has no Python loop, is faster.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import CorruptBatch
from minikafka.spark.records.batches import Section
from minikafka.spark.records.starts import LONG_BYTES

_LARGE: Final = 1024
"""Average size of the records of a batch from which the loop over the records is faster than the decoder."""
_NULL: Final = b"\x01"
"""The length of a null key or value: -1 as a zigzag varint."""


def without(section: Section, *, key: bool, value: bool) -> Section:
    """Return a batch of large records with null instead of each key (if `key`) and each value (if `value`).

    A batch of small records is returned unchanged. Raises `CorruptBatch`.
    """
    if not (key or value) or len(section.records) < _LARGE * section.record_count:
        return section
    data = section.records
    parts: list[bytes | memoryview] = []
    position = 0
    try:
        for _ in range(section.record_count):
            size, body = _varint(data, position)
            position = body + size
            if size < 0 or position > len(data):
                raise CorruptBatch(f"a record of {size} bytes exceeds its batch")
            parts += _shortened(data[body:position], key=key, value=value)
    except IndexError as error:
        raise CorruptBatch("a field reaches beyond the last record") from error
    if position != len(data):
        raise CorruptBatch("record lengths do not add up to the size of the batch")
    return section._replace(records=memoryview(b"".join(parts)))


def _shortened(record: memoryview, *, key: bool, value: bool) -> list[bytes | memoryview]:
    """Return the parts of the record, with its length, after the key or the value has become null."""
    _, at = _varint(record, 1)  # the time delta, after the attributes
    _, key_at = _varint(record, at)  # the offset delta
    value_at = _after(record, key_at)
    headers_at = _after(record, value_at)
    parts = [
        record[:key_at],
        _NULL if key else record[key_at:value_at],
        _NULL if value else record[value_at:headers_at],
        record[headers_at:],
    ]
    return [_encoded(sum(map(len, parts))), *parts]


def _after(record: memoryview, position: int) -> int:
    """Return the position after a nullable byte range."""
    length, start = _varint(record, position)
    end = start + max(length, 0)
    if length < -1 or end > len(record):
        raise CorruptBatch("a key, value or header exceeds its record")
    return end


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it."""
    raw = 0
    for index in range(LONG_BYTES):
        byte = data[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise CorruptBatch(f"a record holds a number of more than {LONG_BYTES} bytes")


def _encoded(length: int) -> bytes:
    """Return a length as a zigzag varint."""
    raw, found = length << 1, bytearray()
    while raw > 0x7F:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    found.append(raw)
    return bytes(found)
