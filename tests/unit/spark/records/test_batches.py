"""Batch headers of a Fetch response: truncated, corrupt, control, empty and compacted batches."""

from __future__ import annotations

import pytest
from support.kafka.encoders import CODECS, Sample, altered, by_aiokafka, raw_batch

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.transactions import Aborted
from minikafka.spark.records import checksum
from minikafka.spark.records.batches import Section, extent, grouped, sections

ALL = (0, 2**62)
THREE = by_aiokafka([Sample(1, b"k", b"v")] * 3)


def read(data: bytes, start: int = 0, end: int = 2**62) -> list[Section]:
    return list(sections(memoryview(data), start, end, checksum.find()))


@pytest.mark.parametrize("cut", [1, 11, 12, 40, 61, len(THREE) - 1])
def test_truncated_last_batch_is_ignored(cut):
    data = THREE + altered(THREE, base=3)[:cut]
    assert [section.base_offset for section in read(data)] == [0]
    assert extent(memoryview(data)) == (0, 3, len(THREE), len(THREE))


def test_full_size_of_a_truncated_batch_is_known_once_its_length_field_is_present():
    assert extent(memoryview(THREE[:20])) == (-1, -1, len(THREE), 0)
    assert extent(memoryview(THREE[:5])) == (-1, -1, 0, 0)
    assert extent(memoryview(b"")) == (-1, -1, 0, 0)


def test_batches_outside_the_range_are_not_decompressed():
    broken = raw_batch(b"not gzip", 3, codec=1)
    assert read(broken + altered(THREE, base=3) + altered(broken, base=6), 3, 6)[0].base_offset == 3
    with pytest.raises(CorruptBatch):
        read(broken)


def test_control_batches_are_skipped():
    control = altered(THREE, attributes=0x20, base=3)
    data = THREE + control
    assert [section.base_offset for section in read(data)] == [0]
    assert extent(memoryview(data)).next_offset == 6


TRANSACTIONAL, CONTROL = 0x10, 0x30


def of_producer(producer_id: int, base: int, attributes: int = TRANSACTIONAL) -> bytes:
    return altered(THREE, attributes=attributes, base=base, producer_id=producer_id)


def committed(data: bytes, *aborted: Aborted, start: int = 0) -> list[int]:
    found = sections(memoryview(data), start, 2**62, None, aborted)
    return [section.base_offset for section in found]


def test_aborted_transactions_are_skipped_up_to_their_marker():
    data = b"".join(
        [
            of_producer(7, 0),
            of_producer(8, 3),
            of_producer(7, 6, CONTROL),
            of_producer(7, 9),
            altered(THREE, base=12, producer_id=7),
        ]
    )
    assert committed(data) == [0, 3, 9, 12]
    assert committed(data, Aborted(7, 0)) == [3, 9, 12]
    assert committed(data, Aborted(7, 9), Aborted(8, 3)) == [0, 12]


def test_transaction_aborted_before_the_range_is_skipped_within_it():
    data = of_producer(7, 10) + of_producer(7, 13) + of_producer(7, 16, CONTROL)
    assert committed(data, Aborted(7, 4), start=12) == []


def test_records_outside_transactions_are_read_though_their_producer_aborted_one():
    data = altered(THREE, base=0, producer_id=7) + of_producer(7, 3)
    assert committed(data, Aborted(7, 0)) == [0]


def test_batch_emptied_by_compaction_advances_the_next_offset():
    empty = altered(THREE[:61], length=49, count=0, last_delta=4)
    assert read(empty) == []
    assert extent(memoryview(empty)).next_offset == 5


@pytest.mark.skipif(checksum.find() is None, reason="no CRC-32C library")
def test_flipped_bit_is_detected_by_the_checksum():
    damaged = bytearray(THREE)
    damaged[-3] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        read(bytes(damaged))


@pytest.mark.parametrize(
    "fields", [{"magic": 1}, {"length": 48}, {"length": -1}, {"length": 2**31 - 1}]
)
def test_invalid_batch_headers_are_refused(fields):
    with pytest.raises(CorruptBatch):
        read(altered(THREE, **fields))


@pytest.mark.parametrize("codec", [*CODECS.values()][1:], ids=[*CODECS][1:])
def test_compressed_records_are_decompressed(codec):
    (section,) = read(by_aiokafka([Sample(1, b"k", b"v" * 500)] * 3, codec))
    (plain,) = read(by_aiokafka([Sample(1, b"k", b"v" * 500)] * 3))
    assert section.records == plain.records


def test_decompressed_batches_are_grouped_to_30_bytes_and_a_larger_one_is_alone():
    stream = [Section(0, 0, False, 1, 0, memoryview(bytes(size))) for size in (10, 20, 100, 5, 5)]
    sizes = [[len(section.records) for section in group] for group in grouped(iter(stream), 30)]
    assert sizes == [[10, 20], [100], [5, 5]]
