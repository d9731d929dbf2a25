"""Decompression of data in every format that producers use, and refusal of invalid or too large data."""

from __future__ import annotations

import gzip
import struct
import sys
import zlib

import cramjam
import lz4.frame
import pytest

from minikafka.base.errors import CorruptBatch
from minikafka.spark.records import compression as module
from minikafka.spark.records.compression import inflate

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
    "lz4 with a declared size": (3, lz4.frame.compress(TEXT)),
    "lz4 in two frames": (3, 2 * lz4.frame.compress(TEXT[: len(TEXT) // 2], store_size=False)),
    "zstd": (4, bytes(cramjam.zstd.compress(TEXT))),
    "zstd in two frames": (4, 2 * bytes(cramjam.zstd.compress(TEXT[: len(TEXT) // 2]))),
}


@pytest.fixture(params=["with all libraries", "with pyarrow alone"])
def libraries(request, monkeypatch):
    """Decompress lz4 and zstd with the libraries for them, or with pyarrow alone."""
    if request.param == "with pyarrow alone":
        monkeypatch.setattr(module, "lz4_library", lambda: None)
        monkeypatch.setattr(module, "zstd_library", lambda: None)


@pytest.fixture(params=["isal.isal_zlib", "zlib"])
def gzip_library(request, monkeypatch):
    """Use one gzip library (isal or zlib) for decompression. The test runs once per library that is installed."""
    library = pytest.importorskip(request.param)
    monkeypatch.setattr(module, "gzip_library", lambda: library)


@pytest.mark.parametrize(("codec", "data"), FORMS.values(), ids=FORMS)
def test_text_is_decompressed(codec, data, libraries):
    assert inflate(codec, memoryview(data)) == TEXT


@pytest.mark.parametrize("form", ["gzip", "gzip in two members"])
def test_each_gzip_library_decompresses_text(form, gzip_library):
    codec, data = FORMS[form]
    assert inflate(codec, memoryview(data)) == TEXT


def test_each_gzip_library_stops_at_the_limit(gzip_library, monkeypatch):
    monkeypatch.setattr(module, "INFLATED_MAX", len(TEXT) - 1)
    with pytest.raises(CorruptBatch, match="more than"):
        inflate(1, memoryview(gzip.compress(TEXT)))


def broken(data: bytes) -> dict[str, bytes]:
    """Return {fault: gzip data with this fault}. The last 8 bytes of gzip data are checksum and size."""
    altered = bytearray(data)
    altered[-8] ^= 1
    return {
        "no bytes": b"",
        "a truncated header": data[:5],
        "truncated data": data[:-20],
        "a truncated checksum": data[:-2],
        "a wrong checksum": bytes(altered),
        "bytes after the end": data + b"plain text",
        "no gzip header": data[10:],
    }


@pytest.mark.parametrize("fault", broken(gzip.compress(TEXT)))
def test_each_gzip_library_refuses_broken_data(fault, gzip_library):
    data = broken(gzip.compress(TEXT))[fault]
    with pytest.raises(CorruptBatch, match="do not decompress"):
        inflate(1, memoryview(data))


def test_isal_is_used_where_it_is_installed():
    isal = pytest.importorskip("isal.isal_zlib")
    assert module.gzip_library() is isal


def test_zlib_is_used_where_isal_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert module.library.__wrapped__("isal.isal_zlib", "zlib") is zlib


def test_lz4_that_declares_a_wrong_size_is_not_allocated(monkeypatch):
    data = bytearray(lz4.frame.compress(TEXT))
    data[6:14] = (1 << 60).to_bytes(8, "little")
    monkeypatch.setattr(lz4.frame, "decompress", None)
    with pytest.raises(CorruptBatch, match="do not decompress"):
        inflate(3, memoryview(bytes(data)))


@pytest.mark.parametrize("cut", [1, 4, 8])
@pytest.mark.parametrize("form", ["lz4", "zstd"])
def test_truncated_frame_is_refused(form, cut, libraries):
    codec, data = FORMS[form]
    with pytest.raises(CorruptBatch):
        inflate(codec, memoryview(data[:-cut]))


@pytest.mark.parametrize("codec", [3, 4], ids=["lz4", "zstd"])
def test_text_longer_than_one_decompression_buffer_is_decompressed(codec):
    text = TEXT * 25
    compress = {3: cramjam.lz4, 4: cramjam.zstd}[codec].compress
    assert inflate(codec, memoryview(bytes(compress(text)))) == text


@pytest.mark.parametrize(("codec", "data"), FORMS.values(), ids=FORMS)
def test_data_beyond_the_limit_are_refused(codec, data, libraries, monkeypatch):
    monkeypatch.setattr(module, "INFLATED_MAX", len(TEXT) - 1)
    with pytest.raises(CorruptBatch, match="more than"):
        inflate(codec, memoryview(data))


@pytest.mark.parametrize("codec", range(1, 8))
@pytest.mark.parametrize("data", [b"\xff" * 30, b"plain text", xerial(TEXT)[:100]])
def test_invalid_compressed_bytes_raise_corrupt_batch(codec, data, libraries):
    with pytest.raises(CorruptBatch):
        inflate(codec, memoryview(data))
