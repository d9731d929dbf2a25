"""The lag of a stream, computed from the offsets in Spark's progress events."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from minikafka.spark.progress import OffsetsBehind, OffsetsBehindListener, offsets_behind


def source(read: object, latest: object) -> SimpleNamespace:
    return SimpleNamespace(endOffset=json.dumps(read), latestOffset=json.dumps(latest))


def at(*offsets: int) -> dict[str, object]:
    """Return the offset of the topic `t` in a checkpoint. Each number is the offset of a partition."""
    return {
        "t": {
            str(number): {"offset": offset, "leaderEpoch": 0}
            for number, offset in enumerate(offsets)
        }
    }


def test_lag_is_the_average_minimum_and_maximum_over_the_partitions():
    assert offsets_behind(source(at(5, 10, 0), at(10, 12, 8))) == OffsetsBehind(5.0, 2, 8)


def test_partition_whose_log_ends_below_the_read_offset_has_no_lag():
    assert offsets_behind(source(at(5, 10), at(3, 11))) == OffsetsBehind(0.5, 0, 1)


def test_partition_that_was_not_read_yet_is_left_out():
    assert offsets_behind(source(at(5), at(7, 100))) == OffsetsBehind(2.0, 2, 2)


@pytest.mark.parametrize(
    "other",
    [
        source({"logOffset": 3}, {"logOffset": 4}),
        source(None, None),
        source({}, at(3)),
        source(5, 7),
        SimpleNamespace(endOffset="no json", latestOffset="{}"),
        SimpleNamespace(endOffset=None, latestOffset=None),
    ],
)
def test_source_of_another_format_has_no_lag(other):
    assert offsets_behind(other) is None


def test_listener_reports_each_source_of_this_format_once():
    found = []
    listener = OffsetsBehindListener(lambda progress, behind: found.append((progress, behind)))
    progress = SimpleNamespace(sources=[source(at(1), at(4)), source(1, 2), source(at(0), at(1))])
    listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert found == [(progress, OffsetsBehind(3.0, 3, 3)), (progress, OffsetsBehind(1.0, 1, 1))]
