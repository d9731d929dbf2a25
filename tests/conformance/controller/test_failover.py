"""Deaths of brokers, found by refused connections long before a session expires: whole brokers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from minikafka.base.endpoints import Endpoint
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Call
from minikafka.broker.broker import BrokerServer
from minikafka.broker.ledger.reader import Line
from minikafka.broker.rpc import messages
from minikafka.broker.rpc.liveness import CONNECTION_LOST
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.control_plane import MemoryServer
from minikafka.simulation.loop import run_seeded

T0 = TopicPartition("t", 0)
AT_ONCE = 500
"""Milliseconds in which a death is found and handled. No session of a killed broker expires meanwhile."""
SESSION_MS = 6_000
"""Session timeout of the in-memory ZooKeeper. Sessions of killed brokers expire only when a test ends them."""


class Scene:
    """Three brokers with topic t of one partition, led by a broker that is not the controller."""

    def __init__(self, cluster: MemoryCluster, client: Client) -> None:
        self.cluster, self.client = cluster, client
        self.sent: list[bytes] = []

    @property
    def controller(self) -> BrokerServer:
        [active] = [
            b for b in self.cluster.brokers.values() if b.capabilities.diagnostics.is_active
        ]
        return active

    @property
    def now(self) -> int:
        return self.cluster.clock.now()

    def leader(self) -> int:
        """Return the broker that leads t-0 and says so."""
        leads = [
            id_
            for id_, broker in self.cluster.brokers.items()
            if (partition := broker.replicas.partition(T0)) is not None and partition.is_leader
        ]
        return leads[-1] if leads else -1

    def isr(self) -> tuple[int, ...]:
        state = self.controller.capabilities.diagnostics.view(T0)
        assert state is not None
        return tuple(state["partition"]["isr"])

    async def produce(self) -> None:
        """Send a record with acks=all, and remember it when it is acknowledged."""
        value = b"%d" % len(self.sent)
        await self.client.produce("t", [Record(value=value)], partition=0)
        self.sent.append(value)

    async def check_nothing_lost(self) -> None:
        found = await self.client.fetch("t", 0, 0)
        read = {record.value for record in found.records}
        assert set(self.sent) <= read

    def summary(self) -> dict[str, Any]:
        return self.controller.capabilities.diagnostics.summary()

    def events(self, name: str) -> list[Line]:
        lines = self.cluster.history()
        return [line for line in lines if line["kind"] == "event" and line.get("event") == name]

    async def sleep(self, ms: int) -> None:
        await self.cluster.clock.sleep(ms)

    async def start_again(self, number: int) -> None:
        """Start a killed broker, and wait until all its replicas are in sync."""
        await self.cluster.start(number)
        await self.cluster.until_all_are_known()
        await self.cluster.until_all_are_in_sync()

    async def kill_leader(self) -> int:
        """Kill the leader, and check that it is replaced at once; return its id."""
        dead, killed_at = self.leader(), self.now
        self.cluster.kill(dead)
        await self.produce()
        assert self.now - killed_at < AT_ONCE
        assert self.leader() != dead
        return dead

    async def lead(self, number: int) -> None:
        """Make the broker the leader, as an administrator does."""
        others = [id_ for id_ in sorted(self.cluster.storages) if id_ != number]
        await self.client.admin.alter_reassignments({T0: (number, *others)})
        await self.client.admin.elect_leaders([T0])
        while self.leader() != number:
            await self.sleep(10)

    def server(self, number: int) -> MemoryServer:
        """Return the control listener of a broker."""
        process = self.cluster.processes[number]
        [server] = [s for s in self.cluster.servers.values() if s.process is process]
        return server


def run(scenario: Callable[[Scene], Awaitable[None]], *, seed: int = 1, **config: object) -> None:
    async def scene() -> None:
        keys = {"auto_leader_rebalance_enable": False, "min_insync_replicas": 2, **config}
        async with MemoryCluster(3, **keys) as cluster, cluster.client() as client:
            story = Scene(cluster, client)
            controller = story.controller.config.broker_id
            leader, other = [id_ for id_ in cluster.brokers if id_ != controller]
            await client.create_topics(NewTopic("t", assignment={0: (leader, other, controller)}))
            await story.produce()
            await scenario(story)

    run_seeded(seed, scene())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.key("minikafka.fast.failover.enable")
def test_killed_leader_is_replaced_at_once(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        dead, killed_at = scene.leader(), scene.now
        scene.cluster.kill(dead)
        await scene.produce()
        assert scene.now - killed_at < 500
        assert scene.leader() != dead
        assert dead not in scene.isr()
        assert scene.summary()["suspicions"] == 1
        [event] = scene.events("BrokerSuspected")
        assert "refused; reported by broker" in event["evidence"]
        await scene.check_nothing_lost()

    run(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_leader_that_is_killed_again_in_one_term_is_replaced_at_once_each_time(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        term, number = scene.controller.capabilities.diagnostics.epoch, scene.leader()
        for deaths in range(1, 4):
            assert await scene.kill_leader() == number
            assert scene.summary()["suspicions"] == deaths
            await scene.start_again(number)
            await scene.lead(number)
        assert scene.controller.capabilities.diagnostics.epoch == term
        assert scene.summary()["false_suspicions"] == 0
        await scene.check_nothing_lost()

    run(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_leaders_that_are_killed_in_turn_are_replaced_at_once(seed: int) -> None:
    """Each broker of the partition dies twice, the controller at last, all in terms of at most two controllers."""

    async def scenario(scene: Scene) -> None:
        for _ in range(4):
            await scene.start_again(await scene.kill_leader())
        await scene.check_nothing_lost()

    run(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_leader_that_is_killed_in_each_of_many_terms_is_replaced_at_once(seed: int) -> None:
    """Between the deaths of the leader, the controller is killed and replaced."""

    async def scenario(scene: Scene) -> None:
        number, terms = scene.leader(), set()
        for _ in range(3):
            terms.add(scene.controller.capabilities.diagnostics.epoch)
            await scene.kill_leader()
            await scene.start_again(number)
            former, killed_at = scene.controller.config.broker_id, scene.now
            scene.cluster.kill(former)
            await scene.produce()
            assert scene.now - killed_at < AT_ONCE
            await scene.start_again(former)
            [number] = set(scene.cluster.brokers) - {former, scene.controller.config.broker_id}
            await scene.lead(number)
        assert len(terms) == 3
        await scene.check_nothing_lost()

    run(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_follower_that_is_killed_again_leaves_the_isr_at_once_each_time(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        leader, controller = scene.leader(), scene.controller.config.broker_id
        [number] = set(scene.cluster.brokers) - {leader, controller}
        for _ in range(3):
            killed_at = scene.now
            scene.cluster.kill(number)
            await scene.produce()
            assert scene.now - killed_at < AT_ONCE
            await scene.start_again(number)
        assert (scene.leader(), scene.summary()["suspicions"]) == (leader, 3)

    run(scenario, seed=seed, replica_lag_time_max_ms=30_000)


@pytest.mark.key("minikafka.fast.failover.enable")
def test_killed_leader_keeps_its_leadership_until_its_session_ends_without_the_key() -> None:
    async def scenario(scene: Scene) -> None:
        dead = scene.leader()
        session = scene.cluster.sessions[dead].session_id
        scene.cluster.kill(dead)
        await scene.sleep(5_000)
        assert scene.isr() == (dead, *sorted(set(scene.isr()) - {dead}, key=scene.isr().index))
        assert scene.leader() == -1
        assert scene.summary()["suspicions"] == 0
        scene.cluster.ensemble.end_session(session)
        await scene.produce()
        assert scene.leader() != dead

    run(scenario, minikafka_fast_failover_enable=False)


@pytest.mark.parametrize("seed", range(3))
def test_killed_follower_leaves_the_isr_at_once(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        leader, controller = scene.leader(), scene.controller.config.broker_id
        [dead] = set(scene.cluster.brokers) - {leader, controller}
        killed_at = scene.now
        scene.cluster.kill(dead)
        await scene.produce()
        assert scene.now - killed_at < 500
        assert scene.leader() == leader
        replica = scene.cluster.brokers[leader].replicas.partitions[T0]
        assert dead not in replica.isr_state.isr

    run(scenario, seed=seed, replica_lag_time_max_ms=30_000)


def test_paused_leader_is_not_suspected() -> None:
    async def scenario(scene: Scene) -> None:
        leader = scene.leader()
        scene.cluster.pause(leader)
        await scene.sleep(4_000)
        assert scene.summary()["suspicions"] == 0
        scene.cluster.resume(leader)
        await scene.produce()
        assert scene.leader() == leader

    run(scenario)


def cut_streams(scene: Scene, number: int) -> None:
    """Reset the connections from and to the Kafka listener of a broker, which stays alive."""
    process = scene.cluster.processes[number]
    for link in list(scene.cluster.transport._links):
        if link.process is process:
            link.abort()


def test_reset_connections_of_a_broker_that_answers_cause_no_suspicion() -> None:
    async def scenario(scene: Scene) -> None:
        leader = scene.leader()
        for _ in range(5):
            cut_streams(scene, leader)
            await scene.sleep(200)
        await scene.produce()
        assert scene.leader() == leader
        assert scene.summary()["suspicions"] == 0

    run(scenario)


def test_listener_that_closes_connections_for_a_moment_is_probed_until_it_refuses() -> None:
    async def scenario(scene: Scene) -> None:
        dead, server = scene.leader(), scene.server(scene.leader())
        asked = 0

        def accept_and_close(port: int) -> MemoryServer:
            nonlocal asked
            if port == server.port and asked < 4:
                asked += 1
                raise ConnectionResetError("the listener is about to close")
            return original(port)

        plane: Any = scene.controller.control_plane
        original = plane.server
        plane.server = accept_and_close
        scene.cluster.kill(dead)
        await scene.produce()
        assert asked == 4
        assert scene.leader() != dead

    run(scenario)


def test_port_that_another_process_takes_over_is_no_evidence() -> None:
    async def scenario(scene: Scene) -> None:
        dead, server = scene.leader(), scene.server(scene.leader())
        [other] = set(scene.cluster.brokers) - {dead, scene.controller.config.broker_id}
        scene.cluster.kill(dead)
        scene.cluster.servers[server.port] = scene.server(other)
        await scene.sleep(3_000)
        assert scene.summary()["suspicions"] == 0
        del scene.cluster.servers[server.port]

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_living_suspect_loses_its_leadership_once_and_returns(seed: int) -> None:
    """The control listener of a leader is closed, but the leader is alive and clients write to it."""

    async def scenario(scene: Scene) -> None:
        suspect, server = scene.leader(), scene.server(scene.leader())
        await server.close()
        writes = asyncio.create_task(write_for(scene, 3_000))
        cut_streams(scene, suspect)
        await writes
        assert scene.leader() != suspect
        moved = scene.summary()["suspicions"], scene.leader()
        assert moved[0] == 1
        suspected_at = scene.now
        scene.cluster.servers[server.port] = server
        cut_streams(scene, suspect)
        while not scene.summary()["false_suspicions"]:
            await scene.sleep(50)
        assert scene.now - suspected_at >= SESSION_MS - 3_500
        while suspect not in scene.isr():
            await scene.produce()
        assert (scene.summary()["suspicions"], scene.leader()) == moved
        await scene.check_nothing_lost()

    run(scenario, seed=seed)


async def write_for(scene: Scene, ms: int) -> None:
    end = scene.now + ms
    while scene.now < end:
        await scene.produce()
        await scene.sleep(10)


@pytest.mark.parametrize("seed", range(3))
def test_killed_broker_that_starts_again_at_once_serves_again(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        dead = scene.leader()
        scene.cluster.kill(dead)
        await scene.sleep(20 * seed)
        await scene.cluster.start(dead)
        await scene.produce()
        while len(scene.isr()) < 3:
            await scene.produce()
        assert scene.summary()["false_suspicions"] == 0
        assert scene.summary()["shutting_down"] == []
        await scene.check_nothing_lost()

    run(scenario, seed=seed)


def test_report_about_an_earlier_registration_is_not_probed() -> None:
    async def scenario(scene: Scene) -> None:
        dead, port = scene.leader(), scene.server(scene.leader()).port
        controller: Any = scene.controller
        plane, calls = controller.control_plane, []
        original = plane.server
        plane.server = lambda at: calls.append(at) or original(at)
        epoch = controller.metadata.brokers[dead].epoch
        report = messages.encode_report(dead, epoch - 1, 1)
        assert await controller.on_call(Call(CONNECTION_LOST, report)) == {}
        await scene.sleep(1_000)
        assert port not in calls

        report = messages.encode_report(dead, epoch, 1)
        for _ in range(3):  # a delayed report and its duplicates
            assert await controller.on_call(Call(CONNECTION_LOST, report)) == {}
        await scene.sleep(1_000)
        assert calls.count(port) == 1
        assert scene.summary()["suspicions"] == 0

    run(scenario)


def test_reports_of_others_are_enough_when_the_controller_cannot_see_the_death() -> None:
    """Cut one way: the controller cannot send to the killed leader's host, so that its probes get no answer."""

    async def scenario(scene: Scene) -> None:
        dead, server = scene.leader(), scene.server(scene.leader())
        plane: Any = scene.controller.control_plane
        original = plane.call

        async def call(endpoint: Endpoint, method: str, *args: Any, **timeout: Any) -> Any:
            if endpoint.port == server.port:
                await scene.sleep(timeout["timeout_ms"])
                raise TimeoutError
            return await original(endpoint, method, *args, **timeout)

        plane.call = call
        scene.cluster.kill(dead)
        await scene.sleep(5_000)
        assert scene.summary()["suspicions"] == 0, "only a refusal that the controller sees counts"
        plane.call = original
        await scene.produce()

    run(scenario)


def test_stopped_broker_is_not_suspected() -> None:
    async def scenario(scene: Scene) -> None:
        leader = scene.leader()
        await scene.cluster.stop(leader)
        await scene.produce()
        await scene.cluster.start(leader)
        await scene.cluster.stop(leader, controlled=False)
        await scene.produce()
        assert scene.summary()["suspicions"] == 0
        assert scene.events("BrokerSuspected") == []

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_new_controller_suspects_the_brokers_that_died_before_its_election(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        dead, former = scene.leader(), scene.controller.config.broker_id
        session = scene.cluster.sessions[former].session_id
        scene.cluster.kill(former)
        scene.cluster.kill(dead)
        scene.cluster.ensemble.end_session(session)
        await scene.sleep(1_000)
        assert scene.summary()["suspicions"] >= 1
        assert scene.leader() == scene.controller.config.broker_id

    run(scenario, seed=seed, min_insync_replicas=1)


def test_no_task_of_the_suspicions_outlives_the_term() -> None:
    async def scenario(scene: Scene) -> None:
        dead, former = scene.leader(), scene.controller.config.broker_id
        scene.cluster.kill(dead)
        await scene.produce()
        tasks = scene.cluster.processes[former].tasks
        assert any(task.get_name() == f"probe-{dead}" for task in tasks)
        session = scene.cluster.sessions[former]
        await session.expire()
        await scene.sleep(100)
        assert not any(task.get_name() == f"probe-{dead}" for task in tasks)
        await session.attach()

    run(scenario)
