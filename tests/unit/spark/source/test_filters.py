"""The offset ranges that the filters of a query select, compared with the filters themselves."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from minikafka.base.model import TopicPartition
from minikafka.spark.source.filters import EVERYTHING, select
from minikafka.spark.source.ranges import OffsetRange

LINES = TopicPartition("lines", 0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def spans(*filters: Filter, start: int = 0, end: int = 10_000, since: int = 0) -> list[tuple]:
    found = select(filters).narrowed(OffsetRange(LINES, start, end), since)
    return [(part.start, part.end) for part in found]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [(0, 10_000)]),
        ([IsNotNull(OFFSET), LessThan(OFFSET, 1_000)], [(0, 1_000)]),
        ([LessThanOrEqual(OFFSET, 1_000)], [(0, 1_001)]),
        ([GreaterThan(OFFSET, 9_990)], [(9_991, 10_000)]),
        ([GreaterThanOrEqual(OFFSET, 9_990), LessThan(OFFSET, 9_995)], [(9_990, 9_995)]),
        ([EqualTo(OFFSET, 7)], [(7, 8)]),
        ([EqualNullSafe(OFFSET, 7)], [(7, 8)]),
        ([In(OFFSET, (9_999, 5, 6, None))], [(5, 7), (9_999, 10_000)]),
        ([In(OFFSET, (1, 50))], [(1, 51)]),
        ([Not(LessThan(OFFSET, 9_000))], [(9_000, 10_000)]),
        ([Not(EqualTo(OFFSET, 7))], [(0, 10_000)]),
        ([LessThan(OFFSET, 5), GreaterThan(OFFSET, 9)], []),
        ([EqualTo(OFFSET, 10_000)], []),
        ([LessThan(OFFSET, -(2**63))], []),
        ([LessThan(OFFSET, 2**63 - 1)], [(0, 10_000)]),
        ([GreaterThan(OFFSET, 2**63 - 1)], []),
        ([EqualTo(PARTITION, 0)], [(0, 10_000)]),
        ([EqualTo(PARTITION, 1)], []),
        ([Not(In(PARTITION, (0, 2)))], []),
        ([EqualTo(TOPIC, "lines")], [(0, 10_000)]),
        ([Not(EqualTo(TOPIC, "lines"))], []),
        ([In(TOPIC, ("other", None))], []),
        ([StringStartsWith(TOPIC, "li"), StringEndsWith(TOPIC, "es")], [(0, 10_000)]),
        ([StringContains(TOPIC, "x")], []),
        ([GreaterThan(TOPIC, "m")], []),
        ([LessThan(TIME, at(5)), GreaterThan(TIME, at(9))], []),
    ],
)
def test_filters_become_exactly_these_ranges(filters, expected):
    assert spans(*filters) == expected


@pytest.mark.parametrize(
    "unread",
    [
        LessThan(OFFSET, 0.5),
        EqualTo(OFFSET, True),
        EqualTo(OFFSET, None),
        In(OFFSET, (5, "6")),
        Not(In(OFFSET, (5, "6"))),
        IsNull(OFFSET),
        IsNull(TIME),
        Not(IsNotNull(TIME)),
        EqualTo(TIME, datetime(2024, 1, 1)),  # noqa: DTZ001
        EqualTo(TOPIC, 5),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        StringStartsWith(PARTITION, "0"),
    ],
)
def test_filter_that_cannot_be_read_selects_everything(unread):
    assert spans(unread) == [(0, 10_000)]
    assert select([unread]).since_ms is None


@pytest.mark.parametrize(
    ("filters", "since_ms"),
    [
        ([GreaterThanOrEqual(TIME, at(5_000))], 5),
        ([GreaterThanOrEqual(TIME, at(5_001))], 6),
        ([GreaterThan(TIME, at(5_000))], 6),
        ([GreaterThan(TIME, at(4_999))], 5),
        ([EqualTo(TIME, at(5_000))], 5),
        ([In(TIME, (at(9_000), at(7_000)))], 7),
        ([Not(LessThan(TIME, at(5_000)))], 5),
        ([GreaterThan(TIME, at(1_000)), GreaterThan(TIME, at(8_000))], 9),
        ([LessThan(TIME, at(5_000))], None),
        ([Not(EqualTo(TIME, at(5_000)))], None),
        ([Not(EqualNullSafe(TIME, at(5_000)))], None),
        ([GreaterThanOrEqual(TIME, at(0))], None),
        ([GreaterThan(TIME, at(-5_000))], None),
    ],
)
def test_only_a_lower_limit_of_the_time_excludes_the_records_before_it(filters, since_ms):
    assert select(filters).since_ms == since_ms


def test_records_before_the_first_selected_time_are_not_read():
    assert spans(GreaterThan(TIME, at(5_000)), since=400) == [(400, 10_000)]
    assert spans(GreaterThan(TIME, at(5_000)), LessThan(OFFSET, 300), since=400) == []


def test_many_distant_offsets_become_few_ranges_that_contain_them():
    wanted = tuple(range(0, 100_000, 1_000))
    found = spans(In(OFFSET, wanted), end=100_000)
    assert len(found) <= 8
    assert all(any(low <= offset < high for low, high in found) for offset in wanted)
    assert found[0][0] == 0
    assert found[-1][1] == 99_001


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None


COMPARISONS = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def evaluate(one: Filter, row: Row) -> bool | None:
    """Return the result of a filter for a row, as SQL defines it."""
    if isinstance(one, Not):
        found = evaluate(one.child, row)
        return None if found is None else not found
    actual = getattr(row, one.attribute[0])
    if isinstance(one, EqualNullSafe):
        return actual == one.value
    if isinstance(one, IsNull | IsNotNull):
        return (actual is None) == isinstance(one, IsNull)
    if actual is None:
        return None
    if isinstance(one, In):
        return True if actual in one.value else (None if None in one.value else False)
    return None if one.value is None else COMPARISONS[type(one)](actual, one.value)


def filters_on(column: str, values: st.SearchStrategy) -> st.SearchStrategy:
    name = st.just((column,))
    kinds = [st.builds(kind, name, values) for kind in (*COMPARISONS, EqualNullSafe)]
    lists = st.lists(values | st.none(), min_size=1, max_size=4).map(tuple)
    plain = st.one_of(*kinds, st.builds(In, name, lists), st.builds(IsNotNull, name))
    return plain | plain.map(Not)


TIMES = st.integers(-3_000, 12_000).map(at)
FILTERS = st.lists(
    filters_on("topic", st.sampled_from(["a", "lines", "m"]))
    | filters_on("partition", st.integers(-1, 3))
    | filters_on("offset", st.integers(-5, 30))
    | filters_on("timestamp", TIMES),
    max_size=4,
)
MILLISECONDS = st.lists(st.integers(-2, 10) | st.none(), max_size=20)


@settings(max_examples=150, deadline=None)
@given(FILTERS, MILLISECONDS, st.integers(0, 2), st.sampled_from(["a", "lines"]), st.integers(0, 9))
def test_selected_rows_are_always_inside_the_ranges(filters, times, partition, topic, start):
    """`times`: the timestamp of each record in Unix milliseconds; None for one that Spark cannot hold."""
    rows = [
        Row(topic, partition, start + index, None if time is None else at(time * 1_000))
        for index, time in enumerate(times)
    ]
    selection = select(filters)
    limit = selection.since_ms
    late = [
        row.offset
        for row, time in zip(rows, times, strict=True)
        if limit is not None and (time is None or time >= limit)
    ]
    since = 0 if limit is None else min(late, default=start + len(rows))
    whole = OffsetRange(TopicPartition(topic, partition), start, start + len(rows))
    found = selection.narrowed(whole, since)
    read = [offset for part in found for offset in range(part.start, part.end)]
    assert read == sorted(set(read))
    assert set(read) <= {row.offset for row in rows}
    selected = [row for row in rows if all(evaluate(one, row) for one in filters)]
    assert {row.offset for row in selected} <= set(read)


def test_selection_without_filters_is_everything():
    assert select([]) == EVERYTHING
