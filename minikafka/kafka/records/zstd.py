"""Zstandard compressors and decompressors, from Python's standard library or its backport for Python before 3.14.

The limits that minikafka sets are here: the memory of a compressor, and the largest window of a decompressor.
"""

from __future__ import annotations

import sys
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd as library
else:
    from backports import zstd as library

ZstdError = library.ZstdError
"""The error for input that is not Zstandard, or whose window is too large."""

DEFAULT_LEVEL: Final = 3
WINDOW_MAX: Final = 128 << 20
"""Largest window (bytes) that the Java client accepts."""

_WINDOW_LOG_MAX: Final = 27
_Parameter = library.CompressionParameter
_LIMITS: Final[tuple[tuple[int, dict[int, int]], ...]] = (
    (3, {_Parameter.window_log: 21}),
    (10, {_Parameter.hash_log: 22, _Parameter.chain_log: 21}),
    (13, {_Parameter.chain_log: 22}),
)
"""The parameters that Zstandard chooses for 2 MiB, enough for a batch, from these levels on. Without them, it
assumes that the input is large: level 22 takes 656 MB."""
_MEMORY_KIB: Final = (
    *(569, 761, 1_273, 2_553, 3_065, 3_065, 5_625, 5_625, 10_745, 20_985, 20_985, 20_985),
    *(33_273, 33_273, 33_273, 33_419, 33_419, 34_048, 34_048, 34_048, 34_048, 34_048),
)
"""Memory of a compressor of level 1, 2, …, 22, as Zstandard estimates it."""


def compressor(level: int) -> library.ZstdCompressor:
    """Return a compressor of one frame. `level`: -131072 to 22; 0 means the default."""
    options: dict[int, int] = {_Parameter.compression_level: level or DEFAULT_LEVEL}
    for lowest, limits in _LIMITS:
        if level >= lowest:
            options.update(limits)
    return library.ZstdCompressor(options=options)


def compressor_memory(level: int) -> int:
    """Return the number of bytes that a compressor takes."""
    return _MEMORY_KIB[max(level or DEFAULT_LEVEL, 1) - 1] << 10


def decompressor() -> library.ZstdDecompressor:
    """Return a decompressor of one frame. It refuses a window larger than `WINDOW_MAX`."""
    return library.ZstdDecompressor(
        options={library.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
    )
