"""The part of a log that can be cleaned now, and the conditions under which a log is due for cleaning."""

from __future__ import annotations

from typing import Any

import pytest
from support.storage.logs import batch, open_log, produce

from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.cleaner.dirt import Dirt, dirt_of, is_due
from minikafka.storage.log.log import Log

SIZE = len(batch())
NOW = 1_000_000


def log(*, records: int = 50, **settings: Any) -> Log:
    """Return a log of one-record batches, 10 in each segment; record N has the timestamp 1000 × N."""
    made = open_log(
        MemoryStorage(), segment_bytes=10 * SIZE, cleanup_policy=("compact",), **settings
    )
    for number in range(records):
        produce(made, 1, timestamp=1_000 * number)
    return made


def test_active_segment_is_never_dirty() -> None:
    dirt = dirt_of(log(), 50, NOW)
    assert dirt == Dirt(0, 40, 0, 40 * SIZE)


def test_segment_that_extends_above_the_last_stable_offset_is_not_cleaned() -> None:
    assert dirt_of(log(), 29, NOW).uncleanable_offset == 20
    assert dirt_of(log(), 30, NOW).uncleanable_offset == 30


def test_dirty_ratio_is_the_share_of_bytes_above_the_last_cleaned_offset() -> None:
    made = log()
    made.gaps.mark(30)
    dirt = dirt_of(made, 50, NOW)
    assert dirt == Dirt(30, 40, 30 * SIZE, 10 * SIZE)
    assert dirt.ratio == 0.25


def test_first_dirty_offset_is_at_least_the_log_start_offset() -> None:
    made = log()
    made.gaps.mark(10)
    made.log_start_offset = 25
    assert dirt_of(made, 50, NOW).first_dirty_offset == 25


def test_records_younger_than_the_minimum_lag_are_not_cleaned() -> None:
    made = log(min_compaction_lag_ms=10_000)
    assert dirt_of(made, 50, 35_000).uncleanable_offset == 20
    assert dirt_of(made, 50, 39_000).uncleanable_offset == 30
    assert dirt_of(made, 50, 5_000) == Dirt(0, 0, 0, 0)


@pytest.mark.parametrize(("ratio", "due"), [(0.24, True), (0.25, False)])
def test_log_is_due_for_cleaning_above_the_minimum_dirty_ratio(ratio: float, due: bool) -> None:
    made = log(min_cleanable_dirty_ratio=ratio)
    made.gaps.mark(30)
    assert is_due(made, dirt_of(made, 50, NOW)) is due


def test_log_is_due_for_cleaning_when_a_record_exceeds_the_maximum_compaction_lag() -> None:
    made = log(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=100_000)
    made.gaps.mark(30)
    assert not is_due(made, dirt_of(made, 50, 130_000))
    overdue = dirt_of(made, 50, 130_001)
    assert (overdue.overdue_ms, is_due(made, overdue)) == (1, True)


def test_overdue_time_is_that_of_the_oldest_dirty_segment_with_a_timestamp() -> None:
    """The first record has the timestamp 0, which counts as missing, as in Kafka."""
    made = log(max_compaction_lag_ms=100_000)
    assert [dirt_of(made, 50, now).overdue_ms for now in (110_000, 110_001, 115_000)] == [
        0,
        1,
        5_000,
    ]


def test_young_records_that_are_already_clean_do_not_delay_a_cleaning() -> None:
    made = open_log(
        MemoryStorage(), segment_bytes=SIZE, cleanup_policy=("compact",), min_compaction_lag_ms=100
    )
    for timestamp in (9_950, 100, 200, 9_960, 300):
        produce(made, 1, timestamp=timestamp)
    made.gaps.mark(1)
    assert dirt_of(made, 5, 10_000).uncleanable_offset == 3


def test_log_without_dirty_segments_is_not_due_for_cleaning_at_a_ratio_of_zero() -> None:
    made = log(max_compaction_lag_ms=100_000, min_cleanable_dirty_ratio=0.0)
    made.gaps.mark(40)
    assert not is_due(made, dirt_of(made, 50, NOW))


def test_empty_log_is_not_due_for_cleaning() -> None:
    made = open_log(MemoryStorage(), cleanup_policy=("compact",))
    dirt = dirt_of(made, 0, NOW)
    assert (dirt.ratio, is_due(made, dirt)) == (0.0, False)
