"""Encoded batches are read back by aiokafka's reader and by our decoder."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from minikafka.kafka.records.header import CODECS
from minikafka.spark.records import checksum, varints
from minikafka.spark.records.batches import sections
from minikafka.spark.records.decode import decode
from minikafka.spark.records.encode import Producer, Rows, cut, encode, sizes

PRODUCER = Producer(4711, 3)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MOMENT = 1_700_000_000_000
SHORT = ("none", "gzip")
"""Codecs that aiokafka decodes without an additional library."""


def rows_of(records: list[tuple]) -> Rows:
    """Return `Rows` made from records of (key, value, timestamp, headers)."""
    keys, values, times, headers = zip(*records, strict=True)
    lists = [[{"key": k, "value": v} for k, v in some] if some else None for some in headers]
    return Rows(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        np.array(times, dtype=np.int64),
        pa.array(lists, HEADERS) if any(headers) else None,
        np.arange(len(records)),
    )


def random_records(seed: int, *, with_headers: bool) -> list[tuple]:
    rng = random.Random(seed)

    def content() -> bytes | None:
        size = rng.choice([0, 1, 62, 63, 64, 65, 200, 9_000])
        return None if rng.random() < 0.2 else rng.randbytes(size)

    def headers() -> list[tuple[str, bytes | None]]:
        return [(f"h\u00e4{n}" * n, content()) for n in range(rng.choice([0, 0, 1, 3]))]

    return [
        (
            content(),
            content(),
            MOMENT + rng.randrange(-10_000, 10_000),
            headers() if with_headers else [],
        )
        for _ in range(rng.randrange(1, 200))
    ]


def encoded(rows: Rows, codec: str = "none", sequence: int = 17) -> bytes:
    crc = checksum.find()
    assert crc is not None
    return bytes(encode(rows, CODECS[codec], PRODUCER, sequence, crc))


@pytest.mark.parametrize("codec", SHORT)
@pytest.mark.parametrize("with_headers", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_aiokafka_decodes_the_encoded_records(seed, with_headers, codec):
    records = random_records(seed, with_headers=with_headers)
    batch = DefaultRecordBatch(encoded(rows_of(records), codec))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 17)
    assert batch.max_timestamp == max(time for _, _, time, _ in records)
    found = [(one.key, one.value, one.timestamp, list(one.headers)) for one in batch]
    assert found == records


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_every_codec_are_read_back_by_the_decoder(codec):
    records = random_records(99, with_headers=True)
    data = memoryview(encoded(rows_of(records), codec))
    found = decode(
        list(sections(data, 0, 10**6, checksum.find())), "t", 0, 0, 10**6, with_headers=True
    )
    assert found.column("key").to_pylist() == [key for key, _, _, _ in records]
    assert found.column("value").to_pylist() == [value for _, value, _, _ in records]
    times = found.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [1_000 * time for _, _, time, _ in records]
    assert [
        None if some is None else [(one["key"], one["value"]) for one in some]
        for some in found.column("headers").to_pylist()
    ] == [some or None for _, _, _, some in records]


@pytest.mark.parametrize("size", [10, 100_000, 9 << 20])
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_any_size_are_read_back(codec, size):
    value = random.Random(5).randbytes(size // 2) + bytes(size // 2)
    data = memoryview(encoded(rows_of([(b"k", value, MOMENT, [])]), codec))
    found = decode(list(sections(data, 0, 1, checksum.find())), "t", 0, 0, 1, with_headers=False)
    assert found.column("value").to_pylist() == [value]


def test_slice_of_rows_is_encoded_like_the_same_rows_alone():
    records = random_records(3, with_headers=True)
    half = len(records) // 2
    assert encoded(rows_of(records).part(half, len(records))) == encoded(rows_of(records[half:]))


def lengths(rows: Rows, most_bytes: int) -> list[int]:
    """Return the number of rows of each batch."""
    total = np.cumsum(sizes(rows))
    return [end - start for start, end in cut(total, 0, len(rows), most_bytes)]


def test_rows_are_cut_into_batches_by_bytes_and_number_of_rows():
    records = [(None, b"v" * size, MOMENT, []) for size in (10, 10, 5_000, 10, 10)]
    assert lengths(rows_of(records), 100) == [2, 1, 2]
    many = [(None, b"", MOMENT, [])] * 25_000
    assert lengths(rows_of(many), 10**9) == [10_000, 10_000, 5_000]


def test_varints_of_the_largest_numbers_are_read_back():
    numbers = np.array([0, -1, 1, 63, 64, -65, 2**31, -(2**31), 2**63 - 1, -(2**63)])
    from minikafka.spark.records.starts import varints as read

    written = varints.binary([numbers])
    data = np.frombuffer(b"".join(written.to_pylist()) + bytes(10), np.uint8)
    lengths = [len(value) for value in written.to_pylist()]
    positions = np.cumsum([0, *lengths[:-1]])
    found, after = read(data, positions, 10)
    assert found.tolist() == numbers.tolist()
    assert after.tolist() == np.cumsum(lengths).tolist()


def test_record_headers_count_when_rows_are_cut_into_batches_by_bytes():
    large = [{"key": "k" * 50, "value": b"v" * 50}]
    headers = pa.array([large, None, [], large, [{"key": "", "value": None}]], HEADERS)
    nulls = pa.nulls(5, pa.binary())
    times = np.arange(5, dtype=np.int64)
    rows = Rows(nulls, nulls, times, headers, times)
    assert lengths(rows, 160) == [2, 2, 1]
