"""The suspicions of one term: which brokers are probed, when, and how often; here each broker dies more than once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace

import pytest
from support.brokers.endpoints import endpoints
from support.brokers.mode_ports import mode_ports
from support.ledger.recording_ledger import RecordingLedger
from support.until import until

from minikafka.base.model import Broker
from minikafka.broker.ledger.record import BROKER
from minikafka.broker.modes.controller.terms.controllership import Controllership
from minikafka.broker.modes.controller.terms.probes import BrokerProbes
from minikafka.broker.rpc.liveness import Presence, Probe
from minikafka.deciders.controller.events import BrokerSuspected, SuspicionEnded
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock

OWN_ID, REPORTER = 1, 4
SESSION_MS, AGAIN_MS = 6_000, 500
REFUSED = BrokerSuspected(2, 20, f"connection to here:2 refused; reported by broker {REPORTER}")
ENDED = SuspicionEnded(2, 20)


def registered(broker_id: int, epoch: int) -> Broker:
    return Broker(broker_id, endpoints("127.0.0.1", 9092, "127.0.0.1", 19092), epoch)


class World:
    """Controller 1 and broker 2 with broker epoch 20. Probes wait until the test answers them."""

    def __init__(self, suspects: Mapping[int, int] | None = None) -> None:
        self.clock, self.ledger = ManualClock(), RecordingLedger()
        self.tasks, self.controllership = TaskRegistry(), Controllership()
        self.events: list[BrokerSuspected | SuspicionEnded] = []
        self.probed: list[tuple[int, int]] = []
        self.open: deque[asyncio.Future[Probe]] = deque()
        self.probes = BrokerProbes(
            mode_ports(
                OWN_ID,
                zookeeper=SimpleNamespace(session_timeout_ms=SESSION_MS),
                clock=self.clock,
                tasks=self.tasks,
                ledger=self.ledger,
            ),
            self.probe,
            self.controllership,
            self.events.append,
            suspects or {},
        )

    async def probe(self, broker: Broker) -> Probe:
        self.probed.append((broker.id, broker.epoch))
        self.open.append(asyncio.get_running_loop().create_future())
        return await self.open[-1]

    def read(self, **epochs: int) -> None:
        """Let the controller read these registrations, by `b` and broker id, besides its own."""
        brokers = {int(name[1:]): epoch for name, epoch in epochs.items()} | {OWN_ID: 10}
        self.probes.brokers_read({id_: registered(id_, e) for id_, e in brokers.items()})

    async def answer(self, presence: Presence, epoch: int = -1) -> None:
        """Answer the oldest open probe, which must exist, and let everything happen that needs no time."""
        await until(lambda: self.open, seconds=5)
        self.open.popleft().set_result(Probe(presence, "here:2", epoch))
        await self.idle()

    async def idle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def report(self, broker_id: int = 2, epoch: int = 20) -> int:
        """Report an ended connection; return the number of probes that it causes."""
        before = len(self.probed)
        self.probes.report(broker_id, epoch, REPORTER)
        await self.idle()
        return len(self.probed) - before


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Broker 2 has answered the probe at the beginning of the term."""
    world = World()
    world.read(b2=20)
    await world.answer(Presence.PRESENT, 20)
    assert world.probed == [(2, 20)]
    yield world
    await world.tasks.close()


async def advance(world: World, ms: int) -> None:
    world.clock.advance(ms)
    await world.idle()


async def test_all_other_brokers_are_probed_once_when_the_term_begins() -> None:
    world = World()
    world.read(b2=20, b3=30)
    await world.idle()
    assert world.probed == [(2, 20), (3, 30)]
    world.read(b2=20, b3=30, b5=50)
    await world.idle()
    assert len(world.probed) == 2, "a broker that registers later was alive a moment ago"
    await world.tasks.close()


async def test_report_before_the_first_read_of_the_brokers_has_no_effect() -> None:
    world = World()
    assert await world.report() == 0
    world.read(b2=20)
    await world.idle()
    assert world.probed == [(2, 20)]
    await world.tasks.close()


@pytest.mark.parametrize("presence", [Presence.PRESENT, Presence.UNKNOWN])
async def test_each_report_causes_a_probe_of_a_broker_that_has_not_refused(
    world: World, presence: Presence
) -> None:
    for _ in range(3):
        assert await world.report() == 1
        await world.answer(presence, 20)
    assert world.events == []
    assert await world.report() == 1
    await world.answer(Presence.REFUSED)
    assert world.events == [REFUSED]


async def test_broker_is_probed_at_most_once_at_a_time(world: World) -> None:
    assert [await world.report() for _ in range(3)] == [1, 0, 0]
    await world.answer(Presence.REFUSED)
    assert [await world.report() for _ in range(3)] == [0, 0, 0], "it is a suspect"
    assert world.events == [REFUSED]


async def test_probe_that_fails_does_not_block_the_next_report(world: World) -> None:
    assert await world.report() == 1
    world.open.popleft().set_exception(KeyError("an answer of another version"))
    await world.idle()
    assert await world.report() == 1
    await world.answer(Presence.REFUSED)
    assert world.events == [REFUSED]


async def test_broker_is_suspected_again_in_its_next_registration(world: World) -> None:
    for epoch in (20, 21, 22):
        assert await world.report(epoch=epoch) == 1
        await world.answer(Presence.REFUSED)
        assert world.probes.suspects() == {2: epoch}
        world.read()  # its session ends
        assert world.probes.suspects() == {}
        world.read(b2=epoch + 1)
    assert [event.broker_epoch for event in world.events] == [20, 21, 22]


async def test_broker_that_bounced_between_two_reads_is_suspected_again(world: World) -> None:
    await world.report()
    await world.answer(Presence.REFUSED)
    world.read(b2=21)
    assert world.probes.suspects() == {}
    assert await world.report(epoch=21) == 1
    await world.answer(Presence.REFUSED)
    assert [event.broker_epoch for event in world.events] == [20, 21]


async def test_open_probe_of_an_earlier_registration_does_not_block_the_next(world: World) -> None:
    assert await world.report() == 1
    world.read(b2=21)
    assert await world.report(epoch=21) == 1
    await world.answer(Presence.REFUSED)
    assert world.events == [], "the registration that was probed has ended"
    await world.answer(Presence.REFUSED)
    assert [event.broker_epoch for event in world.events] == [21]


async def test_false_suspicion_ends_and_can_begin_again_in_the_same_registration(
    world: World,
) -> None:
    for _ in range(3):
        world.events.clear()
        assert await world.report() == 1
        await world.answer(Presence.REFUSED)
        await advance(world, SESSION_MS - 1)
        assert not world.open, "a suspicion lasts one session timeout"
        await advance(world, 1)
        await world.answer(Presence.PRESENT, 20)
        assert world.events == [REFUSED, ENDED]
        assert world.probes.suspects() == {}


async def test_suspect_that_does_not_answer_is_probed_again_and_again(world: World) -> None:
    await world.report()
    await world.answer(Presence.REFUSED)
    await advance(world, SESSION_MS)
    for presence in (Presence.REFUSED, Presence.UNKNOWN, Presence.REFUSED):
        await world.answer(presence)
        await advance(world, AGAIN_MS - 1)
        assert not world.open
        await advance(world, 1)
    await world.answer(Presence.PRESENT, 20)
    assert world.events == [REFUSED, ENDED]


async def test_answer_in_another_registration_does_not_end_the_suspicion(world: World) -> None:
    await world.report()
    await world.answer(Presence.REFUSED)
    await advance(world, SESSION_MS)
    for epoch in (19, 21, -1):
        await world.answer(Presence.PRESENT, epoch)
        await advance(world, AGAIN_MS)
    assert world.events == [REFUSED]
    assert world.probes.suspects() == {2: 20}


async def test_suspect_whose_registration_has_ended_is_not_probed_again(world: World) -> None:
    await world.report()
    await world.answer(Presence.REFUSED)
    world.read(b2=21)
    probes = len(world.probed)
    await advance(world, 10 * SESSION_MS)
    assert (len(world.probed), world.events) == (probes, [REFUSED])


async def test_suspect_from_before_the_term_is_watched_without_an_event() -> None:
    world = World({2: 20, 3: 29})
    world.read(b2=20, b3=30)
    await world.idle()
    assert world.probed == [(3, 30)], "broker 3 has restarted since"
    assert world.probes.suspects() == {2: 20}
    await world.answer(Presence.PRESENT, 30)
    await advance(world, SESSION_MS)
    await world.answer(Presence.PRESENT, 20)
    assert world.events == [ENDED]
    assert await world.report() == 1
    await world.answer(Presence.REFUSED)
    assert world.events == [ENDED, REFUSED]
    await world.tasks.close()


async def test_controller_does_not_probe_itself(world: World) -> None:
    assert await world.report(OWN_ID, 10) == 0


async def test_report_about_another_registration_or_an_unknown_broker_has_no_effect(
    world: World,
) -> None:
    assert [await world.report(2, 19), await world.report(2, 21), await world.report(7, 70)] == [
        0
    ] * 3


async def test_term_that_has_ended_probes_nobody_and_cancels_its_probes(world: World) -> None:
    await world.report()
    [probe] = world.open
    world.controllership.end()
    await world.idle()
    assert probe.cancelled()
    world.open.clear()
    assert await world.report() == 0
    assert world.tasks.names() == []


async def test_outcome_of_each_probe_without_an_answer_is_in_the_ledger(world: World) -> None:
    await world.report()
    await world.answer(Presence.UNKNOWN)
    await world.report()
    await world.answer(Presence.REFUSED)
    lines = [fields for kind, _, fields in world.ledger.lines if kind == BROKER]
    reporter = f"; reported by broker {REPORTER}"
    assert [line["outcome"] for line in lines] == [f"unknown{reporter}", f"refused{reporter}"]
    assert {(line["to"], line["broker_epoch"]) for line in lines} == {(2, 20)}
