"""CRC-32C, compression and varints of record batches, for all packages.

Invariant: no function produces more output than the caller allows, whatever the input claims, and
invalid input is always `CorruptBatch`.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import cramjam
from fastcrc import crc32

from minikafka.base.errors import CorruptBatch
from minikafka.base.ports import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

crc32c = crc32.iscsi
"""crc32c(buffer, value=None) -> int: CRC-32C, continued from `value` (accepts memoryviews)."""

_BLOCK: Final = Struct(">i")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_HEAD: Final = bytes.fromhex("04224d18604082")
"""Magic, flags (version 1, independent blocks), block size 64 KiB, and the header checksum byte."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_SIZE: Final = Struct("<I")
_LZ4_STORED: Final = 1 << 31
_FIRST_GUESS_BYTES: Final = 64 * 1024
_VARINT_BITS: Final = 63


def compress(codec: int, data: Buffer) -> bytes:
    """Return record bytes compressed with a codec of the batch attributes (0 none, 1 gzip, 2
    snappy, 3 lz4, 4 zstd).
    """
    if codec == NONE:
        return bytes(data)
    if codec == SNAPPY:
        return _xerial(bytes(data))
    if codec == LZ4:
        return _lz4_frame(bytes(data))
    return bytes(_module(codec).compress(bytes(data)))


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """Return the decompressed record bytes. Raises CorruptBatch if invalid or larger than `limit`."""
    if codec == NONE:
        return bytes(data)
    if codec == SNAPPY:
        return _unsnappy(bytes(data), limit)
    return _decompress_growing(_module(codec), bytes(data), limit)


def _module(codec: int) -> Any:
    if codec == GZIP:
        return cramjam.gzip
    if codec == LZ4:
        return cramjam.lz4
    if codec == ZSTD:
        return cramjam.zstd
    raise CorruptBatch(f"compression codec {codec} is unknown")


def _decompress_growing(module: Any, data: bytes, limit: int) -> bytes:
    """Decompress into a buffer that grows as needed, so that a size claimed by the input allocates
    nothing.
    """
    size = min(limit, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: module.decompress_into(data, out)])
        except cramjam.DecompressionError as error:
            if size >= limit:
                raise CorruptBatch(
                    f"records do not decompress within {limit} bytes: {error}"
                ) from None
        size = min(limit, 4 * size)


def _unsnappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, limit)
    out = []
    pos = len(_XERIAL_HEAD)
    while pos < len(data):
        if pos + 4 > len(data):
            raise CorruptBatch("a snappy block is cut off")
        (size,) = _BLOCK.unpack_from(data, pos)
        pos += 4
        if size < 0 or pos + size > len(data):
            raise CorruptBatch("a snappy block is cut off")
        block = _unsnappy_block(data[pos : pos + size], limit)
        limit -= len(block)
        out.append(block)
        pos += size
    return b"".join(out)


def _unsnappy_block(data: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(data) > limit:
            raise CorruptBatch("snappy records are larger than allowed")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy records do not decompress: {error}") from None


def _xerial(data: bytes) -> bytes:
    """Return snappy bytes in the framing of the Java client, which every client can read."""
    out = [_XERIAL_HEAD]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += (_BLOCK.pack(len(block)), block)
    return b"".join(out)


def _lz4_frame(data: bytes) -> bytes:
    """Return an LZ4 frame of independent 64 KiB blocks: the Java client reads no others, cramjam
    writes linked ones.
    """
    out = [_LZ4_HEAD]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        raw = data[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            out += (_LZ4_SIZE.pack(len(block)), block)
        else:
            out += (_LZ4_SIZE.pack(len(raw) | _LZ4_STORED), raw)
    out.append(_LZ4_SIZE.pack(0))
    return b"".join(out)


def varint(number: int) -> bytes:
    """Return a signed 64-bit number as a zigzag varint, as used for every length and delta in a record."""
    number = (number << 1) ^ (number >> 63)
    if number < 128:
        return bytes((number,))
    out = bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return (number, position after it). Raises CorruptBatch if it is truncated or too long."""
    number = shift = 0
    try:
        while True:
            byte = buf[pos]
            pos += 1
            number |= (byte & 0x7F) << shift
            if byte < 128:
                return (number >> 1) ^ -(number & 1), pos
            shift += 7
            if shift > _VARINT_BITS:
                raise CorruptBatch("a varint of a record is too long")
    except IndexError:
        raise CorruptBatch("a varint of a record is cut off") from None
