"""The decompression of a batch's records in pieces, with the rules of the Java client.

Each function yields the records in chunks of at most `CHUNK_MAX` bytes. Each chunk takes less than 5 ms, whatever
the input claims, so that the caller can do other work between two chunks. For this reason a chunk may be empty.
Memory is allocated for one chunk at a time. Input that the Java client cannot read raises `CorruptBatch`, at the
latest after the last chunk.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import cramjam

from minikafka.base.errors import CorruptBatch, ProtocolViolation
from minikafka.base.ports import Buffer
from minikafka.kafka.records import zstd
from minikafka.kafka.records.varints import read_uvarint

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

XERIAL_HEAD: Final = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1))
"""The header with which snappy-java begins a stream: magic, version, oldest compatible version."""
LZ4_MAGIC: Final = bytes.fromhex("04224d18")
LZ4_STORED: Final = 1 << 31
"""Bit in the length of an LZ4 block which means that the block is not compressed."""
CHUNK_MAX: Final = 24 << 20
"""Maximum size of a chunk. Only snappy needs such large chunks: a block can only be decompressed as a whole, and
librdkafka writes a whole batch as one block. A block of 1 MiB, the default of `max.message.bytes`, inflates to at
most this size."""

_PIECE_BYTES: Final = 32 << 10
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_WBITS: Final = 31
_XERIAL_MAGIC: Final = XERIAL_HEAD[:8]
_BIG_INT: Final = Struct(">i")
_LITTLE_UINT: Final = Struct("<I")
_SNAPPY_RATIO_MAX: Final = 22
"""Maximum compression ratio of snappy: 3 bytes can copy 64 bytes. A block that claims a higher ratio is refused."""
_SNAPPY_LEAST_CLAIM: Final = 64
_LZ4_RATIO_MAX: Final = 255
_GZIP_MEMORY: Final = 96 << 10
"""Memory of a gzip decompressor: its window and tables, and input that it has not used yet."""
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCKS_AT_ONCE: Final = 64
_ZSTD_REPEATED: Final = 1
_ZSTD_COMPRESSED: Final = 2
_ZSTD_RESERVED: Final = 3
_ZSTD_BLOCK_BYTES: Final = 128 << 10
_ZSTD_SCANNED_MAX: Final = 2_000
"""Number of Zstandard blocks whose headers `memory_of` reads at most, which takes about a millisecond."""


def inflate(codec: int, data: memoryview) -> Iterator[Buffer]:
    """Yield the records of a batch in chunks; `data` holds the bytes after the header. Raises CorruptBatch."""
    inflater = _INFLATERS.get(codec)
    if inflater is None:
        raise CorruptBatch(f"compression codec {codec} is unknown")
    return inflater(data)


def memory_of(codec: int, data: memoryview) -> int:
    """Return an upper limit for the bytes that `inflate` holds in memory while it waits for the next call.

    The limit follows from the headers in `data`. Nothing is decompressed.
    """
    if codec == SNAPPY:
        return _snappy_memory(data)
    if codec == LZ4:
        block_max = 1 << (8 + 2 * (data[5] >> 4 & 7)) if len(data) > 5 else 0
        return min(block_max, _LZ4_RATIO_MAX * len(data))
    if codec == ZSTD:
        return 2 * _ZSTD_BLOCK_BYTES + _zstd_memory(data)
    return _GZIP_MEMORY if codec == GZIP else 0


def _slices(data: memoryview) -> Iterator[Buffer]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]


def _gunzip(data: memoryview) -> Iterator[bytes]:
    """Yield the content of one or several gzip members; like Java, ignore other bytes after a member."""
    position = 0
    while not position or bytes(data[position : position + 3]) == _GZIP_MAGIC:
        inflater = zlib.decompressobj(_GZIP_WBITS)
        while not inflater.eof:
            if position == len(data) and not inflater.unconsumed_tail:
                raise CorruptBatch("a gzip member is cut off")
            taken: Buffer = inflater.unconsumed_tail
            if not taken:
                taken = data[position : position + _PIECE_BYTES]
                position += len(taken)
            try:
                yield inflater.decompress(taken, _PIECE_BYTES)
            except zlib.error as error:
                raise CorruptBatch(f"records are not gzip: {error}") from None
        position -= len(inflater.unused_data)


def _snappy_memory(data: memoryview) -> int:
    """Return an upper limit for the size of one decompressed block."""
    most = min(CHUNK_MAX, max(_SNAPPY_LEAST_CLAIM, _SNAPPY_RATIO_MAX * len(data)))
    if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        return most
    try:
        return min(most, read_uvarint(data, 0)[0])
    except ProtocolViolation:
        return most


def _unsnap(data: memoryview) -> Iterator[Buffer]:
    """Yield the decompressed blocks of snappy-java streams, or of one block without framing (librdkafka)."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _snappy_block(data)
        return
    position = 0
    while position < len(data):
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(XERIAL_HEAD)
            yield b""
            continue
        if position + 4 > len(data):
            raise CorruptBatch("a snappy block is cut off")
        (size,) = _BIG_INT.unpack_from(data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise CorruptBatch("a snappy block is cut off")
        yield _snappy_block(data[position : position + size])
        position += size


def _snappy_block(block: memoryview) -> bytearray:
    compressed = bytes(block)
    try:
        size = cramjam.snappy.decompress_raw_len(compressed)
        if size > max(_SNAPPY_LEAST_CLAIM, _SNAPPY_RATIO_MAX * len(compressed)) or size > CHUNK_MAX:
            raise CorruptBatch(f"a snappy block of {len(compressed)} bytes declares {size} bytes")
        out = bytearray(size)
        cramjam.snappy.decompress_raw_into(compressed, out)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records are not snappy: {error}") from None
    return out


def _unlz4(data: memoryview) -> Iterator[Buffer]:
    """Yield the decompressed blocks of one LZ4 frame. As in Java, blocks must be independent.

    As in Java, bytes after the frame are ignored.
    """
    if len(data) < 7 or data[:4] != LZ4_MAGIC:
        raise CorruptBatch("records are not an LZ4 frame")
    flags, limits = data[4], data[5]
    begin = 14 if flags & 0x08 else 6  # flag: the header has the content size
    if (
        flags & 0xE3 != 0x60  # not (version 1, independent blocks, no reserved bit, no dictionary)
        or limits & 0x8F
        or limits >> 4 < 4
        or len(data) <= begin
        or data[begin] != _checksum_byte(bytes(data[4:begin]))
    ):
        raise CorruptBatch("an LZ4 frame has an invalid header or blocks that depend on others")
    block_max, check_bytes = 1 << (8 + 2 * (limits >> 4)), 4 if flags & 0x10 else 0
    position = begin + 1
    while True:
        if position + 4 > len(data):
            raise CorruptBatch("an LZ4 frame is cut off")
        (word,) = _LITTLE_UINT.unpack_from(data, position)
        size = word & ~LZ4_STORED
        stop = position + 4 + size + check_bytes
        if not size:
            if flags & 0x04 and position + 8 > len(data):  # flag: a checksum follows
                raise CorruptBatch("an LZ4 frame is cut off")
            return
        if size > block_max or stop > len(data):
            raise CorruptBatch("an LZ4 block is cut off or too long")
        yield _lz4_block(data[position:stop], bytes((0x60 | flags & 0x10, limits)), block_max)
        position = stop


def _lz4_block(block: memoryview, descriptor: bytes, block_max: int) -> Buffer:
    """Decompress one block as a separate frame, so that its checksum is verified; return the content."""
    frame = b"".join((LZ4_MAGIC, descriptor, bytes((_checksum_byte(descriptor),)), block, bytes(4)))
    out = bytearray(min(block_max, _LZ4_RATIO_MAX * len(block)))
    try:
        size = cramjam.lz4.decompress_into(frame, out)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records are not LZ4: {error}") from None
    return memoryview(out)[:size]


def _checksum_byte(descriptor: bytes) -> int:
    """Return the last byte of an LZ4 frame header: bits 8 to 15 of the XXH32 of the frame's descriptor.

    The descriptor must be shorter than 16 bytes.
    """
    mask = 0xFFFFFFFF
    value = 374761393 + len(descriptor)
    whole = len(descriptor) & ~3
    for at in range(0, whole, 4):
        value = value + _LITTLE_UINT.unpack_from(descriptor, at)[0] * 3266489917 & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
    for byte in descriptor[whole:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return (value ^ value >> 16) >> 8 & 0xFF


def _unzstd(data: memoryview) -> Iterator[bytes]:
    """Yield the content of Zstandard frames, a few blocks (of at most 128 KiB) at a time."""
    position = 0
    while position < len(data):
        if position + 8 > len(data):
            raise CorruptBatch("a Zstandard frame is cut off")
        (magic,) = _LITTLE_UINT.unpack_from(data, position)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 8 + _LITTLE_UINT.unpack_from(data, position + 4)[0]
            yield b""
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptBatch("records are not a Zstandard frame")
        descriptor = data[position + 4]
        inflater = zstd.decompressor()
        begin = position
        position += 5 + _zstd_header_bytes(descriptor)
        is_last = False
        while not is_last:
            position, is_last = _zstd_blocks(data, position)
            if is_last and descriptor & 0x04:  # flag: a checksum of the content follows
                position += 4
            if position > len(data):
                raise CorruptBatch("a Zstandard frame is cut off")
            try:
                yield inflater.decompress(data[begin:position])
            except zstd.ZstdError as error:
                raise CorruptBatch(f"records are not Zstandard: {error}") from None
            begin = position


def _zstd_memory(data: memoryview) -> int:
    """Return an upper limit for the memory of a decompressor: the largest window of a frame, or the whole content.

    If `data` has too many blocks to read all their headers, the limit is the largest window that is accepted.
    """
    position = window = blocks = 0
    while position + 8 <= len(data):
        (magic,) = _LITTLE_UINT.unpack_from(data, position)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 8 + _LITTLE_UINT.unpack_from(data, position + 4)[0]
            blocks += 1
        elif magic == _ZSTD_MAGIC:
            window = max(window, _zstd_window(data, position))
            position, found = _zstd_end(data, position, _ZSTD_SCANNED_MAX - blocks)
            blocks += found
        else:
            break
        if blocks >= _ZSTD_SCANNED_MAX:
            return zstd.WINDOW_MAX
    return min(window, blocks * _ZSTD_BLOCK_BYTES)


def _zstd_window(data: memoryview, position: int) -> int:
    """Return the window size of the frame at this position. The whole header may be missing."""
    descriptor = data[position + 4]
    if not descriptor & 0x20:
        window = data[position + 5]
        base = 1 << (10 + (window >> 3))
        return min(base + (base >> 3) * (window & 7), zstd.WINDOW_MAX)
    stop = (
        position + 5 + _zstd_header_bytes(descriptor)
    )  # a single segment: the window is the content
    begin = position + 5 + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[begin:stop], "little") + (256 if stop - begin == 2 else 0)
    return min(size, zstd.WINDOW_MAX)


def _zstd_end(data: memoryview, position: int, most: int) -> tuple[int, int]:
    """Return (end of the frame at this position, its number of blocks). Stop after `most` blocks."""
    descriptor = data[position + 4]
    position += 5 + _zstd_header_bytes(descriptor)
    blocks = 0
    is_last = False
    while not is_last and blocks < most and position + 3 <= len(data):
        head = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last = bool(head & 1)
        position += 3 + (1 if head >> 1 & 3 == _ZSTD_REPEATED else head >> 3)
        blocks += 1
    return position + (4 if descriptor & 0x04 else 0), blocks


def _zstd_header_bytes(descriptor: int) -> int:
    """Return the size of the header fields after the descriptor byte: window, dictionary id and content size."""
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    return (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size


def _zstd_blocks(data: memoryview, position: int) -> tuple[int, bool]:
    """Return (position after the next few blocks, True if one of them is the frame's last block).

    The content of these blocks is at most 128 KiB in total. A single block never has more content. The number of
    blocks is at most `_ZSTD_BLOCKS_AT_ONCE`, because blocks may be empty. Raises CorruptBatch.
    """
    room = _ZSTD_BLOCK_BYTES
    for number in range(_ZSTD_BLOCKS_AT_ONCE):
        if position + 3 > len(data):
            raise CorruptBatch("a Zstandard frame is cut off")
        head = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if kind == _ZSTD_RESERVED or size > _ZSTD_BLOCK_BYTES:
            raise CorruptBatch("a Zstandard block has an invalid header")
        content = _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size
        if number and content > room:
            return position, False
        room -= content
        position += 3 + (1 if kind == _ZSTD_REPEATED else size)
        if is_last:
            return position, True
    return position, False


_INFLATERS: Final[dict[int, Callable[[memoryview], Iterator[Buffer]]]] = {
    NONE: _slices,
    GZIP: _gunzip,
    SNAPPY: _unsnap,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
