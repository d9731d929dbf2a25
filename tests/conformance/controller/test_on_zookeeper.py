"""The controller on Apache ZooKeeper: races, lost sessions and a restarted server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.brokers.controller_bench import Candidate, encode_preferred_election, until
from support.zookeeper.servers import end_live_session

from minikafka.base.errors import MultiFailed, NodeExists
from minikafka.base.model import (
    ControllerResponse,
    LeaderAndIsr,
    ReplicaAssignment,
    StopReplicaRequest,
    TopicPartition,
)
from minikafka.base.ports import SessionState
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.zookeeper.client.client import ZooKeeperClient, close_session
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.processes.apache import ApacheZooKeeper
from minikafka.zookeeper.processes.child import ServerFailed

T0 = TopicPartition("t", 0)
SESSION_MS = 6_000
ROOTS = itertools.count()
Start = Callable[[int], Awaitable[Candidate]]


@pytest.fixture
def address(server: ApacheZooKeeper) -> str:
    """Return the connect string of a new chroot on the shared server."""
    return f"{server.connect}/candidates-{next(ROOTS)}"


def connect(address: str) -> tuple[ZooKeeperClient, TaskRegistry]:
    tasks = TaskRegistry()
    return ZooKeeperClient(
        address, SESSION_MS, SystemClock(), SystemRng(), tasks, SocketTransport()
    ), tasks


async def watched_paths(server: ApacheZooKeeper, address: str) -> set[str]:
    """Return the paths in the chroot of `address` that any session watches."""
    root = address.removeprefix(server.connect)
    lines = (await server.four_letter_word("wchp", 20_000)).splitlines()
    return {line.removeprefix(root) for line in lines if line.startswith(f"{root}/")}


@pytest.fixture
async def admin(address: str) -> AsyncIterator[ZooKeeperClient]:
    """A ZooKeeper session with which the test itself reads and changes nodes."""
    zookeeper, tasks = connect(address)
    await zookeeper.start()
    for path in layout.PERSISTENT:
        await zookeeper.ensure(path)
    yield zookeeper
    await zookeeper.close()
    await tasks.close()


@pytest.fixture
async def start(address: str, admin: ZooKeeperClient) -> AsyncIterator[Start]:
    started: list[Candidate] = []

    async def start_one(broker_id: int) -> Candidate:
        zookeeper, tasks = connect(address)
        candidate = Candidate(None, broker_id, zookeeper, tasks)  # type: ignore[arg-type]
        started.append(candidate)
        await zookeeper.start()
        await candidate.register()
        tasks.spawn(register_in_every_session(candidate), "registration")
        await candidate.service.start()
        return candidate

    yield start_one
    for candidate in started:
        await candidate.service.resign()
        await candidate.zookeeper.close()
        await candidate.tasks.close()


async def register_in_every_session(candidate: Candidate) -> None:
    generation = candidate.zookeeper.generation
    async for event in candidate.zookeeper.events():
        if event.state is SessionState.CONNECTED and event.generation != generation:
            generation = event.generation
            while True:
                try:
                    await candidate.register()
                    break
                except NodeExists:
                    await asyncio.sleep(0.05)


def active(candidates: list[Candidate]) -> list[Candidate]:
    active = [candidate for candidate in candidates if candidate.service.is_active]
    assert len(active) <= 1, "two controllers at one instant"
    return active


def idle(candidate: Candidate) -> bool:
    shown = candidate.service.summary()
    return shown.get("state") == "Idle" and shown.get("queue_size") == 0


async def start_again(server: ApacheZooKeeper) -> None:
    """Start a killed server; retry, because its port may stay in use for a moment after the kill."""
    async with asyncio.timeout(60):
        while True:
            try:
                await server.start()
                return
            except ServerFailed:
                await asyncio.sleep(0.05)


async def create_topic(admin: Any, topic: str, *replica_lists: list[int]) -> None:
    assignment = {i: ReplicaAssignment(tuple(replicas)) for i, replicas in enumerate(replica_lists)}
    await admin.create(layout.topic_path(topic), layout.encode_topic(bytes(range(16)), assignment))


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds: the server does not notify the test of changes."""
    async with asyncio.timeout(15):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def gone(admin: Any, path: str) -> None:
    """Wait until the node does not exist."""

    async def is_gone() -> bool:
        return await admin.exists(path) is None

    await eventually(is_gone)


async def led_by(admin: Any, leader: int, tp: TopicPartition = T0) -> LeaderAndIsr:
    """Wait until broker `leader` leads the partition, and return the partition's state."""
    async with asyncio.timeout(15):
        while True:
            (node,) = await admin.get_many([layout.state_path(tp)])
            state = layout.decode_state(node.data, node.stat.version) if node else None
            if state is not None and state.leader == leader:
                return state
            await asyncio.sleep(0.01)


@pytest.mark.row("D1", "R1", "A8", "D9", "E8")
async def test_exactly_one_of_several_candidates_wins_every_controller_election(
    start: Start, admin: Any
) -> None:
    candidates = list(await asyncio.gather(*(start(i) for i in range(4))))
    for epoch in range(1, 9):
        (winner,) = await until(lambda: active(candidates))
        await until(lambda w=winner, e=epoch: w.service.epoch == e and idle(w), seconds=15)
        data, _ = await admin.get(layout.CONTROLLER_EPOCH)
        assert int(data) == epoch
        await admin.delete(layout.CONTROLLER, -1)
        await until(lambda w=winner, e=epoch: not w.service.is_active or w.service.epoch > e)


async def test_next_controller_moves_leaders_away_from_the_dead_controllers_broker(
    start: Start, admin: Any, server: ApacheZooKeeper
) -> None:
    one = await start(1)
    await until(lambda: active([one]))
    two = await start(2)
    await until(lambda: "2" in one.service.summary()["brokers"] and idle(one))
    await create_topic(admin, "t", *([1, 2] for _ in range(500)))
    await led_by(admin, 1, TopicPartition("t", 499))
    await until(lambda: idle(one))
    await one.tasks.close()
    session = one.zookeeper.session_id, one.zookeeper.session_password
    await close_session(server.connect, *session, SystemClock(), SocketTransport())
    for partition in (0, 250, 499):
        state = await led_by(admin, 2, TopicPartition("t", partition))
        assert (state.isr, state.leader_epoch, state.controller_epoch) == ((2,), 1, 2)
    assert two.service.is_active


@pytest.mark.row("E9", "R9")
async def test_controller_with_an_expired_session_is_elected_again_in_a_higher_epoch(
    start: Start, admin: Any, server: ApacheZooKeeper
) -> None:
    one = await start(1)
    await until(lambda: active([one]) and idle(one))
    session = one.zookeeper.session_id, one.zookeeper.session_password
    await asyncio.gather(
        create_topic(admin, "t", *([1] for _ in range(300))),
        end_live_session(server.connect, *session),
    )
    state = await led_by(admin, 1, TopicPartition("t", 299))
    await until(lambda: one.service.is_active and one.service.epoch == 2, seconds=15)
    assert state.controller_epoch in (1, 2)
    assert one.service.generation == one.zookeeper.generation == 2


async def test_controller_keeps_its_term_when_zookeeper_restarts(
    start: Start, admin: Any, server: ApacheZooKeeper
) -> None:
    one = await start(1)
    await until(lambda: active([one]) and idle(one))
    await server.kill()
    await start_again(server)
    await admin.connected()
    await create_topic(admin, "t", [1])
    assert (await led_by(admin, 1)).isr == (1,)
    assert active([one])


@pytest.mark.row("R2")
async def test_zookeeper_refuses_writes_of_an_older_controller_epoch(
    start: Start, admin: Any
) -> None:
    one = await start(1)
    await until(lambda: active([one]) and idle(one))
    await admin.set(layout.CONTROLLER_EPOCH, b"9", -1)
    await create_topic(admin, "t", [1])
    assert (await led_by(admin, 1)).controller_epoch == 10


@pytest.mark.row("D10")
async def test_controller_that_resigns_keeps_only_the_watch_of_a_candidate(
    start: Start, admin: Any, server: ApacheZooKeeper, address: str
) -> None:
    one = await start(1)
    await create_topic(admin, "t", [1])
    await led_by(admin, 1)
    await until(lambda: idle(one))
    assert layout.topic_path("t") in await watched_paths(server, address)
    await admin.set(layout.CONTROLLER, layout.encode_controller(7, 0), -1)
    await until(lambda: one.service.controller_id == 7)
    watched = layout.broker_path(1)
    async with asyncio.timeout(60):
        while layout.broker_path(1) in watched:  # the last watch that the broker removes
            watched = await watched_paths(server, address)
    assert layout.topic_path("t") not in watched


@pytest.mark.row("A9", "A11", "E4", "E10", "X14")
async def test_partition_state_node_is_watched_only_during_a_reassignment(
    start: Start, admin: Any, server: ApacheZooKeeper, address: str
) -> None:
    one = await start(1)
    await until(lambda: active([one]) and idle(one))
    await start(2)
    await until(lambda: "2" in one.service.summary()["brokers"] and idle(one))
    await create_topic(admin, "t", [1])
    state = await led_by(admin, 1)
    path = layout.state_path(T0)
    await until(lambda: idle(one))
    assert path not in await watched_paths(server, address)
    asked = layout.encode_reassignments({T0: [2]})
    await admin.create(layout.REASSIGN_PARTITIONS, asked)

    async def watched() -> bool:
        return path in await watched_paths(server, address)

    await eventually(watched)
    data, stat = await admin.get(path)
    state = layout.decode_state(data, stat.version)
    joined = LeaderAndIsr(1, state.leader_epoch, (1, 2), state.controller_epoch, 0)
    await admin.set(path, layout.encode_state(joined), stat.version)
    final = await led_by(admin, 2)
    await gone(admin, layout.REASSIGN_PARTITIONS)
    await until(lambda: idle(one))
    assert not await watched()
    assert final.leader_epoch > state.leader_epoch
    data, _ = await admin.get(layout.topic_path("t"))
    assert layout.decode_topic(data)[1] == {0: ReplicaAssignment((2,))}


@pytest.mark.row("A12", "A13", "E5", "E7", "R65")
async def test_controller_deletes_preferred_election_and_delete_topics_nodes_when_done(
    start: Start, admin: Any
) -> None:
    one = await start(1)
    await until(lambda: active([one]) and idle(one))
    one.channels.answer = lambda broker, request: (
        ControllerResponse(0, tuple((p.tp, 0) for p in request.partitions))
        if isinstance(request, StopReplicaRequest)
        else None
    )
    await create_topic(admin, "t", [1])
    await led_by(admin, 1)
    left = [layout.PREFERRED_ELECTION, layout.delete_topic_path("none")]
    await admin.create(left[0], encode_preferred_election([T0]))
    await admin.create(left[1], b"")
    await admin.create(layout.delete_topic_path("t"), b"")
    left += [layout.delete_topic_path("t"), layout.topic_path("t")]
    for path in left:
        await gone(admin, path)


async def test_controller_that_refuses_connections_is_replaced_while_its_session_lasts(
    start: Start, admin: ZooKeeperClient
) -> None:
    """Each former controller is alive: it learns of its successor, and becomes a candidate again.

    The order of the successors depends on real time here; `test_takeovers.py` proves it in virtual time.
    """
    candidates = [await start(id_) for id_ in (1, 2, 3)]
    await until(lambda: active(candidates))
    for _ in range(6):
        (former,) = active(candidates)
        others = [candidate for candidate in candidates if candidate is not former]
        _, registered = await admin.get(layout.broker_path(former.id))
        fence, epoch = former.service.fence(), former.service.epoch
        for candidate in candidates:
            candidate.refusing = {former.id}

        def is_replaced(others: list[Candidate] = others) -> bool:
            for candidate in others:
                candidate.service.controller_lost()
            return any(candidate.service.is_active for candidate in others)

        await until(is_replaced)
        with pytest.raises(MultiFailed):
            await former.zookeeper.multi([fence])
        await until(lambda former=former: not former.service.is_active)  # type: ignore[misc]
        (successor,) = active(candidates)
        assert successor in others
        assert successor.service.epoch == epoch + 1
        assert (await admin.get(layout.broker_path(former.id))).stat == registered
        data, stat = await admin.get(layout.CONTROLLER)
        assert layout.decode_controller(data) == successor.id
        assert stat.ephemeral_owner == successor.zookeeper.session_id
        await until(lambda successor=successor: idle(successor))  # type: ignore[misc]
