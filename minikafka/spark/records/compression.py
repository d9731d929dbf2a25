"""Compression and decompression of a batch's records: gzip, snappy, lz4 and zstd.

pyarrow has all codecs. One gzip member is decompressed by `isal`, which is more than twice as fast, or by Python's
zlib. Invariant: no batch is decompressed beyond `INFLATED_MAX` bytes, even if the batch declares a larger size. A
larger or invalid batch raises `CorruptBatch`.
"""

from __future__ import annotations

import importlib
import zlib
from functools import cache
from typing import Any, Final

import pyarrow as pa

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.header import CODECS
from minikafka.kafka.records.varints import read_uvarint

_NAMES: Final = {number: name for name, number in CODECS.items()}
_GZIP, _SNAPPY, _LZ4 = CODECS["gzip"], CODECS["snappy"], CODECS["lz4"]
_LZ4_HEAD: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Start of an LZ4 frame: the magic, two descriptor bytes, and a checksum of the descriptor.

The descriptor declares independent blocks of at most 64 KiB, as Kafka's producer writes them. Kafka's readers
reject frames whose blocks depend on each other, such as the LZ4 frames that pyarrow writes. A reader may reserve
the declared size for every block, so larger blocks would cost more time than they save.
"""
_LZ4_BLOCK_BYTES: Final = 64 << 10
_STORED: Final = 1 << 31
"""Bit in a block's length that marks a block as not compressed."""


def deflate(codec: int, data: memoryview) -> memoryview:
    """Return the compressed records; unchanged for codec 0. Snappy is written raw, as in librdkafka."""
    if not codec:
        return data
    if codec == _SNAPPY:
        # Ask for bytes, because a view of a pyarrow buffer would include the unused capacity of the buffer.
        return memoryview(pa.Codec("snappy").compress(data, asbytes=True))
    if codec == _LZ4:
        return memoryview(_lz4(data))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, _NAMES[codec]) as stream:
        stream.write(data)
    return memoryview(sink.getvalue())


def _lz4(data: memoryview) -> bytes:
    lz4 = pa.Codec("lz4_raw")
    frame = [_LZ4_HEAD]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = lz4.compress(block, asbytes=True)
        is_smaller = len(packed) < len(block)
        size = len(packed) if is_smaller else len(block) | _STORED
        frame += [size.to_bytes(4, "little"), packed if is_smaller else bytes(block)]
    return b"".join([*frame, bytes(4)])


INFLATED_MAX: Final = 1 << 30
"""Maximum size of one decompressed batch: half of the bytes that an Arrow binary column can address."""

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
