"""The step gate. While a named step is held, every operation that reaches the step is blocked and reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Call
from minikafka.broker.rpc import messages
from minikafka.broker.step_gate import NAMES, StepGate
from minikafka.simulation.clocks import ManualClock

STEP = "reassignment.A1"


async def call(gate: StepGate, clock: ManualClock, method: str, body: Any) -> Any:
    return messages.decode_gate_state(await gate.serve(Call(method, body), clock))


def coming(gate: StepGate, step: str = STEP) -> asyncio.Task[None]:
    return asyncio.create_task(gate.reached(*step.split(".")))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_operation_blocks_at_a_held_step_until_the_step_is_released() -> None:
    gate = StepGate()
    gate.hold(STEP)
    controller = coming(gate)
    await turn()
    assert (gate.waiting, controller.done()) == (STEP, False)
    gate.release("reassignment.A2")
    await turn()
    assert not controller.done()
    gate.release(STEP)
    await controller
    assert gate.waiting == ""
    await coming(gate)


async def test_operation_passes_steps_that_are_not_held() -> None:
    gate = StepGate()
    gate.hold(STEP)
    other = coming(gate, "reassignment.A2")
    await turn()
    assert (gate.waiting, other.done()) == ("", True)
    gate.open()
    once_held = coming(gate)
    await turn()
    assert (gate.waiting, once_held.done()) == ("", True)


async def test_request_to_hold_an_unknown_step_is_refused() -> None:
    gate, clock = StepGate(), ManualClock()
    with pytest.raises(KafkaError) as refused:
        await call(gate, clock, messages.HOLD_STEP, messages.encode_step("reassignment.A9"))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert "reassignment.A1" in refused.value.detail


async def test_every_step_can_be_held_and_released() -> None:
    gate, clock = StepGate(), ManualClock()
    for name in NAMES:
        held, _ = await call(gate, clock, messages.HOLD_STEP, messages.encode_step(name))
        assert name in held
    for name in NAMES:
        held, _ = await call(gate, clock, messages.RELEASE_STEP, messages.encode_step(name))
        assert name not in held


async def test_steps_request_is_answered_when_an_operation_blocks_at_the_requested_step() -> None:
    gate, clock = StepGate(), ManualClock()
    gate.hold(STEP)
    gate.hold("broker.stop_replica")
    asking = asyncio.create_task(
        call(gate, clock, messages.STEPS, messages.encode_steps(STEP, 2_000))
    )
    broker = coming(gate, "broker.stop_replica")
    await turn()
    assert not asking.done()
    controller = coming(gate)
    held, blocked = await asking
    assert set(held) == {STEP, "broker.stop_replica"}
    assert blocked == ["broker.stop_replica", STEP]
    gate.open()
    await asyncio.gather(broker, controller)


async def test_steps_request_is_answered_at_its_timeout_when_no_operation_blocks() -> None:
    gate, clock = StepGate(), ManualClock()
    asking = asyncio.create_task(
        call(gate, clock, messages.STEPS, messages.encode_steps(STEP, 2_000))
    )
    await turn()
    assert not asking.done()
    clock.advance(2_000)
    assert await asking == ([], [])


async def test_cancelled_operation_is_no_longer_blocked() -> None:
    gate = StepGate()
    gate.hold(STEP)
    controller = coming(gate)
    await turn()
    controller.cancel()
    await turn()
    assert gate.waiting == ""
