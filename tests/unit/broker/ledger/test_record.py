"""The form of partitions in ledger lines: grouped by topic, and divided into lines if there are many."""

from __future__ import annotations

from minikafka.base.model import TopicPartition
from minikafka.broker.ledger.record import (
    EVENT,
    NOTHING,
    PARTITIONS_MAX,
    by_topic,
    in_parts,
    partitions_of,
)


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition(f"t{i % 3}", i) for i in range(count)]


def test_list_of_partitions_is_grouped_by_topic_and_restored_from_the_groups() -> None:
    grouped = by_topic([TopicPartition("a", 0), TopicPartition("b", 4), TopicPartition("a", 2)])
    assert grouped == {"a": [0, 2], "b": [4]}
    assert partitions_of(grouped) == [("a", 0), ("a", 2), ("b", 4)]


def test_partitions_that_fit_in_one_ledger_line_have_no_part_number() -> None:
    few = partitions(PARTITIONS_MAX)
    assert list(in_parts(few)) == [(few, {})]
    assert list(in_parts([])) == [([], {})]


def test_partitions_that_need_several_ledger_lines_have_numbered_parts() -> None:
    many = partitions(2 * PARTITIONS_MAX + 1)
    parts = list(in_parts(many))
    assert [tp for run, _ in parts for tp in run] == many
    assert [numbers for _, numbers in parts] == [{"part": part, "parts": 3} for part in (1, 2, 3)]


def test_null_ledger_discards_lines() -> None:
    fields = {"topic": "t"}
    NOTHING.record(EVENT, "1-1", fields)
    assert vars(NOTHING) == {}
    assert fields == {"topic": "t"}
