"""Compression and decompression of a batch's records: gzip, snappy, lz4 and zstd.

pyarrow has all codecs. Other libraries are faster, above all for small batches, because they prepare less for each
call. They are used where they are installed, for what producers write: one gzip member, or one frame. Invariant: no
batch is decompressed beyond `INFLATED_MAX` bytes, even if the batch declares a larger size. A larger or invalid batch
raises `CorruptBatch`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pyarrow as pa

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.header import CODECS
from minikafka.kafka.records.varints import read_uvarint

_NAMES: Final = {number: name for name, number in CODECS.items()}
_GZIP, _SNAPPY, _LZ4, _ZSTD = (CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd"))
_LZ4_HEAD: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Start of an LZ4 frame: the magic, two descriptor bytes, and a checksum of the descriptor.

The descriptor declares independent blocks of at most 64 KiB, as Kafka's producer writes them. Kafka's readers
reject frames whose blocks depend on each other, such as the LZ4 frames that pyarrow writes. A reader may reserve
the declared size for every block, so larger blocks would cost more time than they save.
"""
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_HEAD_BYTES: Final = len(_LZ4_HEAD)
_LZ4_FLAGS_AT: Final = 4
_LZ4_DECLARES_SIZE: Final = 0x08
"""Bit in the first descriptor byte of an LZ4 frame which means that the descriptor declares the frame's size."""
_LZ4_RATIO_MAX: Final = 255
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

_GZIP_MEMBER: Final = 31
"""The `wbits` value of zlib for one gzip member with header and checksum."""
_PART_BYTES: Final = 1 << 20
"""Decompressed bytes to read from a stream at once. Larger buffers would be slow for small batches."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
"""Size of the header of snappy-java's framing: magic, version and compatible version."""


def inflate(codec: int, data: memoryview) -> memoryview:
    """Return the decompressed records of a batch. `codec`: bits 0-2 of the batch's attributes."""
    inflater = _INFLATERS.get(codec)
    if inflater is None:
        raise CorruptBatch(f"codec {codec} is unknown to Kafka")
    try:
        return memoryview(inflater(data)).cast("B")
    except (OSError, IndexError, RuntimeError, *_zstd_errors(), gzip_library().error) as error:
        raise CorruptBatch(f"records do not decompress: {error}") from error


@cache
def library(*names: str) -> Any:
    """Return the first of these modules that is installed; None if none is."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def gzip_library() -> Any:
    """Return the module that decompresses gzip: `isal.isal_zlib` if it is installed, else Python's `zlib`."""
    return library("isal.isal_zlib", "zlib")


def lz4_library() -> Any:
    """Return the module that decompresses lz4; None if `lz4` is not installed."""
    return library("lz4.frame")


def zstd_library() -> Any:
    """Return the module that decompresses zstd; None before Python 3.14 if `backports.zstd` is not installed."""
    return library("compression.zstd", "backports.zstd")


def _zstd_errors() -> tuple[type[Exception], ...]:
    found = zstd_library()
    return (found.ZstdError,) if found else ()


def _gzip(data: memoryview) -> bytes | pa.Buffer:
    """Decompress gzip data: one member with `gzip_library`, several members with pyarrow."""
    return _one_frame("gzip", gzip_library().decompressobj(_GZIP_MEMBER), data)


def _zstd_frames(data: memoryview) -> bytes | pa.Buffer:
    """Decompress zstd data: one frame with `zstd_library`, other data with pyarrow."""
    found = zstd_library()
    return _one_frame("zstd", found.ZstdDecompressor(), data) if found else _stream("zstd", data)


def _one_frame(name: str, decompressor: Any, data: memoryview) -> bytes | pa.Buffer:
    """Decompress one gzip member or one frame with `decompressor`, and data with several of them with pyarrow."""
    inflated: bytes = decompressor.decompress(data, INFLATED_MAX + 1)
    _check_size(len(inflated))
    if not decompressor.eof:
        raise CorruptBatch(f"records do not decompress: the {name} data is truncated")
    return _stream(name, data) if decompressor.unused_data else inflated


def _lz4_frames(data: memoryview) -> bytes | pa.Buffer:
    """Decompress lz4 data: one frame with `lz4_library`, other data with pyarrow.

    `lz4_library` has no limit for the size, so it gets only data that cannot become too large, and that declares no
    size, as Kafka's producers write it.
    """
    found = lz4_library()
    declares_size = len(data) < _LZ4_HEAD_BYTES or data[_LZ4_FLAGS_AT] & _LZ4_DECLARES_SIZE
    if found is None or declares_size or len(data) > INFLATED_MAX // _LZ4_RATIO_MAX:
        return _stream("lz4", data)
    inflated, size = found.decompress(data, return_bytes_read=True)
    return _stream("lz4", data) if size < len(data) else inflated


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


_INFLATERS: Final[dict[int, Callable[[memoryview], bytes | pa.Buffer]]] = {
    _GZIP: _gzip,
    _SNAPPY: _snappy,
    _LZ4: _lz4_frames,
    _ZSTD: _zstd_frames,
}
