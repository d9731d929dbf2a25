"""A candidate's attendance at the controller: what is evidence of its death, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.brokers.controller_bench import new_ensemble
from support.brokers.endpoints import endpoints
from support.brokers.mode_ports import mode_ports
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError, NotConnected
from minikafka.base.model import Broker
from minikafka.base.ports import Stat
from minikafka.broker.modes.controller.terms.election import Former
from minikafka.broker.modes.controller.terms.takeover import Attendance
from minikafka.broker.rpc.liveness import Presence, Probe
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.server.core.tree import DataNode

CONTROLLER, OWN_ID = 1, 5
OWNER = 101


class World:
    """Candidate 5, controller 1 and brokers 2 and 7. `presence`: the outcome of each probe of the controller."""

    def __init__(self) -> None:
        self.ensemble = new_ensemble()
        for id_ in (CONTROLLER, 2, OWN_ID, 7):
            self.register(id_, 100 + id_)
        self.session = InMemoryClient(self.ensemble)
        self.clock = ManualClock()
        self.tasks = TaskRegistry()
        self.presence = Presence.REFUSED
        self.calls: list[asyncio.Future[None]] = []
        """The calls to the controller that this candidate has made; the last one may be open."""
        self.probes = 0
        self.evidence = 0
        self.attendance = Attendance(
            mode_ports(OWN_ID, zookeeper=self.session, clock=self.clock, tasks=self.tasks),
            self.probe,
            self.call,
            self.count,
        )

    def register(self, broker_id: int, owner: int) -> None:
        """Register the broker as this session does, in place of its registration by another session."""
        info = Broker(broker_id, endpoints("127.0.0.1", 9092, "127.0.0.1", 19092))
        path = layout.broker_path(broker_id)
        if path in self.ensemble.nodes:
            self.ensemble.delete(path)
        self.ensemble.put(path, layout.encode_broker(info), owner=self.ensemble.open_session(owner))

    async def probe(self, broker: Broker) -> Probe:
        self.probes += 1
        return Probe(self.presence, "here:1", broker.epoch)

    async def call(self, broker: Broker) -> None:
        self.calls.append(asyncio.get_running_loop().create_future())
        await self.calls[-1]

    def count(self) -> None:
        self.evidence += 1

    def attend(self, controller_id: int = CONTROLLER, owner: int = OWNER) -> None:
        self.attendance.attend(controller_id, stat_of(owner))

    async def is_called(self, times: int = 1) -> None:
        await until(lambda: len(self.calls) == times)

    async def is_idle(self) -> None:
        """Let everything happen that needs no time of the clock."""
        await self.ensemble.time_for_requests()


def stat_of(owner: int) -> Stat:
    return DataNode(b"", ANYONE, 1, 0, owner).stat()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.session.attach()
    yield world
    await world.tasks.close()


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError(), ConnectionRefusedError(), KafkaError(ErrorCode.NOT_CONTROLLER)],
    ids=lambda error: type(error).__name__,
)
async def test_ended_call_and_refused_probe_are_evidence_of_a_death(
    world: World, error: Exception
) -> None:
    world.attend()
    await world.is_called()
    world.calls[0].set_exception(error)
    await until(lambda: world.probes == 1)
    await world.is_idle()
    assert world.evidence == 0, "broker 2 is registered and has a smaller id"
    world.clock.advance(100)
    await until(lambda: world.evidence == 1)
    epoch = world.ensemble.nodes[layout.broker_path(CONTROLLER)].czxid
    expected = Former(CONTROLLER, OWNER, epoch, "connection to here:1 refused")
    assert world.attendance.take_former() == expected
    assert world.attendance.take_former() is None


async def test_candidate_with_the_smallest_id_does_not_wait(world: World) -> None:
    world.ensemble.delete(layout.broker_path(2))
    world.attend()
    await world.is_called()
    world.calls[0].set_exception(ConnectionResetError())
    await world.is_idle()
    world.clock.advance(0)
    await until(lambda: world.evidence == 1)


@pytest.mark.parametrize("presence", [Presence.PRESENT, Presence.UNKNOWN])
@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError()], ids=["reset", "silent"])
async def test_controller_that_answers_or_is_silent_is_attended_again(
    world: World, presence: Presence, error: Exception
) -> None:
    world.presence = presence
    world.attend()
    for calls in range(1, 4):
        await world.is_called(calls)
        world.calls[-1].set_exception(error)
        await until(lambda calls=calls: world.probes == calls)  # type: ignore[misc]
        await world.is_idle()
        world.clock.advance(200)
    assert world.evidence == 0


async def test_call_that_the_controller_answers_is_made_again_at_once(world: World) -> None:
    world.attend()
    for calls in range(1, 4):
        await world.is_called(calls)
        world.calls[-1].set_result(None)
    assert world.probes == 0


async def test_report_of_a_lost_connection_makes_the_candidate_probe_at_once(world: World) -> None:
    world.attend()
    await world.is_called()
    world.attendance.connection_lost()
    await until(lambda: world.probes == 1)
    await world.is_idle()
    world.clock.advance(100)
    await until(lambda: world.evidence == 1)


async def test_each_report_of_a_lost_connection_causes_one_probe(world: World) -> None:
    world.presence = Presence.PRESENT
    world.attend()
    for reports in range(1, 4):
        await world.is_called(reports)
        world.attendance.connection_lost()
        await until(lambda reports=reports: world.probes == reports, seconds=5)  # type: ignore[misc]
        await world.is_idle()
        world.clock.advance(200)
    await world.is_called(4)
    world.clock.advance(1_000)
    await world.is_idle()
    assert (world.probes, world.calls[-1].done()) == (3, False), "the call stays open"


async def test_evidence_that_was_not_used_is_dropped_with_the_next_controller(
    world: World,
) -> None:
    world.attend()
    await world.is_called()
    world.calls[0].set_exception(ConnectionResetError())
    await until(lambda: world.probes == 1)
    await world.is_idle()
    world.clock.advance(100)
    await until(lambda: world.evidence == 1)
    world.attend(7, 107)
    assert world.attendance.take_former() is None


@pytest.mark.parametrize("owner", [OWNER + 1, None, "malformed"])
async def test_controller_without_a_registration_of_its_session_is_not_called(
    world: World, owner: int | str | None
) -> None:
    path = layout.broker_path(CONTROLLER)
    if owner is None:
        world.ensemble.delete(path)
    elif owner == "malformed":
        world.ensemble.put(path, b"{")
    else:
        world.register(CONTROLLER, int(owner))
    world.attend()
    await world.is_idle()
    assert world.calls == []
    world.register(CONTROLLER, OWNER)
    world.clock.advance(200)
    await world.is_called()


async def test_attendance_goes_on_after_a_lost_connection_to_zookeeper(world: World) -> None:
    world.session.failures = [NotConnected()]
    world.attend()
    await world.is_idle()
    world.clock.advance(200)
    await world.is_called()


async def test_evidence_against_a_controller_ends_when_another_one_is_attended(
    world: World,
) -> None:
    world.attend()
    await world.is_called()
    world.calls[0].set_exception(ConnectionResetError())
    await until(lambda: world.probes == 1)
    world.attend(7, 107)
    await world.is_called(2)
    world.clock.advance(1_000)
    await world.is_idle()
    assert (world.evidence, world.attendance.take_former()) == (0, None)


@pytest.mark.parametrize("broker_id", [OWN_ID, -1])
async def test_broker_attends_neither_at_itself_nor_at_nobody(world: World, broker_id: int) -> None:
    world.attend()
    await world.is_called()
    world.attend(broker_id)
    await until(lambda: world.calls[0].cancelled())
    world.clock.advance(1_000)
    await world.is_idle()
    assert len(world.calls) == 1


async def test_evidence_is_given_again_if_the_dead_controller_was_not_replaced(
    world: World,
) -> None:
    world.attend()
    for count in range(1, 4):
        await world.is_called(count)
        world.calls[-1].set_exception(ConnectionRefusedError())
        await until(lambda count=count: world.probes == count)  # type: ignore[misc]
        await world.is_idle()
        world.clock.advance(100)
        await until(lambda count=count: world.evidence == count)  # type: ignore[misc]
        assert world.attendance.take_former() is not None
        await world.is_idle()
        world.clock.advance(200)
