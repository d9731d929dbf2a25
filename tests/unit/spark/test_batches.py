"""Batch headers of a Fetch answer: cut, corrupt, control, empty and compacted ones."""

from __future__ import annotations

import pytest
from support.encoders import CODECS, Sample, altered, by_aiokafka, raw_batch

from minikafka.base.errors import CorruptBatch
from minikafka.spark import checksum
from minikafka.spark.batches import Section, extent, grouped, sections

ALL = (0, 2**62)
THREE = by_aiokafka([Sample(1, b"k", b"v")] * 3)


def read(data: bytes, start: int = 0, end: int = 2**62) -> list[Section]:
    return list(sections(memoryview(data), start, end, checksum.find()))


@pytest.mark.parametrize("cut", [1, 11, 12, 40, 61, len(THREE) - 1])
def test_a_batch_cut_off_at_the_end_is_as_if_it_were_not_there(cut):
    data = THREE + altered(THREE, base=3)[:cut]
    assert [section.base_offset for section in read(data)] == [0]
    assert extent(memoryview(data)) == (3, len(THREE))


def test_the_size_of_a_first_batch_that_is_not_whole_is_known():
    assert extent(memoryview(THREE[:20])) == (-1, len(THREE))
    assert extent(memoryview(THREE[:5])) == (-1, 0)
    assert extent(memoryview(b"")) == (-1, 0)


def test_batches_outside_the_range_are_not_even_inflated():
    broken = raw_batch(b"not gzip", 3, codec=1)
    assert read(broken + altered(THREE, base=3) + altered(broken, base=6), 3, 6)[0].base_offset == 3
    with pytest.raises(CorruptBatch):
        read(broken)


def test_control_batches_are_skipped_and_passed():
    control = altered(THREE, attributes=0x20, base=3)
    data = THREE + control
    assert [section.base_offset for section in read(data)] == [0]
    assert extent(memoryview(data)).next_offset == 6


def test_a_batch_that_compaction_emptied_gives_nothing_but_counts_as_passed():
    empty = altered(THREE[:61], length=49, count=0, last_delta=4)
    assert read(empty) == []
    assert extent(memoryview(empty)).next_offset == 5


@pytest.mark.skipif(checksum.find() is None, reason="no CRC-32C library")
def test_one_flipped_bit_is_noticed():
    damaged = bytearray(THREE)
    damaged[-3] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        read(bytes(damaged))


@pytest.mark.parametrize(
    "fields", [{"magic": 1}, {"length": 48}, {"length": -1}, {"length": 2**31 - 1}]
)
def test_headers_that_cannot_be_are_refused(fields):
    with pytest.raises(CorruptBatch):
        read(altered(THREE, **fields))


@pytest.mark.parametrize("codec", [*CODECS.values()][1:], ids=[*CODECS][1:])
def test_compressed_records_are_inflated(codec):
    (section,) = read(by_aiokafka([Sample(1, b"k", b"v" * 500)] * 3, codec))
    (plain,) = read(by_aiokafka([Sample(1, b"k", b"v" * 500)] * 3))
    assert section.records == plain.records


def test_groups_stay_near_their_limit_but_hold_at_least_one_section():
    stream = [Section(0, 0, False, 1, memoryview(bytes(size))) for size in (10, 20, 100, 5, 5)]
    sizes = [[len(section.records) for section in group] for group in grouped(iter(stream), 30)]
    assert sizes == [[10, 20], [100], [5, 5]]
