"""Decoding of record batches to Arrow columns, with the schema of Spark's Kafka source.

All batches of a call are decoded together. No Python statement runs per record: numpy reads all numbers, and
Arrow copies all bytes. Every record must fill exactly its declared length. Otherwise the call raises
`CorruptBatch`.

A read that needs only offsets leaves out large keys and values before the records are decoded (`without`), because
the decoder looks at every byte, and 1 MB values would take most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.base.errors import CorruptBatch, MinikafkaError
from minikafka.spark.records.batches import Section
from minikafka.spark.records.starts import (
    LARGE,
    LONG_BYTES,
    PADDING,
    Bytes,
    Positions,
    find,
    varints,
)

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FIELDS: Final = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
]
_TIME_MAX_MS: Final = (2**63 - 1) // 1000
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, ("headers", _HEADERS)])


@cache
def schema(*, key: bool, value: bool, headers: bool) -> pa.Schema:
    """Return the columns of a read that leaves out the key, the value or the headers."""
    left_out = {
        name for name, kept in (("key", key), ("value", value), ("headers", headers)) if not kept
    }
    return pa.schema([field for field in SCHEMA_WITH_HEADERS if field.name not in left_out])


class TimeOutOfRange(MinikafkaError):
    """A timestamp does not fit into Spark's 64 bits of microseconds. Spark's Kafka source fails as well."""


class _Spans(NamedTuple):
    """Byte ranges in the data, one per record or header. A negative length means null."""

    starts: Positions
    lengths: Positions
    ends: Positions


class _Rows(NamedTuple):
    """The parsed fields of a run of records. Every array has one element per record."""

    offsets: Positions
    timestamps: Positions
    append_times: Positions
    keys: _Spans
    values: _Spans
    header_counts: Positions
    headers_at: Positions
    """Position of each record's first header in the data."""
    ends: Positions


def decode(
    sections: Sequence[Section],
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    with_headers: bool,
    with_key: bool = True,
    with_value: bool = True,
    fail_on_far_times: bool = True,
) -> pa.RecordBatch:
    """Return the records with offsets in [start, end) as one Arrow batch, which may be empty.

    The schema is that of `schema`. `sections` may also hold records outside the range.
    `fail_on_far_times`: raise `TimeOutOfRange` for a timestamp that does not fit; otherwise it becomes null.
    Raises `CorruptBatch`, `TimeOutOfRange`.
    """
    *facts, records = zip(*sections, strict=True)
    data = np.frombuffer(b"".join([*records, bytes(PADDING)]), np.uint8)
    if len(data) > np.iinfo(np.int32).max:
        raise CorruptBatch("the batches of one read hold more than 2 GiB of records")
    try:
        rows = _between(_parse(data, records, facts), start, end)
        headers = _headers(data, rows) if with_headers else None
    except IndexError as error:
        raise CorruptBatch("a field reaches beyond the last record") from error
    times = _times(rows, f"{topic}-{partition}", fail_on_far_times)
    kept = [*([rows.keys] if with_key else []), *([rows.values] if with_value else [])]
    columns = [
        *_gather(data, kept),
        pa.repeat(pa.scalar(topic, pa.string()), len(rows.offsets)),
        pa.repeat(pa.scalar(partition, pa.int32()), len(rows.offsets)),
        pa.array(rows.offsets),
        times.view(pa.timestamp("us", tz="UTC")),
        pa.array(rows.append_times.astype(np.int32)),
    ]
    if headers is not None:
        columns.append(headers)
    return pa.RecordBatch.from_arrays(
        columns, schema=schema(key=with_key, value=with_value, headers=with_headers)
    )


def _parse(data: Bytes, records: Sequence[memoryview], facts: Sequence[Sequence[int]]) -> _Rows:
    """Parse the numeric fields of all records, and check the length of each record.

    `facts`: the other fields of `Section`, each with one element per batch.
    """
    base_offsets, timestamps, are_appended, record_counts, _ = facts
    counts = np.array(record_counts, dtype=np.int64)
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    bodies, ends = find(data, np.cumsum(sizes) - sizes, counts)

    def per_record(values: Sequence[int]) -> Positions:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    time_deltas, position = varints(data, bodies + 1, LONG_BYTES)
    offset_deltas, position = varints(data, position)
    keys, position = _span(data, position, ends)
    values, position = _span(data, position, ends)
    header_counts, position = varints(data, position)
    is_done = header_counts == 0
    if header_counts.min(initial=0) < 0 or np.any(position[is_done] != ends[is_done]):
        raise CorruptBatch("a record's length differs from its content")
    append_times = per_record(are_appended)
    time_deltas[append_times == 1] = 0
    return _Rows(
        per_record(base_offsets) + offset_deltas,
        per_record(timestamps) + time_deltas,
        append_times,
        keys,
        values,
        header_counts,
        position,
        ends,
    )


def _span(data: Bytes, position: Positions, ends: Positions) -> tuple[_Spans, Positions]:
    """Read a nullable byte range at each position: a length, then the bytes. A length of -1 means null.

    Returns the byte ranges and the positions after the byte ranges.
    """
    lengths, starts = varints(data, position)
    stops = starts + np.maximum(lengths, 0)
    if lengths.min(initial=0) < -1 or np.any(stops > ends):
        raise CorruptBatch("a key, value or header exceeds its record")
    return _Spans(starts, lengths, stops), stops


def _between(rows: _Rows, start: int, end: int) -> _Rows:
    """Return the rows with offsets in [start, end). Raises `CorruptBatch` if the offsets do not increase."""
    if np.any(rows.offsets[1:] <= rows.offsets[:-1]):
        raise CorruptBatch("offsets do not increase")
    first, last = np.searchsorted(rows.offsets, (start, end))
    if first == 0 and last == len(rows.offsets):
        return rows

    def cut(spans: _Spans) -> _Spans:
        return _Spans(*(column[first:last] for column in spans))

    return _Rows(
        rows.offsets[first:last],
        rows.timestamps[first:last],
        rows.append_times[first:last],
        cut(rows.keys),
        cut(rows.values),
        rows.header_counts[first:last],
        rows.headers_at[first:last],
        rows.ends[first:last],
    )


def _times(rows: _Rows, name: str, fail_on_far_times: bool) -> pa.Array:
    """Return the timestamps in microseconds; null for those that do not fit. `name`: the partition, for the error."""
    times = rows.timestamps
    if times.max(initial=0) <= _TIME_MAX_MS and times.min(initial=0) >= -_TIME_MAX_MS:
        return pa.array(times * 1000)
    is_far = (times > _TIME_MAX_MS) | (times < -_TIME_MAX_MS)
    if fail_on_far_times:
        first = np.flatnonzero(is_far)[0]
        remedy = (
            "exclude it (startingOffsets, endingOffsets), or read null instead (failOnTimestampOverflow = false, or"
            " --timestamps null for an archive in a table)"
        )
        raise TimeOutOfRange(
            f"offset {rows.offsets[first]} of {name} has the timestamp {times[first]} ms, beyond Spark's limit of"
            f" {_TIME_MAX_MS}: {remedy}"
        )
    return pa.array(np.where(is_far, 0, times) * 1000, mask=is_far)


def _gather(data: Bytes, columns: Sequence[_Spans]) -> list[pa.Array]:
    """Return one binary column for each entry of `columns`. The entry has the byte range of each value in `data`.

    Byte ranges must not overlap. They must be in the order of the records and, within a record, in the order of
    `columns`. An Arrow array is made whose elements divide `data` into gap, key, gap, value, gap, and so on. Arrow's
    `take` then copies, for example, all keys.
    """
    if not columns:
        return []
    count, width = len(columns[0].starts), 2 * len(columns)
    borders = np.zeros(count * width + 1, dtype=np.int32)
    table = borders[1:].reshape(count, width)
    for index, spans in enumerate(columns):
        table[:, 2 * index] = spans.starts
        table[:, 2 * index + 1] = spans.ends
    view = pa.BinaryArray.from_buffers(
        pa.binary(), count * width, [None, pa.py_buffer(borders), pa.py_buffer(data)]
    )
    picked = []
    for index, spans in enumerate(columns):
        picks = np.arange(2 * index + 1, count * width, width, dtype=np.int32)
        null = spans.lengths < 0
        indices = pa.array(picks, mask=null if null.any() else None)
        picked.append(pc.take(view, indices, boundscheck=False))
    return picked


def _headers(data: Bytes, rows: _Rows) -> pa.ListArray:
    """Return the header list of each record; null for a record without headers, as in Spark's Kafka source.

    The loop reads the first header of every record, then the second header of every record, and so on.
    """
    total = int(rows.header_counts.sum())
    if total > len(data):
        raise CorruptBatch("a record declares more headers than it has bytes")
    firsts = np.cumsum(rows.header_counts) - rows.header_counts
    keys = _Spans(*np.zeros((3, total), dtype=np.int64))
    values = _Spans(*np.zeros((3, total), dtype=np.int64))
    left = np.flatnonzero(rows.header_counts)
    position, nth = rows.headers_at[left], 0
    while left.size:
        target = firsts[left] + nth
        for column in (keys, values):
            found, position = _span(data, position, rows.ends[left])
            for kept, read in zip(column, found, strict=True):
                kept[target] = read
        nth += 1
        done = rows.header_counts[left] == nth
        if np.any(position[done] != rows.ends[left[done]]):
            raise CorruptBatch("a record's length differs from its content")
        left, position = left[~done], position[~done]
    if np.any(keys.lengths < 0):
        raise CorruptBatch("a header has no key")
    names, contents = _gather(data, [keys, values])
    borders = np.append(firsts, total).astype(np.int32)
    pairs = pa.StructArray.from_arrays([_text(names), contents], fields=list(_HEADERS.value_type))
    absent = pa.array(rows.header_counts == 0)
    return pa.ListArray.from_arrays(pa.array(borders), pairs, type=_HEADERS, mask=absent)


def _text(names: pa.BinaryArray) -> pa.StringArray:
    """Return header keys as strings. Invalid UTF-8 becomes the replacement character, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = names.dictionary_encode()
        words = [word.decode("utf-8", "replace") for word in distinct.dictionary.to_pylist()]
        return pa.array(words, pa.string()).take(distinct.indices)


_NULL: Final = b"\x01"
"""The length of a null key or value: -1 as a zigzag varint."""


def without(section: Section, *, key: bool, value: bool) -> Section:
    """Return a batch of large records with null instead of each key (if `key`) and each value (if `value`).

    A batch of small records is returned unchanged. Raises `CorruptBatch`.
    """
    if not (key or value) or len(section.records) < LARGE * section.record_count:
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
