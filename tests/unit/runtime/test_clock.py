"""The clock and the randomness of this machine."""

from __future__ import annotations

import asyncio
import time

from minikafka.runtime.clock import SystemClock, SystemRng


async def test_sleep_lasts_at_least_the_requested_time() -> None:
    clock = SystemClock()
    before = clock.now()
    await clock.sleep(20)
    assert clock.now() - before >= 19


def test_wall_time_is_unix_milliseconds() -> None:
    assert abs(SystemClock().wall_ms() - time.time() * 1000) < 5000


async def test_scheduled_callback_runs_exactly_once() -> None:
    clock = SystemClock()
    ran: list[int] = []
    begun = clock.now()
    clock.call_later(1, lambda: ran.append(clock.now()))
    later = asyncio.Event()
    clock.call_later(20, later.set)
    async with asyncio.timeout(60):
        await later.wait()
    [at] = ran
    assert at >= begun


async def test_cancelled_callback_does_not_run() -> None:
    clock = SystemClock()
    ran: list[str] = []
    clock.call_later(1, lambda: ran.append("cancelled")).cancel()
    later = asyncio.Event()
    clock.call_later(10, later.set)
    async with asyncio.timeout(60):
        await later.wait()
    assert ran == []


def test_random_bytes_have_the_requested_length_and_differ_each_time() -> None:
    rng = SystemRng()
    assert len(rng.bytes(16)) == 16
    assert rng.bytes(16) != rng.bytes(16)


def test_uniform_random_number_stays_between_its_bounds() -> None:
    rng = SystemRng()
    assert all(0.5 <= rng.uniform(0.5, 1.0) <= 1.0 for _ in range(100))


def test_shuffled_list_contains_every_original_item() -> None:
    items = tuple(range(50))
    assert sorted(SystemRng().shuffled(items)) == list(items)
