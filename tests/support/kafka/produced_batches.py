"""Valid and invalid batches that a client may produce, each with a flag whether consumers can read the batch.

The batch header is always valid: only the records or their compression may be invalid. `KAFKA_DIFFERS` names the
batches on which LogValidator of Kafka 3.9.1 decides otherwise, with the reason.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from random import Random

import cramjam
import lz4.frame
import zstandard
from support.kafka.encoders import CODECS, Sample, by_aiokafka, by_kafka_python, raw_batch

from minikafka.kafka.records.codecs import compress
from minikafka.kafka.records.varints import varint

KAFKA_DIFFERS = {
    f"{codec}: {reason}"
    for codec in ("gzip", "snappy", "lz4", "zstd")
    for reason in (
        # Kafka skips key and value, so only consumers notice the excess bytes.
        "record longer than its fields",
        "offsets not in sequence",  # Kafka's builder fails with an UnsupportedOperationException
    )
}


def record(
    delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: int = 0,
    attributes: int = 0,
) -> bytes:
    """Return an encoded record with `headers` empty headers."""
    body = bytes((attributes,)) + varint(0) + varint(delta)
    for field in (key, value):
        body += varint(-1) if field is None else varint(len(field)) + field
    body += varint(headers) + bytes(2 * headers)
    return varint(len(body)) + body


THREE = b"".join(record(delta) for delta in range(3))
_RANDOM = Random(12)
MANY_COUNT = 300
MANY = b"".join(record(delta, value=_RANDOM.randbytes(50) * 20) for delta in range(MANY_COUNT))
SHORT_BY_ONE = varint(8) + record()[1:] + record(1)


def _negative(size: int) -> bytes:
    """Return a negative number as a varint of `size` bytes without padding."""
    return b"\xff" * (size - 1) + b"\1"


def _fields(body: bytes, count: int = 1) -> bytes:
    return raw_batch(varint(len(body)) + body, count)


def record_batch(value: bytes) -> bytes:
    """Return a batch of one record with this value."""
    return raw_batch(record(value=value), 1)


def batches() -> dict[str, tuple[bytes, bool]]:
    """Return all cases by name, as (batch, True if consumers can read the batch)."""
    found = dict(_uncompressed())
    for name, codec in CODECS.items():
        if codec:
            found |= {f"{name}: {case}": tuple(rest) for case, *rest in _compressed(codec)}
    return found | dict(_special())


def _uncompressed() -> Iterator[tuple[str, tuple[bytes, bool]]]:
    yield "three records", (raw_batch(THREE, 3), True)
    yield "fewer records than counted", (raw_batch(THREE, 4), False)
    yield "more records than counted", (raw_batch(THREE, 2), False)
    yield "no records", (raw_batch(b"", 1), False)
    yield "record longer than its fields", (raw_batch(SHORT_BY_ONE, 2), False)
    yield "offsets not in sequence", (raw_batch(record() + record(), 2), True)
    yield "record of negative length", (raw_batch(b"\1" + record(), 1), False)
    yield "record of length 0", (raw_batch(bytes(7), 1), False)
    yield "key beyond the record", (_fields(b"\0\0\0\x7e\1v\0"), False)
    yield "key of length -2", (_fields(b"\0\0\0\x03\2v\0"), True)
    yield "value beyond the record", (_fields(b"\0\0\0\1\x7e\0"), False)
    yield "negative number of headers", (_fields(b"\0\0\0\1\1\1"), False)
    yield "more headers than bytes", (_fields(b"\0\0\0\1\1\x40"), False)
    yield "header without a key", (_fields(b"\0\0\0\1\1\2\1\1"), False)
    yield "header without a value", (_fields(b"\0\0\0\1\1\2\0\1"), True)
    yield "header key that is not UTF-8", (_fields(b"\0\0\0\1\1\2\2\xff\1"), True)
    yield "attributes with the high bit", (_fields(b"\x85\0\0\1\1\0"), True)
    yield "padded length", (raw_batch(b"\x8e\x80\0" + record()[1:], 1), True)
    six, minus_one = b"\x80" * 5 + b"\0", b"\x81" + b"\x80" * 4 + b"\0"
    yield (
        "record length of six bytes",
        (raw_batch(b"\x8e" + b"\x80" * 4 + b"\0" + record()[1:], 1), False),
    )
    yield "offset of six bytes", (_fields(b"\0\0" + six + b"\1\1\0"), False)
    yield "large offset of six bytes", (_fields(b"\0\0\x80\x80\x80\x81\x80\0\1\1\0"), False)
    yield "offset of more than 32 bits", (_fields(b"\0\0" + varint(1 << 40) + b"\1\1\0"), False)
    yield "negative offset of ten bytes", (_fields(b"\0\0" + varint(-1 << 63) + b"\1\1\0"), False)
    yield "offset of five bytes", (_fields(b"\0\0" + varint(1 << 30) + b"\1\1\0"), True)
    yield "key length of six bytes", (_fields(b"\0\0\0" + minus_one + b"\1\0"), False)
    yield "value length of six bytes", (_fields(b"\0\0\0\1" + minus_one + b"\0"), False)
    for size in (6, 10):
        null = _negative(size)
        for name, at in (
            ("key", b"%b\1\0"),
            ("value", b"\1%b\0"),
            ("header value", b"\1\1\2\2h%b"),
        ):
            yield f"null {name} of {size} bytes", (_fields(bytes(3) + at % null), False)
    short = _negative(5)
    yield "nulls of five bytes", (_fields(bytes(3) + short * 2 + b"\2\2h" + short), True)
    yield "long timestamp without a key", (_fields(b"\0" + varint(1 << 60) + b"\0\1\1\0"), True)
    yield "header count of six bytes", (_fields(b"\0\0\0\1\1" + six), False)
    yield "value with the bytes of a long number", (record_batch(b"\x80" * 9 + bytes(9)), True)
    yield "timestamp of ten bytes", (_fields(b"\0" + b"\xff" * 9 + b"\1\0\1\1\0"), True)
    yield "timestamp of eleven bytes", (_fields(b"\0" + b"\xff" * 10 + b"\1\0\1\1\0"), False)
    yield "huge key", (_fields(b"\0\0\0" + b"\xfe" + b"\xff" * 8 + b"\1" + b"\1\0"), False)
    yield "many records", (raw_batch(MANY, MANY_COUNT), True)
    yield "many records and a byte", (raw_batch(MANY + b"\0", MANY_COUNT), False)


def _compressed(codec: int) -> Iterator[tuple[str, bytes, bool]]:
    def made(data: bytes, count: int = 3) -> bytes:
        return raw_batch(data, count, codec=codec)

    stream, java_ends_there = compress(codec, THREE), codec in (CODECS["gzip"], CODECS["lz4"])
    two = compress(codec, record()) + compress(codec, record(1) + record(2))
    yield "three records", made(stream), True
    yield "many records", made(compress(codec, MANY), MANY_COUNT), True
    yield "uncompressed records", made(THREE), False
    yield "random bytes", made(b"\xff" * 200), False
    yield "no bytes", made(b""), False
    yield "no records", made(compress(codec, b"")), False
    yield "fewer records than counted", made(stream, 4), False
    yield "more records than counted", made(stream, 2), False
    yield "garbage behind the stream", made(stream + b"garbage!!"), java_ends_there
    yield "two streams", made(two), codec != CODECS["lz4"]
    yield "cut off", made(stream[:-3]), False
    yield "many records cut off", made(compress(codec, MANY)[:-2000], MANY_COUNT), False
    yield "record longer than its fields", made(compress(codec, SHORT_BY_ONE), 2), False
    yield "offsets not in sequence", made(compress(codec, record() + record()), 2), True
    yield "key beyond the record", made(compress(codec, _fields(b"\0\0\0\x7e\1v\0")[61:]), 1), False


def _special() -> Iterator[tuple[str, tuple[bytes, bool]]]:
    yield from _lz4()
    yield from _zstd()
    raw = bytes(cramjam.snappy.compress_raw(MANY))
    yield "snappy: without framing", (raw_batch(raw, MANY_COUNT, codec=2), True)
    other = bytes(cramjam.snappy.compress(THREE))
    yield "snappy: Google's framing", (raw_batch(other, 3, codec=2), False)
    wrong = bytearray(gzip.compress(THREE))
    wrong[-8] ^= 1
    yield "gzip: wrong CRC", (raw_batch(bytes(wrong), 3, codec=1), False)
    samples = [Sample(1000, None, _RANDOM.randbytes(100)) for _ in range(2000)]
    for name, codec in CODECS.items():
        for count in (3, 2000):
            yield f"aiokafka: {name} {count}", (by_aiokafka(samples[:count], codec), True)
            yield f"kafka-python: {name} {count}", (by_kafka_python(samples[:count], codec), True)


def _lz4() -> Iterator[tuple[str, tuple[bytes, bool]]]:
    def frame(data: bytes, *, linked: bool = False, **options: object) -> bytes:
        return bytes(lz4.frame.compress(data, block_linked=linked, **options))

    def made(data: bytes, count: int = MANY_COUNT) -> bytes:
        return raw_batch(data, count, codec=3)

    checked = frame(MANY, content_checksum=True, block_checksum=True, block_size=7)
    plain = frame(MANY, store_size=False)
    yield "lz4: blocks that depend on each other", (made(frame(MANY, linked=True)), False)
    yield "lz4: one block in linked mode", (made(frame(THREE, linked=True), 3), True)
    yield "lz4: with checksums", (made(checked), True)
    # As in Java, a wrong checksum of the content is accepted.
    yield "lz4: wrong checksum of the content", (made(checked[:-1] + b"?"), True)
    yield "lz4: wrong checksum of a block", (made(checked[:-9] + b"?" + checked[-8:]), False)
    yield "lz4: wrong checksum of the header", (made(plain[:6] + b"?" + plain[7:]), False)
    yield "lz4: blocks of 4 MiB", (made(frame(MANY, block_size=7)), True)


def _zstd() -> Iterator[tuple[str, tuple[bytes, bool]]]:
    def made(data: bytes) -> bytes:
        return raw_batch(data, 3, codec=4)

    checked = zstandard.ZstdCompressor(write_checksum=True).compress(THREE)
    yield "zstd: with a checksum", (made(checked), True)
    yield "zstd: wrong checksum", (made(checked[:-1] + b"?"), False)
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"abcd"
    yield "zstd: skippable frame", (made(skipped + compress(4, THREE)), True)
    for log, accepted in ((27, True), (28, False)):
        parameters = zstandard.ZstdCompressionParameters(window_log=log)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        yield f"zstd: window of 2^{log}", (made(stream.compress(THREE) + stream.flush()), accepted)
