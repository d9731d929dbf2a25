"""Attacks before authentication fail if a limit is exceeded; the scanner sees a difference if there is one."""

from __future__ import annotations

import random

import pytest

from benchmarks.attack_logins import FLOODS, LOGIN_SECONDS, Flood, Flooded
from benchmarks.login_times import SCORE_MAX, Compared, score

FLOOD = Flood("a flood", 10, lambda _: b"", lambda connections: 2.0 * connections, is_closed=True)


def test_flood_within_its_limits_has_no_failures():
    assert Flooded(FLOOD, 10, 20.0, [0.1, LOGIN_SECONDS], 10).failures() == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Flooded(FLOOD, 10, 20.1, [0.1], 10), "the memory grew by 20 MB"),
        (Flooded(FLOOD, 10, 1.0, [LOGIN_SECONDS + 1, 0.1], 10), "another client waited 11.0 s"),
        (Flooded(FLOOD, 10, 1.0, [0.1], 9), "only 9 of 10 connections were closed"),
    ],
)
def test_exceeded_limit_is_a_failure(row, reason):
    [failure] = row.failures()
    assert failure.startswith(f"a flood: {reason}")


def test_silent_connections_may_cost_at_most_60_mb():
    assert {flood.name: flood.memory_mb(2_000) for flood in FLOODS}["silent"] == 60


def times(seed: int, shift: float) -> list[float]:
    found = random.Random(seed)
    return [found.lognormvariate(0, 1) + shift for _ in range(2_000)]


def test_scanner_does_not_tell_equal_times_apart():
    assert all(abs(score(times(at, 0), times(at + 1, 0))) < SCORE_MAX for at in range(0, 40, 2))


def test_scanner_tells_apart_times_that_differ_by_a_tenth_of_the_median():
    assert score(times(1, 0), times(2, 0.2)) > SCORE_MAX
    assert score(times(2, 0.2), times(1, 0)) < -SCORE_MAX


@pytest.mark.parametrize(
    ("found", "must_differ", "fails"), [(5, 0, 1), (-5, 0, 1), (1, 0, 0), (5, 1, 0), (1, 1, 1)]
)
def test_scan_fails_if_users_can_be_told_apart_or_if_its_control_cannot(found, must_differ, fails):
    assert len(Compared("x", (1, 1), found, bool(must_differ)).failures()) == fails
