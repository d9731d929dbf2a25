"""The choice of neighbouring segments that a cleaning joins to one segment."""

from __future__ import annotations

from minikafka.storage.log.cleaner.cleaning import Size, grouped
from minikafka.storage.log.segments.segment import RELATIVE_OFFSET_MAX


def sizes(*records: int, index: int = 8, step: int = 10) -> list[Size]:
    return [Size(step * slot, size, index, 12) for slot, size in enumerate(records)]


def test_segments_are_joined_up_to_the_size_of_one_segment() -> None:
    assert grouped(sizes(40, 40, 40, 90, 10), 100, 1_000, 50) == [[0, 10], [20], [30, 40]]


def test_group_of_segments_is_limited_by_the_size_of_the_indexes() -> None:
    assert grouped(sizes(1, 1, 1), 100, 16, 30) == [[0], [10], [20]]
    assert grouped(sizes(1, 1, 1), 100, 24, 30) == [[0, 10], [20]]


def test_group_of_segments_spans_at_most_the_offset_range_of_one_segment() -> None:
    step = RELATIVE_OFFSET_MAX // 2 + 1
    assert grouped(sizes(1, 1, 1, step=step), 100, 1_000, 3 * step) == [[0, step], [2 * step]]


def test_empty_segment_joins_a_group_at_any_offset() -> None:
    step = RELATIVE_OFFSET_MAX + 1
    assert grouped(sizes(1, 0, 1, step=step), 100, 1_000, 3 * step) == [[0, step], [2 * step]]
