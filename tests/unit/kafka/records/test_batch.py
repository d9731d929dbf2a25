"""Record batches: validation of produced batches, stamping, decoding."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.base.errors import CorruptBatch, ErrorCode
from minikafka.kafka.records import batch as b
from minikafka.kafka.records.batch import (
    Record,
    build,
    build_marker,
    check_produced,
    end_of_transaction,
    records,
    refusal_of_fragment,
    stamp,
    valid_run,
)
from minikafka.kafka.records.codecs import crc32c
from minikafka.kafka.records.header import HEADER


def check(data: bytes, end: int | None = None) -> int:
    padded = b"head" + bytes(data)
    stop = len(padded) if end is None else 4 + end
    return check_produced(memoryview(padded)[4:stop], HEADER.unpack_from(padded, 4), False)


def produced(**fields: int) -> bytes:
    return build([Record(timestamp=5, value=b"v")], **fields)


def patched(data: bytes, fix_crc: bool = True, **fields: int) -> bytes:
    """Return the batch with these header fields replaced, and with a valid CRC if `fix_crc` is True."""
    header = list(HEADER.unpack_from(data))
    for name, value in fields.items():
        header[getattr(b, name.upper())] = value
    changed = bytearray(data)
    HEADER.pack_into(changed, 0, *header)
    if fix_crc:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


@pytest.mark.parametrize("codec", range(5))
def test_valid_batch_is_accepted(codec: int) -> None:
    data = build(
        [Record(timestamp=5, value=b"v")] * 3,
        codec=codec,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    assert check(data) == 0


def transactional() -> bytes:
    return build(
        [Record(timestamp=5, value=b"v")],
        attributes=b.TRANSACTIONAL,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )


INVALID = ErrorCode.INVALID_RECORD
REFUSED: list[tuple[str, Callable[[bytes], bytes], ErrorCode]] = [
    ("of magic 1", lambda data: patched(data, magic=1), INVALID),
    ("of magic 3", lambda data: patched(data, magic=3), ErrorCode.CORRUPT_MESSAGE),
    ("of negative magic", lambda data: patched(data, magic=-1), ErrorCode.CORRUPT_MESSAGE),
    ("timed by the broker", lambda data: patched(data, attributes=8), ErrorCode.INVALID_TIMESTAMP),
    ("with a base offset", lambda data: patched(data, base_offset=1), INVALID),
    ("with another behind it", lambda data: data + data, INVALID),
    ("that is a control batch", lambda data: patched(data, attributes=b.CONTROL), INVALID),
    ("with no record", lambda data: patched(data, count=0, last_offset_delta=-1), INVALID),
    ("whose count is not its offsets", lambda data: patched(data, count=2), INVALID),
    ("with more records than bytes", lambda data: patched(data, count=9, last_offset_delta=8), INVALID),
    (
        "with more records than any codec packs",
        lambda data: patched(data, attributes=4, count=2**31 - 1, last_offset_delta=2**31 - 2),
        INVALID,
    ),
    ("of a producer without sequence", lambda data: patched(data, producer_id=1), INVALID),
    ("transactional of no producer", lambda data: patched(data, attributes=b.TRANSACTIONAL), INVALID),
    ("transactional with a wrong CRC", lambda data: transactional()[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    ("of an unknown codec", lambda data: patched(data, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("longer than the field", lambda data: patched(data, batch_length=10_000), INVALID),
    ("shorter than a header", lambda data: patched(data, batch_length=48), ErrorCode.CORRUPT_MESSAGE),
    ("of negative length", lambda data: patched(data, batch_length=-1), ErrorCode.CORRUPT_MESSAGE),
    ("with a wrong CRC", lambda data: patched(data, fix_crc=False, crc=1), ErrorCode.CORRUPT_MESSAGE),
    ("with a flipped bit", lambda data: data[:-1] + bytes([data[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_invalid_batch_is_refused(change: Callable[[bytes], bytes], code: ErrorCode) -> None:
    assert check(change(produced())) == code


def legacy(size: int, magic: int = 0, length: int | None = None) -> bytes:
    """Return a message of an old magic with this total size, or bytes that resemble such a message."""
    head = struct.pack(">qiIb", 0, size - 12 if length is None else length, 0, magic)
    return (head + bytes(size))[:size]


FRAGMENTS = [
    ("nothing", b"", INVALID),
    ("less than an offset and a length", bytes(11), INVALID),
    ("a length that no message has", legacy(60, length=13), ErrorCode.CORRUPT_MESSAGE),
    ("a length and no magic", legacy(16, length=100), INVALID),
    ("a whole old message", legacy(40), INVALID),
    ("a whole old message of magic 1", legacy(40, magic=1), INVALID),
    ("the begin of an old message", legacy(40, length=100), INVALID),
    ("a magic that there is not", legacy(40, magic=3), ErrorCode.CORRUPT_MESSAGE),
    ("the begin of a batch", produced()[:60], INVALID),
    ("a batch shorter than its header", legacy(60, magic=2), ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(
    ("data", "code"), [row[1:] for row in FRAGMENTS], ids=[row[0] for row in FRAGMENTS]
)
def test_records_too_short_for_a_batch_are_refused_as_in_kafka(
    data: bytes, code: ErrorCode
) -> None:
    assert refusal_of_fragment(memoryview(data)) == code


def test_null_records_are_refused() -> None:
    assert refusal_of_fragment(memoryview(b"head")[-1:-1]) == INVALID


@given(st.binary(min_size=61, max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_never_accepted(data: bytes) -> None:
    assert check(data) != 0


def test_many_small_records_in_a_compressed_batch_are_accepted() -> None:
    assert check(build([Record(timestamp=5)] * 20_000, codec=4)) == 0


def test_stamping_offset_and_epoch_keeps_the_crc_valid() -> None:
    data = bytearray(b"head" + produced())
    header = HEADER.unpack_from(data, 4)
    stamp(data, 4, 1234, header[b.BATCH_LENGTH], 9)
    view = memoryview(data)
    headers, stop, next_offset = valid_run(data, view, 4, len(data), 1234, False)
    assert (stop, next_offset) == (len(data), 1234 + header[b.COUNT])
    assert headers[0] == (1234, header[1], 9, *header[3:])


def test_log_append_time_sets_the_brokers_time_on_every_record() -> None:
    data = bytearray(build([Record(timestamp=5), Record(timestamp=9)]))
    b.stamp_append_time(memoryview(data), 777)
    assert [record.timestamp for record in records(data)] == [777, 777]
    assert HEADER.unpack_from(data)[b.MAX_TIMESTAMP] == 777
    assert valid_run(data, memoryview(data), 0, len(data), 0, False)[1] == len(data)


def test_valid_run_of_batches_ends_at_the_first_gap_or_damaged_batch() -> None:
    made = [bytearray(build([Record(value=b"v")] * 2, base_offset=offset)) for offset in (0, 2, 4)]
    size = len(made[0])
    whole = b"".join(made)
    assert len(valid_run(whole, memoryview(whole), 0, len(whole), 0, False)[0]) == 3
    cut = whole[:-1]
    assert valid_run(cut, memoryview(cut), 0, len(cut), 0, False)[1] == 2 * size
    gap = bytes(made[0] + made[2])
    assert valid_run(gap, memoryview(gap), 0, len(gap), 0, False)[1] == size
    made[1][70] ^= 1
    rotten = b"".join(made)
    assert valid_run(rotten, memoryview(rotten), 0, len(rotten), 0, False)[1] == size
    assert valid_run(whole, memoryview(whole), 0, len(whole), 1, False) == ([], 0, 1)


fields = st.none() | st.binary(max_size=20)
some_records = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 2**40),
        key=fields,
        value=fields,
        headers=st.lists(st.tuples(st.text(max_size=5), fields), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=10,
)


@given(some_records, st.integers(0, 4), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_records_are_decoded_as_they_were_built(made: list[Record], codec: int, base: int) -> None:
    data = build(made, codec=codec, base_offset=base)
    expected = [record._replace(offset=base + i) for i, record in enumerate(made)]
    assert list(records(data)) == expected
    header = HEADER.unpack_from(data)
    assert header[b.MAX_TIMESTAMP] == max(record.timestamp for record in made)
    assert header[b.COUNT] == len(made)


def test_records_of_control_batches_and_truncated_batches_are_skipped() -> None:
    data = produced() + build([Record(key=b"k")], base_offset=1, attributes=b.CONTROL)
    data += build([Record(value=b"last")], base_offset=2)
    cut_off = build([Record(value=b"more")], base_offset=3)[:-1]
    assert [record.offset for record in records(data + cut_off)] == [0, 2]
    assert [record.offset for record in records(data, control=True)] == [0, 1, 2]


def test_damaged_batch_raises_corrupt_batch_when_its_records_are_read() -> None:
    flipped = bytearray(produced())
    flipped[-1] ^= 1
    for data in (bytes(flipped), patched(produced(), magic=1), patched(produced(), batch_length=3)):
        with pytest.raises(CorruptBatch):
            list(records(data))


@given(st.binary(max_size=40), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_invalid_records_raise_only_corrupt_batch(body: bytes, count: int) -> None:
    header = (0, 49 + len(body), 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    data = patched(HEADER.pack(*header) + body)
    with suppress(CorruptBatch):
        list(records(data))


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_read_by_aiokafka_and_aiokafkas_batches_are_read(codec: int) -> None:
    rows = [Record(i, 100 + i, b"k%d" % i, b"v" * i, (("h", b"x"),)) for i in range(5)]
    read = MemoryRecords(build(rows, codec=codec)).next_batch()
    assert read is not None
    assert read.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in read] == [row[:4] for row in rows]

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10_000,
    )
    for offset, timestamp, key, value, headers in rows:
        builder.append(offset, timestamp, key, value, list(headers))
    built = bytes(builder.build())
    assert check(built) == 0
    assert list(records(built)) == rows


@pytest.mark.parametrize("committed", [False, True])
def test_marker_is_a_control_batch_of_one_record(committed: bool) -> None:
    made = build_marker(7, 3, committed=committed, coordinator_epoch=5, timestamp=1_700_000_000_000)
    key, value = struct.pack(">hh", 0, committed), struct.pack(">hi", 0, 5)
    record = Record(timestamp=1_700_000_000_000, key=key, value=value)
    fields = {"producer_id": 7, "producer_epoch": 3, "attributes": b.TRANSACTIONAL | b.CONTROL}
    assert made == build([record], **fields)
    assert end_of_transaction(made) == (committed, 5)
    longer = Record(timestamp=1, key=key + b"?", value=value + b"?")
    assert end_of_transaction(build([longer], **fields)) == (committed, 5)
    assert end_of_transaction(build([record._replace(value=b"\0")], **fields)) == (committed, -1)
    emptied = patched(made[: b.HEADER_BYTES], count=0, batch_length=49)
    assert end_of_transaction(emptied) == (None, -1)


def test_damaged_marker_raises_corrupt_batch() -> None:
    made = build_marker(7, 3, committed=True, coordinator_epoch=5, timestamp=1)
    with pytest.raises(CorruptBatch):
        end_of_transaction(made[:-8] + b"?" + made[-7:])
