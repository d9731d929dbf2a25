"""The end of a controlled shutdown, and its longest time, from which the TimeoutStopSec of a service follows."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from support.ledger.recording_ledger import RecordingLedger

from minikafka.base.config import BrokerConfig
from minikafka.broker import controlled_shutdown
from minikafka.broker.controlled_shutdown import HANDOVER_MS, ControlledShutdown, longest_ms
from minikafka.broker.controller_client import ControllerClient
from minikafka.broker.rpc import messages
from minikafka.runtime.clock import SystemClock
from minikafka.simulation import run_seeded
from minikafka.simulation.clocks import LoopClock


class SilentController:
    """A controller that is this broker, and never answers."""

    calls = 0

    async def call(self, method: str, body: dict[str, Any], timeout_ms: int) -> dict[str, Any]:
        self.calls += 1
        return await asyncio.get_running_loop().create_future()


class FreeController:
    """A controller that moves all leaderships at once."""

    async def call(self, method: str, body: dict[str, Any], timeout_ms: int) -> dict[str, Any]:
        return messages.encode_remaining([])


def config(**values: object) -> BrokerConfig:
    keys = {f"controlled.shutdown.{name}": value for name, value in values.items()}
    return BrokerConfig.from_mapping({"broker.id": 1, **keys})


async def test_controlled_shutdown_ends_when_the_controller_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controlled_shutdown, "_CALL_TIMEOUT_MS", 10)
    short = config(**{"retry.backoff.ms": 1, "max.retries": 2})
    controller, ledger = SilentController(), RecordingLedger()
    shutdown = ControlledShutdown(
        short, SystemClock(), cast("ControllerClient", controller), ledger
    )
    await shutdown.run(lambda: 1)
    assert controller.calls == 2
    assert longest_ms(short) == 21 + HANDOVER_MS


def test_broker_answers_clients_for_a_while_after_its_leaderships_have_moved() -> None:
    async def scenario() -> int:
        clock = LoopClock()
        controller = cast("ControllerClient", FreeController())
        shutdown = ControlledShutdown(config(), clock, controller, RecordingLedger())
        before = clock.now()
        await shutdown.run(lambda: 1)
        return clock.now() - before

    assert run_seeded(1, scenario()) == HANDOVER_MS


def test_longest_time_follows_from_the_attempts_and_the_pauses_between_them() -> None:
    assert longest_ms(config()) == 3 * 30_000 + 2 * 5_000 + HANDOVER_MS
    once = config(**{"retry.backoff.ms": 500, "max.retries": 1})
    assert longest_ms(once) == 30_000 + HANDOVER_MS
    assert longest_ms(config(**{"max.retries": 0})) == 0
    assert longest_ms(config(enable=False)) == 0
