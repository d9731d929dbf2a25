"""Splitting of offset ranges into tasks."""

from __future__ import annotations

import random

import pytest

from minikafka.base.model import TopicPartition
from minikafka.spark.source.ranges import OffsetRange, split


def of(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), start, end)


def test_empty_ranges_are_left_out():
    assert split([of(0, 5, 5), of(1, 0, 1)], None, None) == [of(1, 0, 1)]


def test_max_records_bounds_every_range():
    assert split([of(0, 0, 10)], 4, None) == [of(0, 0, 3), of(0, 3, 6), of(0, 6, 10)]
    assert split([of(0, 0, 10)], 10, None) == [of(0, 0, 10)]


def test_range_is_split_so_that_larger_pieces_come_last():
    assert [one.end for one in split([of(0, 0, 10)], 3, None)] == [2, 4, 7, 10]


def test_min_partitions_cut_only_the_large_ranges():
    assert split([of(0, 0, 100), of(1, 0, 1)], None, 3) == [
        of(0, 0, 50),
        of(0, 50, 100),
        of(1, 0, 1),
    ]


def test_min_partitions_below_the_number_of_ranges_cut_nothing():
    ranges = [of(0, 0, 100), of(1, 0, 1)]
    assert split(ranges, None, 2) == ranges


def test_range_is_never_cut_into_more_pieces_than_offsets():
    assert split([of(0, 7, 9)], None, 50) == [of(0, 7, 8), of(0, 8, 9)]


@pytest.mark.parametrize("seed", range(50))
def test_split_ranges_cover_the_same_offsets_in_order(seed):
    rng = random.Random(seed)
    ranges = [of(index, 10, 10 + rng.randrange(200)) for index in range(rng.randrange(1, 6))]
    max_records, min_partitions = rng.choice([None, 1, 7]), rng.choice([None, 1, 9, 400])
    found = split(ranges, max_records, min_partitions)
    assert [(one.tp, offset) for one in found for offset in range(one.start, one.end)] == [
        (one.tp, offset) for one in ranges for offset in range(one.start, one.end)
    ]
    assert all(one.size <= (max_records or one.size) for one in found)
    assert len(found) >= min(min_partitions or 0, sum(one.size for one in ranges)) // 2
