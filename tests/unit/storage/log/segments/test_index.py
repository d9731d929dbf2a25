"""The sparse indexes: Kafka's file format, lookups, truncation, and invalid files."""

from __future__ import annotations

import struct

import pytest

from minikafka.storage.log.segments.index import UNKNOWN_BASE, OffsetIndex, TimeIndex


def filled() -> OffsetIndex:
    index = OffsetIndex()
    for last, position, base in [(9, 5000, 5), (19, 9500, 15), (29, 14_000, 20)]:
        index.lasts.append(last)
        index.positions.append(position)
        index.bases.append(base)
    return index


def test_offset_index_file_holds_last_offset_and_position_of_each_entry() -> None:
    data = filled().encode()
    assert data == struct.pack(">6i", 9, 5000, 19, 9500, 29, 14_000)
    read = OffsetIndex.decode(data, 15_000)
    assert read is not None
    assert list(read.lasts) == [9, 19, 29]
    assert list(read.positions) == [5000, 9500, 14_000]
    assert set(read.bases) == {UNKNOWN_BASE}


@pytest.mark.parametrize(
    ("offset", "slot"), [(0, -1), (8, -1), (9, 0), (18, 0), (19, 1), (10_000, 2)]
)
def test_offset_lookup_returns_the_last_entry_that_ends_at_or_below_the_offset(
    offset: int, slot: int
) -> None:
    assert filled().slot_before(offset) == slot


def test_index_slot_is_found_by_file_position() -> None:
    index = filled()
    assert [index.slot_at_or_before(p) for p in (0, 4999, 5000, 9499, 20_000)] == [-1, -1, 0, 0, 2]


def test_truncation_forgets_entries_at_and_above_the_cut() -> None:
    index = filled()
    index.truncate(9500)
    assert list(index.positions) == [5000]
    assert len(index.bases) == len(index.lasts) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"1234567",
        struct.pack(">4i", 9, 5000, 9, 6000),
        struct.pack(">4i", 9, 5000, 19, 5000),
        struct.pack(">4i", 9, 5000, 0, 0),
        struct.pack(">2i", 9, 15_000),
        struct.pack(">2i", -1, 10),
    ],
    ids=["odd size", "offsets stand", "positions stand", "zeros of Kafka", "behind the log", "negative"],
)  # fmt: skip
def test_offset_index_file_that_does_not_fit_its_segment_is_ignored(data: bytes) -> None:
    assert OffsetIndex.decode(data, 15_000) is None


def test_time_index_holds_only_increasing_timestamps() -> None:
    times = TimeIndex()
    for timestamp, offset in [(-1, 0), (100, 5), (90, 8), (100, 9), (120, 12), (130, 12)]:
        times.maybe_add(timestamp, offset)
    assert times.encode() == struct.pack(">qiqi", 100, 5, 120, 12)
    assert times.last == (120, 12)
    read = TimeIndex.decode(times.encode())
    assert read is not None
    assert read.last == (120, 12)
    assert read.last_timestamp == 120


def test_time_lookup_returns_the_last_entry_that_is_earlier() -> None:
    times = TimeIndex()
    times.maybe_add(100, 5)
    times.maybe_add(120, 12)
    found = [times.entry_before(timestamp) for timestamp in (50, 100, 101, 120, 121)]
    assert found == [(-1, 0), (-1, 0), (100, 5), (100, 5), (120, 12)]


def test_the_time_index_is_truncated_by_offset_and_can_grow_again() -> None:
    times = TimeIndex()
    times.maybe_add(100, 5)
    times.maybe_add(120, 12)
    times.truncate(12)
    assert times.last == (100, 5)
    times.maybe_add(110, 12)
    assert times.last == (110, 12)
    times.truncate(0)
    assert times.last == (-1, -1)


@pytest.mark.parametrize(
    "data", [b"12345", struct.pack(">qiqi", 100, 5, 100, 6), struct.pack(">qi", -1, 5)]
)
def test_invalid_time_index_file_is_ignored(data: bytes) -> None:
    assert TimeIndex.decode(data) is None
