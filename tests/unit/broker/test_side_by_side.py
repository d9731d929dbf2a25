"""Several calls awaited at once: results, errors and cancellation."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.broker.side_by_side import all_of


async def test_results_are_in_the_order_of_the_calls():
    first = asyncio.Event()

    async def late() -> str:
        await first.wait()
        return "late"

    async def early() -> str:
        first.set()
        return "early"

    assert await all_of([late(), early()]) == ["late", "early"]


async def test_error_of_one_call_is_raised_after_all_other_calls_have_ended():
    failed, ended = asyncio.Event(), []

    async def fails() -> None:
        failed.set()
        raise ValueError("refused")

    async def goes_on() -> None:
        await failed.wait()
        await asyncio.sleep(0)
        ended.append("the other")

    with pytest.raises(ValueError, match="refused"):
        await all_of([fails(), goes_on()])
    assert ended == ["the other"]


async def test_cancelling_all_of_waits_until_all_its_calls_have_ended():
    begun, ended = asyncio.Event(), []

    async def call() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleared up")

    waiting = asyncio.ensure_future(all_of([call(), call()]))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == ["cleared up"] * 2


async def test_number_of_calls_that_run_at_once_is_limited():
    running, most = 0, 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    assert await all_of((call(number) for number in range(7)), 3) == list(range(7))
    assert most == 3
