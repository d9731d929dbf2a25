"""The offsets that a query needs, from the filters that Spark offers to a data source.

Spark evaluates every filter again after the read. So the result may contain offsets that no filter selects, and
never lacks an offset that all filters select. A filter that this module cannot read selects everything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from minikafka.base.model import TopicPartition
from minikafka.spark.source.ranges import OffsetRange

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Disjoint ranges [low, high) of numbers, in order, with a gap between two ranges."""

_LOW: Final = -(2**63)
_HIGH: Final = 2**63
_EVERY: Final[Spans] = ((_LOW, _HIGH),)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SMALL_GAP: Final = 100
"""Two ranges with at most this number of offsets between them become one range, because each range is a task."""
_MOST_RANGES: Final = 8
"""Maximum number of ranges in one partition. To keep it, the smallest gaps between ranges are read too."""

_TESTS: Final[dict[type, Callable[[str, str], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


@dataclass(frozen=True)
class Selection:
    """The topics, partitions, offsets and times that the filters of a query select."""

    topics: tuple[Filter, ...] = ()
    """The filters on the column `topic`."""
    partitions: Spans = _EVERY
    offsets: Spans = _EVERY
    times: Spans = _EVERY
    """The selected timestamps, in Unix microseconds."""

    def includes(self, tp: TopicPartition) -> bool:
        """True if the filters may select records of this partition."""
        if any(_holds(one, tp.topic) is False for one in self.topics):
            return False
        return bool(self.times and _intersection(self.partitions, _only(tp.partition)))

    @property
    def since_ms(self) -> int | None:
        """Return the time before which no record is selected, in Unix milliseconds. None: there is no such time.

        The filters give no time after which no record is selected, because a record may have a lower timestamp
        than an earlier record.
        """
        milliseconds = -(-self.times[0][0] // 1000) if self.times else 0
        return milliseconds if milliseconds > 0 else None

    def narrowed(self, whole: OffsetRange, since: int) -> list[OffsetRange]:
        """Return the parts of a range that the filters select, in order.

        `since`: the first offset with a timestamp of at least `since_ms`; 0 if `since_ms` is None.
        """
        if not self.includes(whole.tp):
            return []
        inside = ((max(whole.start, since), whole.end),)
        parts = _without_small_gaps(_intersection(self.offsets, inside))
        return [OffsetRange(whole.tp, low, high) for low, high in parts]


EVERYTHING: Final = Selection()


def select(filters: Iterable[Filter]) -> Selection:
    """Return what all `filters` together select."""
    topics: list[Filter] = []
    spans = {"partition": _EVERY, "offset": _EVERY, "timestamp": _EVERY}
    for one in filters:
        column = ".".join(getattr(one.child if isinstance(one, Not) else one, "attribute", ()))
        if column == "topic":
            topics.append(one)
        elif column in spans:
            number = _microseconds if column == "timestamp" else _integer
            spans[column] = _intersection(spans[column], _spans(one, number))
    return Selection(tuple(topics), spans["partition"], spans["offset"], spans["timestamp"])


def _spans(one: Filter, number: Callable[[Any], int | None]) -> Spans:
    """Return the numbers that a filter selects, or every number if the filter cannot be read."""
    if isinstance(one, Not):
        found = _compared(one.child, number)
        return _EVERY if found is None else _complement(found)
    found = _compared(one, number)
    return _EVERY if found is None else found


def _compared(one: Filter, number: Callable[[Any], int | None]) -> Spans | None:
    """Return the numbers for which a comparison is true, or None if the comparison cannot be read.

    A null in the list of `In` makes no comparison true, also not below `Not`.
    """
    if isinstance(one, In):
        numbers = [number(value) for value in one.value if value is not None]
        known = sorted({at for at in numbers if at is not None})
        return None if None in numbers else _joined([(at, at + 1) for at in known], 0)
    at = number(getattr(one, "value", None))
    if at is None:
        return None
    match one:
        case EqualTo() | EqualNullSafe():
            return _only(at)
        case GreaterThan():
            return _between(at + 1, _HIGH)
        case GreaterThanOrEqual():
            return _between(at, _HIGH)
        case LessThan():
            return _between(_LOW, at)
        case LessThanOrEqual():
            return _between(_LOW, at + 1)
    return None


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _holds(one: Filter, topic: str) -> bool | None:
    """True if a topic satisfies a filter, False if not, None if the filter cannot be read."""
    if isinstance(one, Not):
        found = _holds(one.child, topic)
        return None if found is None else not found
    if isinstance(one, In):
        return topic in one.value
    test, value = _TESTS.get(type(one)), getattr(one, "value", None)
    return test(topic, value) if test and isinstance(value, str) else None


def _only(number: int) -> Spans:
    return ((number, number + 1),)


def _between(low: int, high: int) -> Spans:
    return ((low, high),) if low < high else ()


def _complement(spans: Spans) -> Spans:
    borders = [_LOW, *(border for span in spans for border in span), _HIGH]
    pairs = zip(borders[::2], borders[1::2], strict=True)
    return tuple((low, high) for low, high in pairs if low < high)


def _intersection(first: Spans, second: Spans) -> Spans:
    found: list[tuple[int, int]] = []
    left = right = 0
    while left < len(first) and right < len(second):
        (low, high), (other_low, other_high) = first[left], second[right]
        found += _between(max(low, other_low), min(high, other_high))
        if high < other_high:
            left += 1
        else:
            right += 1
    return tuple(found)


def _without_small_gaps(spans: Spans) -> Spans:
    """Return at most `_MOST_RANGES` ranges that contain `spans`, without small gaps."""
    gaps = sorted((after[0] - before[1] for before, after in pairwise(spans)), reverse=True)
    limit = gaps[_MOST_RANGES - 1] if len(gaps) >= _MOST_RANGES else 0
    return _joined(spans, max(limit, _SMALL_GAP))


def _joined(spans: Sequence[tuple[int, int]], gap: int) -> Spans:
    """Return the ranges, with two neighbours as one range if at most `gap` numbers are between them."""
    found: list[tuple[int, int]] = []
    for low, high in spans:
        if found and low - found[-1][1] <= gap:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return tuple(found)
