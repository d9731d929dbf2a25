"""Arrow rows, compared with the input of the encoders of aiokafka and kafka-python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kafka.encoders import CODECS, Sample, altered, by_aiokafka, by_kafka_python, raw_batch

from minikafka.base.errors import CorruptBatch
from minikafka.spark.records import checksum
from minikafka.spark.records.batches import sections
from minikafka.spark.records.decode import SCHEMA, SCHEMA_WITH_HEADERS, TimeOutOfRange, decode

EVERYTHING = (0, 2**62)


def rows(
    data: bytes, start: int = 0, end: int = 2**62, *, with_headers: bool = True, **given: bool
) -> pa.RecordBatch:
    found = list(sections(memoryview(data), start, end, checksum.find()))
    return decode(found, "lines", 3, start, end, with_headers=with_headers, **given)


def moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def expected(samples: Sequence[Sample], base: int = 0) -> list[dict[str, object]]:
    return [
        {
            "key": key,
            "value": value,
            "topic": "lines",
            "partition": 3,
            "offset": base + index,
            "timestamp": moment(timestamp),
            "timestampType": 0,
            "headers": [{"key": name, "value": content} for name, content in headers] or None,
        }
        for index, (timestamp, key, value, headers) in enumerate(samples)
    ]


ODD = [
    Sample(1_700_000_000_000, b"key", b"value"),
    Sample(1_700_000_000_009, None, b"no key"),
    Sample(1_600_000_000_000, b"a time before the first", None),
    Sample(1_700_000_000_001, b"", b"", [("", b""), ("null", None)]),
    Sample(1_700_000_000_001, None, None),
    Sample(1_700_000_000_002, b"k" * 70, b"v" * 20_000, [("h", b"\xff" * 200)] * 3),
    Sample(1_700_000_000_003, "ключ".encode(), bytes(300), [("заголовок", "é".encode())]),
]

record = st.builds(
    Sample,
    st.integers(0, 2**42),
    st.none() | st.binary(max_size=90),
    st.none()
    | st.binary(max_size=300)
    | st.text("\0 @AB").map(lambda text: text.encode("utf-16-le"))
    | st.lists(st.sampled_from([b"\x0c\x00", b"\x00", b"\x80\x02\x00", b"\x90"])).map(b"".join),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3),
)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_every_field_is_decoded_as_it_was_encoded(codec):
    batch = rows(by_aiokafka(ODD, codec))
    assert batch.schema.equals(SCHEMA_WITH_HEADERS)
    batch.validate(full=True)
    assert batch.to_pylist() == expected(ODD)


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.lists(record, min_size=1, max_size=12), min_size=1, max_size=5),
    data=st.data(),
)
def test_random_batches_are_decoded_as_they_were_encoded(batches, data):
    encoded, samples = [], []
    for batch in batches:
        codec = data.draw(st.sampled_from(sorted(CODECS.values())))
        encoded.append(altered(by_aiokafka(batch, codec), base=100 + len(samples)))
        samples += batch
    assert rows(b"".join(encoded)).to_pylist() == expected(samples, 100)


@pytest.mark.parametrize("codec", [CODECS["none"], CODECS["gzip"]])
def test_batches_encoded_by_kafka_python_are_decoded(codec):
    assert rows(by_kafka_python(ODD, codec)).to_pylist() == expected(ODD)


def test_headers_are_left_out_by_default():
    batch = rows(by_aiokafka(ODD), with_headers=False)
    assert batch.schema.equals(SCHEMA)
    assert batch.to_pylist() == [
        {name: value for name, value in row.items() if name != "headers"} for row in expected(ODD)
    ]


def test_exactly_the_offsets_of_a_range_are_decoded_from_several_batches():
    samples = [Sample(5, b"%d" % index, b"v") for index in range(30)]
    data = b"".join(altered(by_aiokafka(samples[at : at + 10]), base=at) for at in (0, 10, 20))
    for start, end in itertools.combinations((0, 3, 9, 10, 11, 20, 29, 30), 2):
        assert rows(data, start, end).column("offset").to_pylist() == list(range(start, end))


def test_offset_gaps_of_compaction_are_kept():
    first = altered(by_aiokafka([Sample(1, b"a", b"1")]), base=7, last_delta=4)
    body = bytes([0, 0, 6, 1, 1, 0]), bytes([0, 0, 18, 1, 1, 0])  # offset deltas 3 and 9
    second = raw_batch(b"".join(bytes([12]) + part for part in body), 2, base=100)
    assert rows(first + altered(second, last_delta=12)).column("offset").to_pylist() == [
        7,
        103,
        109,
    ]


def test_records_with_append_time_have_the_timestamp_of_their_batch():
    batch = altered(by_aiokafka(ODD), attributes=0x08, max_time=1_800_000_000_123)
    columns = rows(batch)
    assert set(columns.column("timestamp").to_pylist()) == {moment(1_800_000_000_123)}
    assert set(columns.column("timestampType").to_pylist()) == {1}


def test_timestamp_before_1970_is_decoded():
    (row,) = rows(altered(by_aiokafka([Sample(0, b"k", b"v")]), first_time=-5_000)).to_pylist()
    assert row["timestamp"] == moment(-5_000)


LAST_MS = 9_223_372_036_854_775


@pytest.mark.parametrize("time", [LAST_MS, -LAST_MS])
def test_timestamps_at_the_limit_of_microseconds_are_decoded(time):
    batch = altered(by_aiokafka([Sample(0, b"k", b"v")]), first_time=time)
    (found,) = rows(batch).column("timestamp").cast(pa.int64()).to_pylist()
    assert found == time * 1000


@pytest.mark.parametrize("time", [LAST_MS + 1, -LAST_MS - 1, 2**63 - 1, -(2**63)])
def test_error_for_a_timestamp_out_of_range_names_the_offset_of_the_record(time):
    first = altered(by_aiokafka([Sample(0, b"k", b"v")] * 2), base=5)
    second = altered(by_aiokafka([Sample(0, b"k", b"v")]), base=7, first_time=time)
    with pytest.raises(TimeOutOfRange, match=f"^offset 7 of lines-3 has the timestamp {time} ms"):
        rows(first + second)
    assert rows(first + second, 0, 7).num_rows == 2


def test_timestamp_out_of_range_is_null_if_it_must_not_fail():
    first = altered(by_aiokafka([Sample(0, b"k", b"v")]), base=5, first_time=2**63 - 1)
    second = altered(by_aiokafka([Sample(0, b"k", b"v")]), base=6, first_time=LAST_MS)
    found = rows(first + second, fail_on_far_times=False).column("timestamp")
    assert found.cast(pa.int64()).to_pylist() == [None, LAST_MS * 1000]


def test_invalid_utf8_in_header_keys_is_replaced_as_in_java():
    record = bytes([0, 0, 0, 1, 1, 4]) + bytes([2, 0xFF, 1]) + bytes([2]) + b"a" + bytes([2]) + b"b"
    (row,) = rows(raw_batch(bytes([len(record) * 2]) + record, 1)).to_pylist()
    assert row["headers"] == [
        {"key": "\N{REPLACEMENT CHARACTER}", "value": None},
        {"key": "a", "value": b"b"},
    ]


RECORD = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([0])

DAMAGED = {
    "a key longer than the record": bytes([0, 0, 0, 60]) + RECORD[4:],
    "a value longer than the record": RECORD[:5] + bytes([60]) + RECORD[6:],
    "a value length below null": RECORD[:5] + bytes([3]) + RECORD[6:],
    "a number that does not end": bytes([0]) + b"\xff" * 11 + RECORD,
    "bytes left over after the headers": RECORD + b"xy",
    "fewer than no headers": RECORD[:-1] + bytes([1]),
    "a header that is not there": RECORD[:-1] + bytes([2]),
    "a record declares more headers than it has bytes": RECORD[:-1] + b"\xfe\xff\xff\xff\x0f",
    "a header has no key": RECORD[:-1] + bytes([2, 1, 0]),
}


@pytest.mark.parametrize("record", DAMAGED.values(), ids=DAMAGED)
def test_inconsistent_record_is_refused(record):
    batch = raw_batch(bytes([len(record) * 2]) + record, 1)
    with pytest.raises(CorruptBatch):
        rows(batch)


@pytest.mark.parametrize("count", [1, 3])
def test_batch_with_a_wrong_record_count_is_refused(count):
    record = bytes([len(RECORD) * 2]) + RECORD
    with pytest.raises(CorruptBatch):
        rows(raw_batch(record * 2, count))


def test_decreasing_offsets_are_refused():
    with pytest.raises(CorruptBatch, match="increase"):
        rows(by_aiokafka(ODD) * 2)


def test_random_damage_raises_only_the_documented_errors():
    whole = by_aiokafka([*ODD[:5], Sample(9, b"k", b"v" * 70, [("h", b"x")])])
    for position in range(61, len(whole)):
        for value in (0, 0x7F, 0xFF):
            damaged = bytearray(whole)
            damaged[position] = value
            found = list(sections(memoryview(damaged), *EVERYTHING, None))
            try:
                batch = decode(found, "lines", 3, *EVERYTHING, with_headers=True)
            except CorruptBatch:
                continue
            batch.validate(full=True)


def test_records_of_plain_text_are_found_without_trying_every_byte_as_a_start(monkeypatch):
    """The fast search for record starts must suffice for ordinary text: testing every byte takes 30 times as long."""
    monkeypatch.setattr(
        "minikafka.spark.records.starts._all", lambda data: pytest.fail("fell back")
    )
    samples = [
        Sample(index, b"key %d" % index, b"some text %d" % index * 40) for index in range(2_000)
    ]
    assert rows(by_aiokafka(samples)).num_rows == 2_000
