"""Lengths of time, as users write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.time_and_state.durations import milliseconds

HOUR = 3_600_000


def test_length_of_time_is_a_timedelta_or_a_text_with_units() -> None:
    given = ("8d", "36h", "1h30m", "1h 30m", "90s", "5ms", timedelta(days=8), timedelta(hours=1.5))
    assert [milliseconds(each) for each in given] == [
        192 * HOUR,
        36 * HOUR,
        5_400_000,
        5_400_000,
        90_000,
        5,
        192 * HOUR,
        5_400_000,
    ]


@pytest.mark.parametrize("given", ["", "8", "8x", "d", "-1d", "1.5h", "1d later", 7, None])
def test_anything_else_is_refused_with_the_forms_that_are_allowed(given: object) -> None:
    with pytest.raises(ClusterError, match="is not a length of time: give a timedelta"):
        milliseconds(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["0d", timedelta(0), timedelta(days=-1), "36501d"])
def test_length_that_goes_back_or_too_far_is_refused(given: timedelta | str) -> None:
    with pytest.raises(ClusterError, match="can advance by 1 ms to 36500 days"):
        milliseconds(given)
