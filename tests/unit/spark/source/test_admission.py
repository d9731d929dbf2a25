"""The size of micro-batches: the share of each partition, and the wait for enough records."""

from __future__ import annotations

import pytest

from minikafka.base.model import TopicPartition
from minikafka.spark.source.positions import Positions
from minikafka.spark.source.readers import Patience, limited, waiting
from minikafka.spark.wire.leaders import Position


def at(*offsets: int) -> Positions:
    return {TopicPartition("t", index): Position(offset, 3) for index, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    ("end", "most", "expected"),
    [
        ((100, 300, 0), 40, (10, 30, 0)),
        ((100, 300, 0), 400, (100, 300, 0)),
        ((1, 999, 0), 10, (1, 9, 0)),
        ((1_000, 1, 1), 2, (1, 1, 1)),
    ],
)
def test_unread_partitions_get_a_proportional_share_of_at_least_one_offset(end, most, expected):
    assert limited(at(0, 0, 0), at(*end), most) == at(*expected)


def test_end_offset_of_a_partition_is_its_start_offset_plus_its_share():
    assert limited(at(50, 200), at(150, 300), 20) == at(60, 210)


def test_partition_whose_log_ends_before_the_start_gets_no_share():
    assert waiting(at(50, 0), at(40, 5)) == {TopicPartition("t", 1): 5}
    assert limited(at(50, 0), at(40, 5), 2) == at(40, 2)


def test_micro_batch_waits_until_enough_offsets_are_unread():
    patience = Patience(10, 1_000)
    assert patience.is_over(10, now_ms=0)
    assert not patience.is_over(9, now_ms=1)
    assert patience.is_over(10, now_ms=2)


def test_first_micro_batch_of_a_run_does_not_wait():
    assert Patience(10, 1_000).is_over(1, now_ms=0)


def test_micro_batch_waits_at_most_the_maximum_delay_after_the_previous_one():
    patience = Patience(10, 1_000)
    assert patience.is_over(1, now_ms=5_000)
    assert not patience.is_over(1, now_ms=5_999)
    assert patience.is_over(1, now_ms=6_000)
    assert not patience.is_over(1, now_ms=6_999)
    assert patience.is_over(1, now_ms=7_000)


def test_micro_batch_without_a_minimum_of_offsets_starts_at_once():
    assert Patience(0, 1_000).is_over(0, now_ms=0)
