"""CRC-32C and compression: values survive a round trip, and output stays within its limit."""

from __future__ import annotations

import os

import pytest

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.codecs import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    crc32c,
    decompress,
)

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


def test_crc_uses_castagnoli_and_continues_from_a_previous_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"56789"), crc32c(b"1234")) == 0xE3069283


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", b"abc" * 100_000, os.urandom(200_000)])
def test_every_codec_restores_its_input(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_data_that_decompresses_beyond_the_limit_is_refused(codec: int) -> None:
    bomb = compress(codec, bytes(1_000_000))
    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, 999_999)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_truncated_input_raises_corrupt_batch(codec: int) -> None:
    whole = compress(codec, os.urandom(5000))
    with pytest.raises(CorruptBatch):
        decompress(codec, whole[:-100], 1 << 20)


def test_unknown_codec_raises_corrupt_batch() -> None:
    with pytest.raises(CorruptBatch):
        decompress(5, b"x", 10)


def test_snappy_is_read_with_and_without_the_java_framing() -> None:
    raw = b"\x05\x10hello"  # length 5, then a literal of 5 bytes
    assert decompress(SNAPPY, raw, 5) == b"hello"
    assert compress(SNAPPY, b"hello").startswith(b"\x82SNAPPY\x00")


def test_lz4_blocks_are_independent_as_java_requires() -> None:
    frame = compress(LZ4, b"abc" * 100_000)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20, "block independence flag"
