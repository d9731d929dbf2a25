"""Which quota applies to a client, and for how long the client must wait."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from minikafka.base.config.keys import INT_MAX
from minikafka.security.quotas import (
    DEFAULT,
    Buckets,
    ClientQuotas,
    Limit,
    Name,
    Rate,
    Rates,
    TokenBucket,
    Windows,
    parse_quota,
)

LEVELS: list[tuple[tuple[Name, Name], tuple[str, str]]] = [
    (("alice", "c"), ("alice", "c")),
    (("alice", DEFAULT), ("alice", "c")),
    (("alice", None), ("alice", "")),
    ((DEFAULT, "c"), ("alice", "c")),
    ((DEFAULT, DEFAULT), ("alice", "c")),
    ((DEFAULT, None), ("alice", "")),
    ((None, "c"), ("", "c")),
    ((None, DEFAULT), ("", "c")),
]
"""Kafka's order of precedence for alice's client c, and the clients that share each limit."""


def test_more_specific_quota_has_precedence_over_each_of_the_others() -> None:
    for first, second in combinations(range(len(LEVELS)), 2):
        quotas = ClientQuotas()
        quotas.set(*LEVELS[second][0], 1.0)
        quotas.set(*LEVELS[first][0], 2.0)
        assert quotas.applicable("alice", "c") == Limit(LEVELS[first][1], 2.0)


@pytest.mark.parametrize(
    "entity", [("bob", None), ("bob", "c"), ("alice", "d"), (DEFAULT, "d"), (None, "d")]
)
def test_quota_of_another_user_or_client_id_does_not_apply(entity: tuple[Name, Name]) -> None:
    quotas = ClientQuotas()
    quotas.set(*entity, 5)
    assert quotas.applicable("alice", "c") is None


def test_client_without_a_client_id_has_only_quotas_of_users() -> None:
    quotas = ClientQuotas()
    for user, client_id in ((DEFAULT, DEFAULT), (None, DEFAULT), ("alice", DEFAULT)):
        quotas.set(user, client_id, 1)
    assert quotas.applicable("alice", "") is None
    quotas.set(DEFAULT, None, 2)
    assert quotas.applicable("alice", "") == Limit(("alice", ""), 2)


def test_removed_quota_does_not_apply() -> None:
    quotas = ClientQuotas()
    assert quotas.set("alice", None, 1)
    assert not quotas.set("alice", None, 1)
    assert quotas
    assert quotas.set("alice", None, None)
    assert not quotas
    assert quotas.applicable("alice", "c") is None


def recorded() -> Iterator[tuple[list[str], list[list[str]]]]:
    head: list[str] = []
    rows: list[list[str]] = []
    for line in (Path(__file__).parent / "kafka_rates.txt").read_text().splitlines():
        words = line.split()
        if words[0] in ("rate", "bucket"):
            if head:
                yield head, rows
            head, rows = words, []
        elif words[0] != "#":
            rows.append(words)
    yield head, rows


def test_average_is_that_of_kafka_for_random_values_and_pauses() -> None:
    checked = 0
    for (kind, *sizes), rows in recorded():
        if kind != "rate":
            continue
        windows, now = Windows(*map(int, sizes)), 1_000_000
        rate = Rate(windows)
        for later, value, average, width in rows:
            now += int(later)
            rate.record(int(value), now)
            assert rate.per_second(now) == pytest.approx(float(average))
            assert rate.width_ms(now) == int(width)
            checked += 1
    assert checked == 360


def test_tokens_are_those_of_kafka_for_random_values_and_pauses() -> None:
    checked = 0
    for (kind, *sizes), rows in recorded():
        if kind != "bucket":
            continue
        windows, bound, now = Windows(*map(int, sizes[:2])), int(sizes[2]), 1_000_000_000
        bucket = TokenBucket(windows)
        for later, value, tokens in rows:
            now += int(later)
            bucket.take(int(value), bound, now)
            missing = max(-float(tokens), 0)
            assert bucket.throttle_ms(bound, now) == pytest.approx(missing / bound * 1000, abs=1)
            checked += 1
    assert checked == 120


def test_throttle_time_is_kafkas_share_of_the_window() -> None:
    rate = Rate(Windows(11, 1000))
    rate.record(20_000, 5_000)
    assert rate.throttle_ms(1_000, 5_000) == 10_000
    assert rate.throttle_ms(1_000, 10_000) == 10_000
    assert rate.throttle_ms(1_000, 15_500) == 9_500
    assert rate.throttle_ms(1_000, 16_000) == 0


def test_rate_below_its_limit_is_not_throttled() -> None:
    rate = Rate(Windows(11, 1000))
    rate.record(10_000, 5_000)
    assert rate.throttle_ms(1_000, 5_000) == 0
    assert rate.throttle_ms(999, 5_000) > 0


def test_quota_of_zero_waits_as_long_as_possible() -> None:
    rate, bucket = Rate(Windows(11, 1000)), TokenBucket(Windows(11, 1000))
    assert rate.throttle_ms(0, 1) == bucket.throttle_ms(0, 1) == 0
    rate.record(1, 1)
    bucket.take(1, 0, 1)
    assert rate.throttle_ms(0, 1) == bucket.throttle_ms(0, 1) == INT_MAX


def test_idle_rates_and_full_buckets_are_forgotten() -> None:
    rates, buckets = Rates(Windows(2, 1000)), Buckets(Windows(2, 1000))
    for number in range(1_000):
        now = number * 100
        rates.of(("", str(number)), now).record(1, now)
        buckets.of(("", str(number)), now).take(1, 10, now)
    assert len(rates.items()) <= 256
    assert len(buckets) <= 256


def test_rate_in_use_is_kept_when_others_are_forgotten() -> None:
    rates = Rates(Windows(2, 1000))
    rates.of(("alice", ""), 0).record(5_000, 0)
    for number in range(1_000):
        rates.of(("", str(number)), 1).record(1, 1)
    assert rates.of(("alice", ""), 1).throttle_ms(1, 1) > 0


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("producer_byte_rate", "1.5"),
        ("producer_byte_rate", "-1"),
        ("request_percentage", "nan"),
        ("request_percentage", "inf"),
        ("controller_mutation_rate", "fast"),
    ],
)
def test_malformed_stored_quota_is_refused(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=text if text == "fast" else key):
        parse_quota(key, text)


def test_stored_quota_may_have_a_fraction_where_kafka_has_one() -> None:
    assert parse_quota("request_percentage", "12.5") == 12.5
    assert parse_quota("producer_byte_rate", "1000") == 1000
