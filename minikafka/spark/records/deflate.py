"""Compression of a batch's records with pyarrow: gzip, snappy, lz4 and zstd."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The values of `compression.type`, with the codec numbers in the attributes of a batch."""
_NAMES: Final = {number: name for name, number in CODECS.items()}
_SNAPPY, _LZ4 = CODECS["snappy"], CODECS["lz4"]
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
