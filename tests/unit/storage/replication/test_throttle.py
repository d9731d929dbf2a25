"""The rate of throttled replicas, averaged over windows."""

from __future__ import annotations

import pytest

from minikafka.base.config.keys import LONG_MAX
from minikafka.simulation.clocks import ManualClock
from minikafka.storage.replication.throttle import Throttle


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def throttle(clock: ManualClock, limit: int, count: int = 11, window_ms: int = 1000) -> Throttle:
    made = Throttle(clock, count, window_ms)
    made.set_limit(limit)
    return made


def test_any_number_of_bytes_may_be_transferred_without_a_limit(clock: ManualClock) -> None:
    unlimited = throttle(clock, LONG_MAX)
    unlimited.record(1 << 40)
    assert unlimited.room() == LONG_MAX


@pytest.mark.parametrize("chunk", [100, 10_000, 200_000])
@pytest.mark.parametrize("limit", [50_000, 1_000_000])
def test_rate_over_any_ten_seconds_is_within_a_tenth_of_the_limit(
    clock: ManualClock, limit: int, chunk: int
) -> None:
    limited = throttle(clock, limit)
    moved = [0]
    for _ in range(400):
        total = moved[-1]
        while (room := limited.room()) >= 0:
            size = min(max(room, 1), chunk) if chunk < limit else chunk
            size = max(size, 100)
            limited.record(size)
            total += size
        moved.append(total)
        clock.advance(100)
    tens = [later - earlier for earlier, later in zip(moved, moved[100:], strict=False)]
    overshoot = chunk if chunk >= limit else 0
    assert max(tens) <= 1.1 * limit * 10 + overshoot
    assert min(tens) >= 0.9 * limit * 10 - overshoot


def test_allowed_bytes_are_negative_while_the_average_rate_exceeds_the_limit(
    clock: ManualClock,
) -> None:
    limited = throttle(clock, 1000)
    assert limited.room() == 100
    limited.record(2000)
    assert limited.room() == -1900
    clock.advance(1000)
    assert limited.room() == -900
    clock.advance(900)
    assert limited.room() == 0


def test_idle_time_does_not_allow_a_later_burst(clock: ManualClock) -> None:
    limited = throttle(clock, 1000)
    limited.record(100)
    clock.advance(999)
    assert limited.room() == 999, "a pause between two fetches"
    clock.advance(60_000)
    assert limited.room() == 100
    limited.record(100)
    limited.set_limit(5000)
    assert limited.room() == 500, "of the new rate, whatever the old one has left"


@pytest.mark.key("replication.quota.window.num", "replication.quota.window.size.seconds")
@pytest.mark.parametrize(("count", "window_ms"), [(11, 1000), (2, 1000), (2, 5000)])
def test_throttle_forgets_a_transfer_after_the_configured_number_of_windows(
    clock: ManualClock, count: int, window_ms: int
) -> None:
    limited = throttle(clock, 1, count, window_ms)
    limited.record(1 << 30)
    clock.advance(count * window_ms - 1)
    assert (limited.room() < 0, limited.rate() > 0) == (True, True)
    clock.advance(1)
    assert limited.room() == 0
    clock.advance(window_ms)
    assert limited.rate() == 0
