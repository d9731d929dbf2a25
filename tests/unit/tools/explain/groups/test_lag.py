"""Findings about lag by partition: partitions that are behind, growing or stuck."""

from __future__ import annotations

import pytest

from minikafka.base.model import TopicPartition
from minikafka.tools.explain.groups.evidence import (
    QUIET_MS,
    SAMPLES,
    Commit,
    EarlierLag,
    Lag,
    past_lags,
    sample_times,
)

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
NOW = 1_000_000


def lag(*past: int, committed: int = 10, end: int = 30, **fields: int) -> Lag:
    values = {"committed_at": NOW - 1_000, "former_end": 30, "now": NOW, **fields}
    lags = tuple(EarlierLag(NOW - 1_000 * (len(past) - i), each) for i, each in enumerate(past))
    return Lag(T0, committed, end=end, past=lags, **values)


def test_lag_is_the_number_of_records_behind_the_committed_offset():
    assert lag().records == 20
    assert lag(committed=40).records == 0


@pytest.mark.parametrize(
    ("past", "grows"),
    [
        ((), False),
        ((1, 2), False),
        ((1, 2, 3), True),
        ((10, 500, 20, 500, 10, 500), False),
        ((10, 500, 20, 600, 700, 800), True),
        ((5, 5, 5, 5), False),
        ((9, 8, 7), False),
    ],
)
def test_lag_grows_if_the_later_half_of_its_samples_exceeds_the_earlier_half(past, grows):
    assert lag(*past).grows is grows


def test_partition_is_stuck_when_old_records_are_not_committed():
    assert lag(committed_at=NOW - QUIET_MS).is_stuck
    assert not lag(committed_at=NOW - QUIET_MS + 1).is_stuck


def test_partition_with_new_records_only_is_not_stuck():
    assert not lag(committed_at=0, former_end=10).is_stuck


def test_lag_samples_span_from_the_first_commit_to_the_last():
    commits = {T0: [Commit(1_000, 1), Commit(2_000, 2)], T1: [Commit(500, 1)]}

    assert sample_times(commits) == {"t": [500, 800, 1_100, 1_400, 1_700, 2_000]}
    assert sample_times({T0: [Commit(7, 1)]}) == {"t": [7]}
    assert len(sample_times({T0: [Commit(0, 1), Commit(10**6, 2)]})["t"]) == SAMPLES


def test_past_lag_has_no_samples_before_the_first_commit():
    commits = [Commit(1_000, 100), Commit(2_000, 150)]
    ends = {500: 110, 1_000: 120, 1_500: 180, 2_000: -1}

    assert past_lags(commits, ends, 200) == (
        EarlierLag(1_000, 20),
        EarlierLag(1_500, 80),
        EarlierLag(2_000, 50),
    )
