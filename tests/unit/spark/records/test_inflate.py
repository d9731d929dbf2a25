"""Decompression of every framing that producers use, and refusal of everything else."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest

from minikafka.base.errors import CorruptBatch
from minikafka.spark.records import inflate as module
from minikafka.spark.records.inflate import inflate

TEXT = b"one line of text after the other, " * 3_000


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(data: bytes, block: int = 32 * 1024) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block):
        part = raw_snappy(data[start : start + block])
        out += struct.pack(">i", len(part)) + part
    return out


FORMS = {
    "gzip": (1, gzip.compress(TEXT)),
    "gzip in two members": (1, gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:])),
    "raw snappy": (2, raw_snappy(TEXT)),
    "snappy as snappy-java frames it": (2, xerial(TEXT)),
    "lz4": (3, bytes(cramjam.lz4.compress(TEXT))),
    "zstd": (4, bytes(cramjam.zstd.compress(TEXT))),
}


@pytest.mark.parametrize(("codec", "data"), FORMS.values(), ids=FORMS)
def test_text_is_decompressed(codec, data):
    assert inflate(codec, memoryview(data)) == TEXT


@pytest.mark.parametrize(("codec", "data"), FORMS.values(), ids=FORMS)
def test_data_beyond_the_limit_are_refused(codec, data, monkeypatch):
    monkeypatch.setattr(module, "INFLATED_MAX", len(TEXT) - 1)
    with pytest.raises(CorruptBatch, match="more than"):
        inflate(codec, memoryview(data))


@pytest.mark.parametrize("codec", range(1, 8))
@pytest.mark.parametrize("data", [b"\xff" * 30, b"plain text", xerial(TEXT)[:100]])
def test_invalid_compressed_bytes_are_corrupt(codec, data):
    with pytest.raises(CorruptBatch):
        inflate(codec, memoryview(data))
