"""Compressors and decompressors of Zstandard, compared with the library `zstandard`."""

from __future__ import annotations

import random

import pytest
import zstandard

from minikafka.record import zstd

LEVELS = range(-7, 23)
BATCH_BYTES = 2 << 20


def words(size: int) -> bytes:
    """Return text that compresses like records: words of different frequency."""
    rng = random.Random(7)
    vocabulary = [rng.randbytes(rng.randrange(2, 12)) for _ in range(4_000)]
    text = b"".join(vocabulary[int(rng.expovariate(1 / 300)) % 4_000] for _ in range(size // 4))
    return text[:size]


def reference(level: int) -> zstandard.ZstdCompressionParameters:
    """Return Zstandard's parameters for a batch of 2 MiB."""
    return zstandard.ZstdCompressionParameters.from_level(level, source_size=BATCH_BYTES)


@pytest.mark.parametrize("level", LEVELS)
def test_compressor_takes_the_memory_that_zstandard_estimates(level: int) -> None:
    estimate = reference(level).estimated_compression_context_size()

    assert abs(zstd.compressor_memory(level) - estimate) <= estimate / 16


@pytest.mark.parametrize("level", LEVELS)
def test_compressed_size_is_that_of_parameters_for_a_batch(level: int) -> None:
    data = words(300_000)
    frame = zstd.compressor(level)
    compressed = frame.compress(data) + frame.flush()
    other = zstandard.ZstdCompressor(compression_params=reference(level)).compressobj()

    assert zstandard.ZstdDecompressor().decompressobj().decompress(compressed) == data
    assert zstandard.get_frame_parameters(compressed).window_size <= BATCH_BYTES
    assert len(compressed) <= 1.001 * len(other.compress(data) + other.flush())


@pytest.mark.parametrize(("window_log", "is_accepted"), [(27, True), (28, False)])
def test_decompressor_refuses_a_window_above_128_mib(window_log: int, is_accepted: bool) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    compressed = frame.compress(b"records") + frame.flush()

    assert zstd.WINDOW_MAX == 1 << 27
    if is_accepted:
        assert zstd.decompressor().decompress(compressed) == b"records"
        return
    with pytest.raises(zstd.ZstdError):
        zstd.decompressor().decompress(compressed)
