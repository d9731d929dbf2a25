"""Reads the batches in replicas' segment files: positions, header fields, and a digest of each batch.

A task reads whole segment files, memory-mapped, and decompresses no batch. The result is a table with one row
for each batch. The column `fault` is set for an invalid batch. Invariant: every byte of a file belongs to
exactly one row, except the zeros after the last batch of a preallocated file. A batch with an invalid length
is the last row of its file, and covers the remaining bytes of the file, at most `INFLATED_MAX` bytes.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

from minikafka.record.header import CONTROL, CRC_START, HEADER, HEADER_BYTES, OVERHEAD
from minikafka.record.transactions import marker_type_in
from minikafka.spark.records import checksum
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.inflate import INFLATED_MAX

SEGMENTS: Final = "path string, broker int, topic string, partition int, base_offset long"
"""Columns of the table of segment files."""
BATCHES: Final = (
    "path string, broker int, topic string, partition int, position long, size int, base_offset long,"
    " last_offset long, leader_epoch int, attributes int, producer_id long, producer_epoch int,"
    " base_sequence int, record_count int, marker int, digest binary, fault string"
)
"""Columns of the table of batches, in the order of `_ARROW`."""
_PIECE_BYTES: Final = 1 << 20
_MAGIC: Final = 2
_DIGEST_BYTES: Final = 16
_ROWS: Final = 10_000
_ARROW: Final = pa.schema(
    [
        ("path", pa.string()),
        ("broker", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("attributes", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("record_count", pa.int32()),
        ("marker", pa.int32()),
        ("digest", pa.binary()),
        ("fault", pa.string()),
    ]
)


class Batch(NamedTuple):
    """One batch of a segment file. If `fault` is set, only position, size and base offset are reliable."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int = -1
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0
    marker: int | None = None
    digest: bytes | None = None
    fault: str | None = None


def read_headers(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches (`BATCHES`) in the given segment files (`SEGMENTS`). Runs on executors."""
    check = checksum.find()
    for table in tables:
        for segment in table.to_pylist():
            place = [segment[name] for name in ("path", "broker", "topic", "partition")]
            found = _in_file(segment["path"], segment["base_offset"], check)
            while run := list(islice(found, _ROWS)):
                repeated = [[fact] * len(run) for fact in place]
                columns: list[Any] = [*repeated, *zip(*run, strict=True)]
                arrays = [pa.array(c, f.type) for c, f in zip(columns, _ARROW, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _in_file(path: str, base_offset: int, check: Checksum | None) -> Iterator[Batch]:
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            return
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            yield from walk(data, base_offset, check)


def walk(data: memoryview, base_offset: int, check: Checksum | None) -> Iterator[Batch]:
    """Yield the batches in the bytes of a segment file. The field `fault` is set for an invalid batch."""
    position, expected = 0, base_offset
    while position < len(data):
        fault, size = _broken_frame(data, position)
        if fault is not None:
            if not _is_zero(data, position):
                left = min(len(data) - position, INFLATED_MAX)
                yield Batch(position, left, expected, expected, fault=fault)
            return
        with data[position : position + size] as bytes_:
            batch = _batch(bytes_, position, check)
        yield batch
        position += size
        expected = batch.last_offset + 1


def _is_zero(data: memoryview, position: int) -> bool:
    """True if every byte from the position to the end is zero."""
    pieces = (data[at : at + _PIECE_BYTES] for at in range(position, len(data), _PIECE_BYTES))
    return all(bytes(piece).count(0) == len(piece) for piece in pieces)


def _broken_frame(data: memoryview, position: int) -> tuple[str | None, int]:
    """Return what is wrong with the length of the batch (None if valid), and the size of the batch (0 if invalid)."""
    left = len(data) - position
    if left < HEADER_BYTES:
        return f"the file ends within a batch header, {left} bytes after its start", 0
    length = int.from_bytes(data[position + 8 : position + OVERHEAD], "big", signed=True)
    size = length + OVERHEAD
    if not HEADER_BYTES <= size <= INFLATED_MAX:
        return f"invalid batch length {length}", 0
    if size > left:
        return f"the file ends within a batch of {size} bytes, {left} bytes after its start", 0
    return None, size


def _batch(data: memoryview, position: int, check: Checksum | None) -> Batch:
    base, _, epoch, magic, crc, attributes, delta, _, _, *rest = HEADER.unpack_from(data)
    end = base + max(delta, 0)
    if magic != _MAGIC:
        fault = f"message format {magic} is not supported, only 2 is"
        return Batch(position, len(data), base, base, fault=fault)
    with data[CRC_START:] as covered:
        if check is not None and check(covered) != crc:
            fault = "the CRC-32C differs from the one in the batch header"
            return Batch(position, len(data), base, end, epoch, attributes, fault=fault)
    marker = marker_type_in(data[HEADER_BYTES:]) if attributes & CONTROL else None
    digest = blake2b(data, digest_size=_DIGEST_BYTES).digest()
    id_, producer_epoch, sequence, count = rest
    producer = (id_, producer_epoch, sequence)
    place = (position, len(data), base, end, epoch, attributes)
    return Batch(*place, *producer, record_count=count, marker=marker, digest=digest)
