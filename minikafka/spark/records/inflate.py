"""Decompression of a batch's records with pyarrow alone: gzip, snappy, lz4 and zstd.

Invariant: no batch is decompressed beyond `INFLATED_MAX`, whatever size it claims; a larger or
invalid batch is a `CorruptBatch`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from minikafka.base.errors import CorruptBatch

INFLATED_MAX: Final = 1 << 30
"""Maximum bytes of one decompressed batch; an Arrow binary column can address twice as many."""

_SNAPPY: Final = 2
_STREAMED: Final = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
"""Magic, version and compatible version of snappy-java's framing."""


def inflate(codec: int, data: memoryview) -> memoryview:
    """Return the decompressed records of a batch; `codec` is bits 0-2 of its attributes."""
    try:
        if codec == _SNAPPY:
            return memoryview(_snappy(data)).cast("B")
        if codec in _STREAMED:
            return memoryview(_stream(_STREAMED[codec], data)).cast("B")
    except (OSError, IndexError) as error:
        raise CorruptBatch(f"records do not decompress: {error}") from error
    raise CorruptBatch(f"codec {codec} is unknown to Kafka")


def _stream(name: str, data: memoryview) -> pa.Buffer:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        inflated = stream.read_buffer(INFLATED_MAX + 1)
    if inflated.size > INFLATED_MAX:
        raise CorruptBatch(f"records decompress to more than {INFLATED_MAX} bytes")
    return inflated


def _snappy(data: memoryview) -> bytes | pa.Buffer:
    """Decompress raw snappy (librdkafka) or the blocks of snappy-java's framing (the Java client)."""
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
    """Return the decompressed length that a raw snappy block claims: a varint at its start."""
    size = 0
    for index in range(5):
        size |= (block[index] & 0x7F) << (7 * index)
        if block[index] < 0x80:
            break
    if size > limit:
        raise CorruptBatch(f"records decompress to more than {INFLATED_MAX} bytes")
    return size
