"""`Controllership.wait_for`: waits that end when the broker stops being the controller."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.broker.modes.controller.terms.controllership import Controllership


async def answer(value: str) -> str:
    return value


async def test_wait_for_returns_the_result_of_the_awaited_call():
    assert await Controllership().wait_for(answer("moved")) == "moved"


async def test_wait_for_raises_the_exception_of_the_awaited_call_unchanged():
    async def refuse() -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        await Controllership().wait_for(refuse())


async def test_wait_for_cancels_the_awaited_call_when_the_controllership_ends():
    controllership, begun, cleaned = Controllership(), asyncio.Event(), []

    async def call() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cleaned.append("call")

    waiting = asyncio.ensure_future(controllership.wait_for(call()))
    await begun.wait()
    controllership.end()
    with pytest.raises(KafkaError) as refused:
        await waiting
    assert (refused.value.code, cleaned) == (ErrorCode.NOT_CONTROLLER, ["call"])


async def test_wait_for_returns_a_result_that_arrived_as_the_controllership_ended():
    controllership = Controllership()
    result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(controllership.wait_for(result))
    await asyncio.sleep(0)
    result.set_result("moved")
    controllership.end()
    assert await waiting == "moved"


async def test_wait_for_raises_an_error_after_the_controllership_has_ended():
    controllership = Controllership()
    controllership.end()
    with pytest.raises(KafkaError):
        await controllership.wait_for(asyncio.Event().wait())
    assert controllership.has_ended


async def test_wait_for_cancels_the_awaited_call_when_it_is_cancelled():
    begun, cleaned = asyncio.Event(), []

    async def call() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cleaned.append("call")

    waiting = asyncio.ensure_future(Controllership().wait_for(call()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cleaned == ["call"]
