"""Decompression of a batch's records: snappy, lz4 and zstd by pyarrow, gzip by `isal` or Python's zlib.

`isal` decompresses gzip more than twice as fast as zlib, with the same result.

Invariant: no batch is decompressed beyond `INFLATED_MAX` bytes, even if the batch declares a larger size. A
larger or invalid batch raises `CorruptBatch`.
"""

from __future__ import annotations

import importlib
import zlib
from functools import cache
from typing import Any, Final

import pyarrow as pa

from minikafka.base.errors import CorruptBatch
from minikafka.record.varints import read_uvarint

INFLATED_MAX: Final = 1 << 30
"""Maximum size of one decompressed batch: half of the bytes that an Arrow binary column can address."""

_GZIP, _SNAPPY = 1, 2
_STREAMED: Final = {3: "lz4", 4: "zstd"}
_GZIP_MEMBER: Final = 31
"""The `wbits` value of zlib for one gzip member with header and checksum."""
_PART_BYTES: Final = 1 << 20
"""Decompressed bytes to read from a stream at once. Larger buffers would be slow for small batches."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
"""Size of the header of snappy-java's framing: magic, version and compatible version."""


def inflate(codec: int, data: memoryview) -> memoryview:
    """Return the decompressed records of a batch. `codec`: bits 0-2 of the batch's attributes."""
    try:
        if codec == _GZIP:
            return memoryview(_gzip(data)).cast("B")
        if codec == _SNAPPY:
            return memoryview(_snappy(data)).cast("B")
        if codec in _STREAMED:
            return memoryview(_stream(_STREAMED[codec], data)).cast("B")
    except (OSError, IndexError, gzip_library().error) as error:
        raise CorruptBatch(f"records do not decompress: {error}") from error
    raise CorruptBatch(f"codec {codec} is unknown to Kafka")


@cache
def gzip_library() -> Any:
    """Return the module that decompresses gzip: `isal.isal_zlib` if it is installed, else Python's `zlib`."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


def _gzip(data: memoryview) -> bytes | pa.Buffer:
    """Decompress gzip data: one member with `gzip_library`, several members with pyarrow.

    Producers write one member.
    """
    member = gzip_library().decompressobj(_GZIP_MEMBER)
    inflated: bytes = member.decompress(data, INFLATED_MAX + 1)
    _check_size(len(inflated))
    if not member.eof:
        raise CorruptBatch("records do not decompress: the gzip data is truncated")
    return _stream("gzip", data) if member.unused_data else inflated


def _stream(name: str, data: memoryview) -> bytes | pa.Buffer:
    parts, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        while (part := stream.read_buffer(_PART_BYTES)).size:
            parts.append(part)
            size += part.size
            _check_size(size)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_size(size: int) -> None:
    if size > INFLATED_MAX:
        raise CorruptBatch(f"records decompress to more than {INFLATED_MAX} bytes")


def _snappy(data: memoryview) -> bytes | pa.Buffer:
    """Decompress raw snappy (from librdkafka) or the blocks of snappy-java's framing (from Java clients)."""
    codec = pa.Codec("snappy")
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return codec.decompress(data, _claimed_size(data, INFLATED_MAX))
    position, room, blocks = _XERIAL_HEADER, INFLATED_MAX, []
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        block = data[position + 4 : position + 4 + size]
        if len(block) != size:
            raise CorruptBatch("a snappy block is truncated")
        blocks.append(codec.decompress(block, _claimed_size(block, room), asbytes=True))
        room -= len(blocks[-1])
        position += 4 + size
    return b"".join(blocks)


def _claimed_size(block: memoryview, limit: int) -> int:
    """Return the decompressed length that a raw snappy block declares in the varint at its start."""
    size, _ = read_uvarint(block, 0, error=CorruptBatch)
    if size > limit:
        raise CorruptBatch(f"records decompress to more than {INFLATED_MAX} bytes")
    return size
