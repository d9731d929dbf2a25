"""CRC-32C and compression of record batches, for all packages.

Invariant: no function produces more output than the caller allows, whatever the input claims, and
invalid input is always `CorruptBatch`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final

import cramjam
import lz4.block
from fastcrc import crc32

from minikafka.base.errors import CorruptBatch
from minikafka.base.ports import Buffer
from minikafka.kafka.records import zstd
from minikafka.kafka.records.inflate import (
    GZIP,
    LZ4,
    LZ4_STORED,
    NONE,
    SNAPPY,
    XERIAL_HEAD,
    ZSTD,
    inflate,
)

crc32c = crc32.iscsi
"""crc32c(buffer, value=None) -> int: CRC-32C, continued from `value` (accepts memoryviews)."""

_BLOCK: Final = Struct(">i")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_HEAD: Final = bytes.fromhex("04224d18604082")
"""Magic, flags (version 1, independent blocks), block size 64 KiB, and the header checksum byte."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_SIZE: Final = Struct("<I")
_LZ4_FAST: Final = 9
"""Kafka's default level for lz4, which selects the fast compressor here as in Kafka."""
_GZIP_WBITS: Final = 31

_DEFLATER_MEMORY: Final = 512 << 10
"""Memory of a compressor other than Zstandard."""

DEFAULT_LEVELS: Final = {GZIP: -1, LZ4: _LZ4_FAST, ZSTD: zstd.DEFAULT_LEVEL}
"""Kafka's default compression levels."""


class Deflater:
    """Compresses records chunk by chunk, in a framing that every Kafka client can read.

    `codec` is Kafka's number (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd). `level` is Kafka's compression level;
    snappy has no level. `add` takes at most a few milliseconds for a chunk of 64 KiB.
    """

    __slots__ = ("_compress", "_finish", "_parts", "size")

    def __init__(self, codec: int, level: int | None = None) -> None:
        self._parts: list[bytes] = []
        self._finish: Callable[[], bytes] = bytes
        self.size = 0
        """Number of compressed bytes so far."""
        if level is None:
            level = DEFAULT_LEVELS.get(codec, 0)
        if codec == NONE:
            self._compress: Callable[[bytes], bytes] = bytes
        elif codec == GZIP:
            gzip = zlib.compressobj(level, wbits=_GZIP_WBITS)
            self._compress, self._finish = gzip.compress, gzip.flush
        elif codec == ZSTD:
            frame = zstd.compressor(level)
            self._compress, self._finish = frame.compress, frame.flush
        elif codec == SNAPPY:
            self._parts.append(XERIAL_HEAD)
            self._compress = _xerial_blocks
        else:
            self._parts.append(_LZ4_HEAD)
            self._compress = _lz4_blocks_of(level)
            self._finish = _lz4_end

    def add(self, chunk: Buffer) -> None:
        """Compress the next bytes of the records."""
        part = self._compress(bytes(chunk))
        self.size += len(part)
        self._parts.append(part)

    def finish(self) -> bytes:
        """Return all compressed bytes; `add` must not be called after this."""
        self._parts.append(self._finish())
        return b"".join(self._parts)


def deflater_memory(codec: int, level: int | None = None) -> int:
    """Return the bytes that a `Deflater` takes, without its compressed bytes."""
    if codec != ZSTD:
        return _DEFLATER_MEMORY
    return zstd.compressor_memory(DEFAULT_LEVELS[ZSTD] if level is None else level)


def compress(codec: int, data: Buffer) -> bytes:
    """Return record bytes compressed with a Kafka codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)."""
    deflater = Deflater(codec)
    deflater.add(data)
    return deflater.finish()


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """Return the decompressed record bytes. Raises CorruptBatch if they are invalid or larger than `limit`."""
    return b"".join(_limited(inflate(codec, memoryview(data)), limit))


def _limited(chunks: Iterable[Buffer], limit: int) -> Iterable[Buffer]:
    for chunk in chunks:
        limit -= len(chunk)
        if limit < 0:
            raise CorruptBatch("decompressed records are larger than allowed")
        yield chunk


def _xerial_blocks(data: bytes) -> bytes:
    """Return `data` as compressed snappy blocks, in the Java client's framing, which every client can read."""
    out: list[bytes] = []
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += (_BLOCK.pack(len(block)), block)
    return b"".join(out)


def _lz4_blocks_of(level: int) -> Callable[[bytes], bytes]:
    """Return a function that compresses bytes to LZ4 blocks of 64 KiB each.

    The blocks are independent, because the Java client cannot read dependent blocks.
    """
    mode: dict[str, Any] = {"mode": "default"}
    if level != _LZ4_FAST:
        mode = {"mode": "high_compression", "compression": level}

    def blocks(data: bytes) -> bytes:
        out: list[bytes] = []
        for start in range(0, len(data), _LZ4_BLOCK_BYTES):
            raw = data[start : start + _LZ4_BLOCK_BYTES]
            block = lz4.block.compress(raw, store_size=False, **mode)
            if len(block) < len(raw):
                out += (_LZ4_SIZE.pack(len(block)), block)
            else:
                out += (_LZ4_SIZE.pack(len(raw) | LZ4_STORED), raw)
        return b"".join(out)

    return blocks


def _lz4_end() -> bytes:
    return _LZ4_SIZE.pack(0)
