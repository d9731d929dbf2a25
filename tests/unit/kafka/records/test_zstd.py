"""Compressors and decompressors of Zstandard, compared with the library `zstandard`."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import zstandard

from minikafka.kafka.records import zstd

ROOT = Path(__file__).parents[4]
LEVELS = range(-7, 23)
BATCH_BYTES = 2 << 20


@cache
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
def test_compressed_bytes_are_those_of_parameters_for_a_batch(level: int) -> None:
    data = words(300_000)
    frame = zstd.compressor(level)
    compressed = frame.compress(data) + frame.flush()
    other = zstandard.ZstdCompressor(compression_params=reference(level)).compressobj()

    assert zstandard.ZstdDecompressor().decompressobj().decompress(compressed) == data
    assert compressed == other.compress(data) + other.flush()


GROWTH = """
import os, resource, sys
from minikafka.kafka.records import zstd
def memory():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
level, data = int(sys.argv[1]), os.urandom(1 << 20) + bytes(1 << 20)
before = memory()
frame = zstd.compressor(level)
output = frame.compress(data)
print(memory() - before - zstd.compressor_memory(level))
"""


@pytest.mark.parametrize("level", [1, 12, 15, 22])
def test_process_grows_by_the_memory_of_a_compressor_and_its_output(level: int) -> None:
    """The output has half the size of the batch, and the library may hold it twice."""
    ended = subprocess.run(
        [sys.executable, "-c", GROWTH, str(level)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(ended.stdout) < 2 * BATCH_BYTES


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
