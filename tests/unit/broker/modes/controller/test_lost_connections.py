"""Reports of lost connections: to whom, how often, and again after a report that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.brokers.endpoints import endpoints
from support.brokers.mode_ports import mode_ports
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker
from minikafka.base.protocol_versions import VERSIONS
from minikafka.broker.modes.controller.lost_connections import LostConnections
from minikafka.broker.rpc.liveness import CONNECTION_LOST
from minikafka.broker.rpc.messages import encode_report
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock

CONTROLLER, OWN_ID, DEAD = 1, 2, 3
AGAIN_MS = 500


def broker(id_: int, epoch: int) -> Broker:
    return Broker(id_, endpoints("127.0.0.1", 9092, f"host-{id_}", 19092), epoch)


class World:
    """Broker 2, the controller 1 and broker 3. `outcomes`: the results of the next calls; then calls succeed."""

    def __init__(self) -> None:
        keys = {"broker.id": OWN_ID, "log.dirs": "/d", "zookeeper.connect": "h:2181"}
        self.clock, self.tasks = ManualClock(), TaskRegistry()
        self.controller: Any = SimpleNamespace(
            controller_id=CONTROLLER,
            is_active=False,
            connection_lost=self.note,
            controller_lost=self.count,
        )
        self.requests: Any = SimpleNamespace(
            brokers={id_: broker(id_, 10 * id_) for id_ in (CONTROLLER, OWN_ID, DEAD)}
        )
        self.outcomes: list[Exception | asyncio.Future[None] | None] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.noted: list[tuple[int, int, int]] = []
        self.lost_controllers = 0
        self.versions = VERSIONS
        plane: Any = self
        self.lost = LostConnections(
            mode_ports(config=BrokerConfig.from_mapping(keys), clock=self.clock, tasks=self.tasks),
            self.controller,
            self.requests,
            plane,
        )

    def note(self, *report: int) -> None:
        self.noted.append(report)  # type: ignore[arg-type]

    def count(self) -> None:
        self.lost_controllers += 1

    async def call(
        self, endpoint: Endpoint, method: str, body: dict[str, Any], **options: Any
    ) -> dict[str, Any]:
        assert method == CONNECTION_LOST
        self.sent.append((endpoint.host, body))
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            await outcome
        return {}

    async def idle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def report(self, broker_id: int = DEAD) -> int:
        """Report a lost connection; return the number of calls that it causes at once."""
        before = len(self.sent)
        self.lost.report(broker_id)
        await self.idle()
        return len(self.sent) - before


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.tasks.close()


async def test_each_lost_connection_is_reported_to_the_controller(world: World) -> None:
    for _ in range(3):
        assert await world.report() == 1
    assert world.sent == [(f"host-{CONTROLLER}", encode_report(DEAD, 30, OWN_ID))] * 3


async def test_broker_is_reported_once_at_a_time(world: World) -> None:
    world.outcomes = [open_call := asyncio.get_running_loop().create_future()]
    assert [await world.report(), await world.report()] == [1, 0]
    open_call.set_result(None)
    await world.idle()
    assert await world.report() == 1


@pytest.mark.parametrize(
    "error",
    [TimeoutError(), KafkaError(ErrorCode.NOT_CONTROLLER), ConnectionRefusedError()],
    ids=lambda error: type(error).__name__,
)
async def test_report_that_failed_is_sent_again_to_the_controller_of_then(
    world: World, error: Exception
) -> None:
    world.outcomes = [error, error]
    assert await world.report() == 1
    assert await world.report() == 0, "the report is still to be sent"
    world.clock.advance(AGAIN_MS)
    await world.idle()
    world.controller.controller_id = OWN_ID
    world.clock.advance(AGAIN_MS)
    await world.idle()
    assert [host for host, _ in world.sent] == ["host-1", "host-1", f"host-{OWN_ID}"]
    assert world.tasks.names() == []
    assert await world.report() == 1
    assert world.lost_controllers == (2 if isinstance(error, ConnectionRefusedError) else 0)


async def test_report_is_sent_when_a_controller_is_known_again(world: World) -> None:
    world.controller.controller_id = -1
    assert await world.report() == 0
    world.controller.controller_id = CONTROLLER
    world.clock.advance(AGAIN_MS)
    await until(lambda: world.sent, seconds=5)


async def test_connection_of_the_pool_that_has_ended_costs_no_pause(world: World) -> None:
    world.outcomes = [ConnectionResetError(), ConnectionResetError()]
    assert await world.report() == 3
    assert world.tasks.names() == []


async def test_report_ends_with_the_registration_that_it_names(world: World) -> None:
    world.outcomes = [TimeoutError()] * 9
    assert await world.report() == 1
    world.requests.brokers[DEAD] = broker(DEAD, 31)
    world.clock.advance(AGAIN_MS)
    await world.idle()
    assert (len(world.sent), world.tasks.names()) == (1, [])
    world.outcomes = []
    assert await world.report() == 1, "the connection to the next registration is lost"
    assert world.sent[-1][1] == encode_report(DEAD, 31, OWN_ID)


async def test_controller_examines_the_broker_itself(world: World) -> None:
    world.controller.controller_id, world.controller.is_active = OWN_ID, True
    assert [await world.report(), await world.report()] == [0, 0]
    assert world.noted == [(DEAD, 30, OWN_ID)] * 2


async def test_each_lost_connection_to_the_controller_is_passed_on(world: World) -> None:
    assert [await world.report(CONTROLLER), await world.report(CONTROLLER)] == [0, 0]
    assert world.lost_controllers == 2


async def test_broker_that_stops_reports_nothing_and_gives_its_reports_up(world: World) -> None:
    world.outcomes = [TimeoutError()] * 9
    assert await world.report() == 1
    world.lost.close()
    world.clock.advance(AGAIN_MS)
    await world.idle()
    assert world.tasks.names() == []
    assert [await world.report(), await world.report(CONTROLLER)] == [0, 0]
    assert world.lost_controllers == 0


async def test_broker_that_is_not_registered_is_not_reported(world: World) -> None:
    assert await world.report(7) == 0
