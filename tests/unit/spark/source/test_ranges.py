"""Splitting of offset ranges, and their division among tasks."""

from __future__ import annotations

import random
from itertools import pairwise

from support.cases import for_each

from minikafka.base.model import TopicPartition
from minikafka.spark.source.ranges import OffsetRange, default_tasks, grouped, split


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


@for_each(range(50))
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


def test_ranges_that_are_fewer_than_the_tasks_are_not_grouped():
    ranges = [of(0, 0, 10), of(1, 0, 1)]
    assert grouped(ranges, 2, None) == [(ranges[0],), (ranges[1],)]
    assert grouped([], 2, None) == []


def test_large_range_is_alone_in_its_task():
    ranges = [of(number, 0, 1_000 if number == 3 else 1) for number in range(20)]
    assert (ranges[3],) in grouped(ranges, 2, None)


def test_parts_of_a_partition_in_one_task_are_in_order():
    parts = [of(0, 20, 30), of(0, 0, 10), of(0, 10, 20)]
    assert grouped(parts, 1, None) == [(parts[1], parts[2], parts[0])]


def test_equal_ranges_become_tasks_of_equal_size():
    ranges = [of(number, 0, 10) for number in range(200)]
    assert [len(task) for task in grouped(ranges, 4, None)] == [50] * 4


def test_default_number_of_tasks_grows_with_the_cores_and_the_offsets():
    assert default_tasks([of(0, 0, 10)], 8) == 8
    assert default_tasks([of(0, 0, 399_999)], 8) == 8
    assert default_tasks([of(0, 0, 400_000)], 8) == 16
    assert default_tasks([of(0, 0, 10_000_000)], 8) == 40


@for_each(range(200))
def test_grouped_ranges_keep_every_offset_and_the_bounds_of_tasks(seed):
    rng = random.Random(seed)
    sizes = [rng.choice([1, 10, 1_000]) * rng.randrange(1, 9) for _ in range(rng.randrange(1, 60))]
    max_records, min_partitions = rng.choice([None, 50, 5_000]), rng.choice([None, 3, 90])
    partitions = [of(number, 7, 7 + size) for number, size in enumerate(sizes)]
    ranges = split(partitions, max_records, min_partitions)
    tasks = max(rng.randrange(1, 12), min_partitions or 0)
    found = grouped(ranges, tasks, max_records)
    assert sorted((one for task in found for one in task), key=place) == ranges
    for task in found:
        assert task
        assert all(place(first) < place(second) for first, second in pairwise(task))
    totals = [sum(one.size for one in task) for task in found]
    if max_records is None:
        assert len(found) <= tasks
        assert max(totals) <= sum(totals) / len(found) + max(one.size for one in ranges)
    else:
        assert max(totals) <= max_records
        assert len(found) <= max(tasks, 2 * sum(totals) // max_records + 1)
    if min_partitions is not None:
        assert len(found) >= min(min_partitions, len(ranges))


def place(wanted: OffsetRange) -> tuple[TopicPartition, int]:
    return wanted.tp, wanted.start
