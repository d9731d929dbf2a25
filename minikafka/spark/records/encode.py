"""Encoding of Arrow columns as record batches v2, the reverse of `decode`.

Whole columns are encoded at once: no Python statement runs per record, only a few run per batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.kafka.records.header import (
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    OVERHEAD,
    TRANSACTIONAL,
)
from minikafka.spark.records import varints
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.compression import deflate
from minikafka.spark.records.varints import Numbers

_MAGIC: Final = 2
_ATTRIBUTES: Final = Struct(">h")
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_NOTHING: Final = pa.scalar(b"", pa.binary())
_NO_HEADERS: Final = pa.scalar(b"\x00", pa.binary())
_MOST_RECORDS: Final = 10_000
"""Maximum number of records in one batch, even if the records are small."""


@dataclass(frozen=True)
class Producer:
    """The identity of an idempotent producer (KIP-98)."""

    id: int
    epoch: int


NO_PRODUCER: Final = Producer(-1, -1)
"""The producer in batches that get their producer later, by `stamp`."""


@dataclass(frozen=True)
class Rows:
    """Records to write to one partition, in order. Keys and values are binary or null."""

    keys: pa.Array
    values: pa.Array
    timestamps: Numbers
    """Timestamps in Unix milliseconds."""
    headers: pa.Array | None
    """For each record, a list of headers (key string, value binary)."""
    numbers: Numbers
    """Number of each row within the task, for error messages."""

    def __len__(self) -> int:
        return len(self.timestamps)

    def taken(self, chosen: Numbers) -> Rows:
        """Return a copy of the rows with these indexes, in the order of the indexes."""
        indexes = pa.array(chosen)
        return Rows(
            self.keys.take(indexes),
            self.values.take(indexes),
            self.timestamps[chosen],
            None if self.headers is None else self.headers.take(indexes),
            self.numbers[chosen],
        )

    def part(self, start: int, end: int) -> Rows:
        """Return rows [start, end) without a copy."""
        size = end - start
        return Rows(
            self.keys.slice(start, size),
            self.values.slice(start, size),
            self.timestamps[start:end],
            None if self.headers is None else self.headers.slice(start, size),
            self.numbers[start:end],
        )


def sizes(rows: Rows) -> Numbers:
    """Return the approximate size of each record: key, value, headers, and 24 bytes for other fields."""
    size: Numbers = _lengths(rows.keys).clip(0) + _lengths(rows.values).clip(0) + 24
    if rows.headers is not None:
        size = size + _header_bytes(rows.headers)
    return size


def cut(total: Numbers, start: int, end: int, most_bytes: int) -> list[tuple[int, int]]:
    """Divide the rows [start, end) into batches, and return the first row and the end of each batch.

    `total`: for each row, the size of all rows up to this row. A batch has 1 to `_MOST_RECORDS` rows. A batch
    of several rows has at most about `most_bytes` before compression.
    """
    found = []
    while start < end:
        before = int(total[start - 1]) if start else 0
        fitting = int(np.searchsorted(total, before + most_bytes, side="right"))
        border = min(max(fitting, start + 1), start + _MOST_RECORDS, end)
        found.append((start, border))
        start = border
    return found


def _header_bytes(headers: pa.Array) -> Numbers:
    """Return the approximate size of each record's headers: names, values, and 2 bytes per header."""
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    pairs = headers.flatten()
    names = _lengths(pairs.field("key").cast(pa.binary()))
    total = np.concatenate(([0], np.cumsum(names + _lengths(pairs.field("value")).clip(0) + 2)))
    borders = np.concatenate(([0], np.cumsum(counts)))
    sizes: Numbers = total[borders[1:]] - total[borders[:-1]]
    return sizes


def encode(
    rows: Rows, codec: int, producer: Producer, sequence: int, checksum: Checksum
) -> bytearray:
    """Return one record batch with base offset 0.

    `sequence`: the sequence number of the first record. `codec`: the codec number for the batch attributes.
    """
    (batch,) = encode_all(rows, [(len(rows), sequence)], codec, producer, checksum)
    return batch


def encode_all(
    rows: Rows,
    parts: Sequence[tuple[int, int]],
    codec: int,
    producer: Producer,
    checksum: Checksum,
) -> list[bytearray]:
    """Return the record batches of several partitions, each with base offset 0.

    `parts`: the number of records and the first sequence number of each batch. The batches contain the rows in
    order. Encoding many rows in one call is faster than encoding each batch alone.
    """
    counts = np.array([count for count, _ in parts])
    ends = np.cumsum(counts)
    starts = ends - counts
    last = np.maximum.reduceat(rows.timestamps, starts)
    data, borders = _records(rows, starts, counts)
    batches = []
    for (count, sequence), start, end, most in zip(parts, starts, ends, last, strict=True):
        times = int(rows.timestamps[start]), int(most)
        packed = deflate(codec, data[int(borders[start]) : int(borders[end])])
        batches.append(_batch(packed, codec, times, producer, sequence, count, checksum))
    return batches


def _batch(
    records: memoryview,
    codec: int,
    times: tuple[int, int],
    producer: Producer,
    sequence: int,
    count: int,
    checksum: Checksum,
) -> bytearray:
    batch = bytearray(HEADER_BYTES + len(records))
    fields = (*times, producer.id, producer.epoch, sequence, count)
    HEADER.pack_into(batch, 0, 0, len(batch) - OVERHEAD, -1, _MAGIC, 0, codec, count - 1, *fields)
    batch[HEADER_BYTES:] = records
    crc = checksum(memoryview(batch)[CRC_START:])
    batch[CRC_AT:CRC_START] = crc.to_bytes(4, "big")
    return batch


def stamp(batch: bytearray, producer: Producer, sequence: int, checksum: Checksum) -> int:
    """Make a batch a part of the producer's transaction. Return the number of its records."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes | TRANSACTIONAL)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer.id, producer.epoch, sequence)
    crc = checksum(memoryview(batch)[CRC_START:])
    batch[CRC_AT:CRC_START] = crc.to_bytes(4, "big")
    return int(HEADER.unpack_from(batch)[LAST_OFFSET_DELTA]) + 1


def _records(rows: Rows, starts: Numbers, counts: Numbers) -> tuple[memoryview, Numbers]:
    """Return the encoded records of all batches, uncompressed, and the start of each record; the last start is the end.

    `starts`, `counts`: the first row and the number of rows of each batch.
    """
    times = rows.timestamps - np.repeat(rows.timestamps[starts], counts)
    positions = np.arange(len(rows), dtype=np.int64) - np.repeat(starts, counts)
    keys, values = _lengths(rows.keys), _lengths(rows.values)
    size = 1 + keys.clip(0) + values.clip(0)
    for column in (times, positions, keys, values):
        size += varints.sizes(varints.zigzag(column))
    headers = _NO_HEADERS if rows.headers is None else _headers(rows.headers)
    size += 1 if rows.headers is None else _lengths(headers)
    attributes = np.zeros(len(rows), dtype=np.int64)
    head = varints.binary([size, attributes, times, positions, keys])
    middle = varints.binary([values])
    parts = [head, _filled(rows.keys), middle, _filled(rows.values), headers]
    return _data(pc.binary_join_element_wise(*parts, _NOTHING))


def _headers(headers: pa.Array) -> pa.Array:
    """Return the encoded headers of each record: the number of headers, then each key and value."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    counts = counts.astype(np.int64)
    pairs = headers.flatten()
    names = pairs.field("key").cast(pa.binary())
    contents = pairs.field("value")
    entries = pc.binary_join_element_wise(
        varints.binary([_lengths(names)]),
        _filled(names),
        varints.binary([_lengths(contents)]),
        _filled(contents),
        _NOTHING,
    )
    borders = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(borders), entries)
    joined = pc.fill_null(pc.binary_join(lists, _NOTHING), _NOTHING)
    return pc.binary_join_element_wise(varints.binary([counts]), joined, _NOTHING)


def _lengths(column: pa.Array) -> Numbers:
    """Return the length of each binary value; -1 for null."""
    found = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(found).astype(np.int64)


def _filled(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, _NOTHING) if column.null_count else column


def _data(column: pa.Array) -> tuple[memoryview, Numbers]:
    """Return the values of a binary column as bytes without gaps, and where each value begins; last, where they end."""
    _, borders, data = column.buffers()
    offsets = np.frombuffer(borders, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(data)[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]


def content(rows: Rows) -> memoryview:
    """Return bytes that depend only on the timestamp, key, value and headers of each record.

    Equal bytes mean equal records in the same order, independent of the division into batches.
    """
    keys, values = _lengths(rows.keys), _lengths(rows.values)
    parts = [
        varints.binary([rows.timestamps, keys]),
        _filled(rows.keys),
        varints.binary([values]),
        _filled(rows.values),
        _NO_HEADERS if rows.headers is None else _headers(rows.headers),
    ]
    return _data(pc.binary_join_element_wise(*parts, _NOTHING))[0]
