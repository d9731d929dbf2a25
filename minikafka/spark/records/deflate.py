"""Compression of a batch's records with pyarrow alone: gzip, snappy, lz4 and zstd."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Names of `compression.type` and the numbers in a batch's attributes."""
_NAMES: Final = {number: name for name, number in CODECS.items()}
_SNAPPY, _LZ4 = CODECS["snappy"], CODECS["lz4"]
_LZ4_HEAD: Final = b"\x04\x22\x4d\x18\x60\x70\x73"
"""Start of an LZ4 frame: the magic, then the two bytes of its descriptor and their checksum.

The descriptor says: independent blocks, at most 4 MiB each. Kafka's readers refuse frames whose blocks
depend on each other, such as pyarrow's own LZ4 frames.
"""
_LZ4_BLOCK_BYTES: Final = 4 << 20
_STORED: Final = 1 << 31
"""Bit in a block's length that marks the block's data as not compressed."""


def deflate(codec: int, data: memoryview) -> memoryview:
    """Compress the records; codec 0 returns them unchanged. Snappy is raw, as librdkafka writes it."""
    if not codec:
        return data
    if codec == _SNAPPY:  # asbytes: a view of a pyarrow buffer would be as long as its capacity
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
