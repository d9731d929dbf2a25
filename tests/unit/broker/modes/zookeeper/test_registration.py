"""The registration of one broker across its sessions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.brokers.endpoints import endpoints
from support.brokers.mode_ports import mode_ports
from support.until import until

from minikafka.base.endpoints import parse_endpoint
from minikafka.base.errors import ConfigError, NotConnected, OutcomeUnknown
from minikafka.base.model import Broker
from minikafka.base.protocol_versions import VERSIONS, Versions
from minikafka.base.zookeeper import SESSION_FILE
from minikafka.broker.modes.zookeeper import registration
from minikafka.broker.modes.zookeeper.registration import Registration
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import SkewedClock
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout

PATH = layout.broker_path(1)


class World:
    """A broker that registers over an in-memory session. `epochs`: the broker epochs that it was given."""

    def __init__(self, versions: Versions = VERSIONS) -> None:
        self.ensemble, self.tasks, self.epochs = ZooKeeperInMemory(), TaskRegistry(), list[int]()
        self.ensemble.put(layout.BROKER_IDS)
        self.session = InMemoryClient(self.ensemble)
        self.storage = MemoryStorage()
        self.storage.make_directories("/data")
        self.registration = Registration(
            mode_ports(zookeeper=self.session, clock=SystemClock(), tasks=self.tasks),
            SessionFile(self.storage, "/data"),
            Broker(1, (), versions=versions),
            self.epochs.append,
        )


@pytest.mark.parametrize("is_written", [True, False])
async def test_registration_whose_answer_was_lost_is_looked_up_or_repeated(
    is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    await world.session.attach()
    create, answers = world.session.create, iter([OutcomeUnknown("lost"), NotConnected("lost")])

    async def lost(*arguments: Any, **options: Any) -> Any:
        error = next(answers, None)
        if is_written or error is None:
            stat = await create(*arguments, **options)
        if error is not None:
            raise error
        return stat

    monkeypatch.setattr(world.session, "create", lost)
    await world.registration.start()
    await world.tasks.close()
    node = world.ensemble.nodes[PATH]
    assert (node.owner, world.epochs) == (world.session.session_id, [node.czxid])


async def test_registration_replaces_the_node_of_a_former_session_at_once() -> None:
    world = World()
    await world.session.attach()
    ensemble, session, epochs = world.ensemble, world.session, world.epochs
    await world.registration.start()
    former = session.session_id
    await session.expire()
    ensemble.put(PATH, b"{}", owner=ensemble.open_session(former))  # a server that lags behind
    await session.attach()
    await until(lambda: len(epochs) == 2)
    await world.tasks.close()
    assert epochs[1] > epochs[0]
    assert ensemble.nodes[PATH].owner == session.session_id != former


async def test_id_of_a_living_broker_is_refused_with_the_addresses_of_that_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    other = Broker(1, (parse_endpoint("PLAINTEXT://10.0.0.2:9092"),))
    owner = world.ensemble.open_session(77)
    world.ensemble.put(PATH, layout.encode_broker(other, 0), owner=owner)
    await world.session.attach()
    monkeypatch.setattr(registration, "_MORE_THAN_A_SESSION_MS", -world.session.session_timeout_ms)
    with pytest.raises(ConfigError) as refused:
        await world.registration.register()
    await world.tasks.close()
    assert str(refused.value) == (
        "broker.id = 1 is used by another broker, PLAINTEXT://10.0.0.2:9092: "
        "stop that broker, or set another broker.id here"
    )


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (2, "the clock of this broker is 7200.0 s ahead of ZooKeeper's"),
        (-2, "the clock of this broker is 7200.0 s behind ZooKeeper's"),
        (0, None),
    ],
)
async def test_clock_that_is_far_from_that_of_zookeeper_is_named(
    hours: int,
    expected: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    clock = SkewedClock(world.ensemble.clock, hours * 3_600_000)
    monkeypatch.setattr(world.registration, "_clock", clock)
    await world.session.attach()
    await world.registration.register()
    await world.tasks.close()
    found = [text.partition(":")[0] for text in caplog.messages if "clock" in text]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("place", "expected"), [("/data", [1]), (None, [1]), ("a boot and an inode", [])]
)
async def test_session_in_a_copied_directory_is_not_ended(
    place: str | None, expected: list[int]
) -> None:
    ended: list[int] = []

    async def close(session: int, password: bytes) -> None:
        ended.append(session)

    world = World()
    former = {"id": 1, "password": "00" * 16} | ({"place": place} if place else {})
    world.storage.write_atomically(f"/data/{SESSION_FILE}", json.dumps(former).encode())
    await SessionFile(world.storage, "/data").end_former(close)
    assert ended == expected


async def test_broker_registers_once_in_each_of_many_sessions() -> None:
    """A server that lags behind still has the node of the session before."""
    world = World()
    await world.session.attach()
    await world.registration.start()
    for sessions in range(2, 5):
        former = world.session.session_id
        await world.session.expire()
        world.ensemble.put(PATH, b"{}", owner=world.ensemble.open_session(former))
        await world.session.attach()
        await until(lambda sessions=sessions: len(world.epochs) == sessions, seconds=5)  # type: ignore[misc]
        assert world.ensemble.nodes[PATH].owner == world.session.session_id
        saved = json.loads(world.storage.read(f"/data/{SESSION_FILE}"))
        assert saved["id"] == world.session.session_id, "the next process ends this session"
        world.session.suspend()
        await world.session.attach()
        await world.ensemble.time_for_requests()
        assert len(world.epochs) == sessions, "the session is the same"
    await world.tasks.close()


async def register_beside(versions: Versions, others: Versions | None) -> World:
    """Register broker 1 in a cluster in which broker 2 has registered the versions `others`; None names none."""
    world = World(versions)
    other = Broker(2, endpoints("h", 9092, "h", 19092), versions=others or ())
    fields = json.loads(layout.encode_broker(other))
    if others is None:
        del fields[layout.PROTOCOL_VERSIONS]
    world.ensemble.put(layout.broker_path(2), json.dumps(fields).encode())
    await world.session.attach()
    try:
        await world.registration.register()
    finally:
        await world.tasks.close()
    return world


@pytest.mark.parametrize("others", [None, ("0.1",), ("0.1", "0.2"), ("0.2", "0.3")])
async def test_broker_joins_brokers_with_a_common_protocol_version(others: Versions | None) -> None:
    world = await register_beside(VERSIONS, others)
    assert world.epochs == [world.ensemble.nodes[PATH].czxid]


@pytest.mark.key("minikafka.inter.broker.protocol.version")
@pytest.mark.parametrize(
    ("versions", "others", "older"),
    [
        (VERSIONS, ("0.3", "0.4"), 1),
        (("0.2", "0.3"), None, 2),
        (("0.1",), ("0.2", "0.3"), 1),
        (("0.9", "0.10"), ("0.7", "0.8"), 2),
    ],
)
async def test_broker_two_versions_from_a_registered_one_does_not_start(
    versions: Versions, others: Versions | None, older: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        await register_beside(versions, others)
    assert f"upgrade broker {older} first, one minor release at a time" in str(caught.value)
    assert "broker 1 has version" in str(caught.value)
    assert "and broker 2 version" in str(caught.value)


async def test_registration_that_cannot_be_read_stops_no_broker() -> None:
    world = World()
    world.ensemble.put(layout.broker_path(2), b"{}")
    await world.session.attach()
    await world.registration.register()
    await world.tasks.close()
    assert PATH in world.ensemble.nodes
