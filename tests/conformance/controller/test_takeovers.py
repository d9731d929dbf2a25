"""Brokers that replace a controller whose process has died, while its ZooKeeper session lasts.

No session of the ensemble in memory expires unless a test ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.clients.idempotent_producers import IdempotentProducer, JavaClient, Librdkafka
from support.clusters.producer_storm import Storm, run_storm
from support.ledger.invariants import violations
from support.until import until

from minikafka.base.errors import ControllerMoved, ErrorCode, KafkaError
from minikafka.base.model import StopReplicaPartition, StopReplicaRequest, TopicPartition
from minikafka.broker.ledger.reader import Line
from minikafka.broker.ledger.record import ELECTION
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.control_plane import MemoryServer
from minikafka.simulation.loop import SeededLoop, context_of, run_seeded
from minikafka.zookeeper.nodes import layout

T0 = TopicPartition("t", 0)
SEEDS = range(2)
SOON = 0.5
"""Virtual seconds. Every session timeout of a real cluster is longer."""
LONG = 60
LASTING_MS = 2 * LONG * 1_000
"""A session timeout that is longer still."""

Scenario = Callable[[MemoryCluster], Coroutine[Any, Any, None]]


def on_cluster(seed: int, scenario: Scenario, brokers: int = 3, **keys: object) -> None:
    """Run the scenario on brokers 1 to `brokers`, of which broker 1 is the controller; then check the ledgers."""

    async def run() -> None:
        cluster = MemoryCluster(ids=range(1, brokers + 1), **keys)
        for broker in range(1, brokers + 1):
            await cluster.start(broker)
        await until(lambda: all(controllers(cluster)[id_] == 1 for id_ in cluster.brokers))
        await asyncio.sleep(1)  # the other brokers attend at the controller
        await scenario(cluster)
        for broker in tuple(cluster.brokers):
            await cluster.stop(broker, controlled=False)
        assert violations(cluster.history()) == []
        assert cluster.crashes == []

    run_seeded(seed, run())


def controllers(cluster: MemoryCluster) -> dict[int, int]:
    """Return the controller that each running broker knows, by broker id."""
    return {
        id_: broker.capabilities.administration.controller_id
        for id_, broker in cluster.brokers.items()
    }


def active(cluster: MemoryCluster) -> list[int]:
    """Return the running brokers that act as the controller."""
    return [
        id_ for id_, broker in cluster.brokers.items() if broker.capabilities.diagnostics.is_active
    ]


def epoch(cluster: MemoryCluster) -> int:
    return int(cluster.ensemble.nodes[layout.CONTROLLER_EPOCH].data)


def owner(cluster: MemoryCluster) -> int:
    return cluster.ensemble.nodes[layout.CONTROLLER].owner


def outcomes(cluster: MemoryCluster, outcome: str) -> list[Line]:
    """Return the ledger lines of elections with this outcome."""
    return [
        line
        for line in cluster.history()
        if line["kind"] == ELECTION and line["outcome"] == outcome
    ]


def is_registered(cluster: MemoryCluster, broker: int) -> bool:
    return layout.broker_path(broker) in cluster.ensemble.nodes


def refuse(cluster: MemoryCluster, broker: int) -> list[MemoryServer]:
    """Let the control listener of a running broker refuse connections, and end its open ones; return it."""
    process = cluster.processes[broker]
    servers = [server for server in cluster.servers.values() if server.process is process]
    for server in servers:
        server.kill()
    return servers


async def time_until(condition: Callable[[], object]) -> float:
    """Wait until the condition is true; return how long that took in virtual seconds."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await until(condition)
    return loop.time() - start


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_controller_is_replaced_while_its_session_lasts(seed: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        before = epoch(cluster)
        cluster.kill(1)
        assert await time_until(lambda: active(cluster) == [2]) < SOON
        assert is_registered(cluster, 1)
        assert epoch(cluster) == before + 1
        await until(lambda: controllers(cluster) == {2: 2, 3: 2})
        await until(lambda: outcomes(cluster, "took over"))
        (line,) = outcomes(cluster, "took over")
        assert (line["broker"], line["former"], line["epoch"]) == (2, 1, before + 1)
        assert line["reason"].endswith("refused")

    on_cluster(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_next_candidate_takes_over_if_the_first_one_is_dead_too(seed: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.kill(2)
        cluster.kill(1)
        assert await time_until(lambda: active(cluster) == [3]) < SOON

    on_cluster(seed, scenario, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_controller_after_the_other_is_replaced(seed: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        for dead in (1, 2, 3):
            cluster.kill(dead)
            assert await time_until(lambda dead=dead: active(cluster) == [dead + 1]) < 2 * SOON

    on_cluster(seed, scenario, 4)


def test_killed_controller_that_restarts_is_a_candidate_again() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.kill(1)
        await until(lambda: active(cluster) == [2])
        await cluster.start(1)
        await asyncio.sleep(1)
        cluster.kill(2)
        assert await time_until(lambda: active(cluster) == [1]) < SOON

    on_cluster(0, scenario)


def test_paused_controller_keeps_its_office_until_its_session_ends() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        session = owner(cluster)
        cluster.pause(1)
        await asyncio.sleep(LONG)
        assert owner(cluster) == session
        cluster.ensemble.end_session(session)
        await until(lambda: owner_or_none(cluster) not in (None, session))
        cluster.resume(1)
        await until(lambda: len(active(cluster)) == 1)

    on_cluster(0, scenario, zookeeper_session_timeout_ms=LASTING_MS)


def owner_or_none(cluster: MemoryCluster) -> int | None:
    node = cluster.ensemble.nodes.get(layout.CONTROLLER)
    return None if node is None else node.owner


@pytest.mark.key("minikafka.fast.failover.enable")
def test_controller_is_not_replaced_early_if_the_key_is_off() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        session = owner(cluster)
        cluster.kill(1)
        await asyncio.sleep(LONG)
        assert owner(cluster) == session
        cluster.ensemble.end_session(session)
        await until(lambda: len(active(cluster)) == 1)

    on_cluster(
        0,
        scenario,
        minikafka_fast_failover_enable=False,
        zookeeper_session_timeout_ms=LASTING_MS,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_replaced_controller_that_is_alive_changes_nothing_and_becomes_a_candidate(
    seed: int,
) -> None:
    """The controller is paused in the meantime, so that it does not know its successor when it continues."""

    async def scenario(cluster: MemoryCluster) -> None:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", assignment={0: (1, 2, 3)}))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        deposed = cluster.brokers[1].capabilities.administration
        check, term = deposed.fence(), deposed._term
        cluster.pause(1)
        refuse(cluster, 1)
        await until(lambda: 2 in active(cluster))
        successor, wins = owner(cluster), epoch(cluster)
        assert is_registered(cluster, 1)
        context = context_of(cluster.processes[1])
        writing = loop.create_task(term._session.write([check]), context=context)
        stop = StopReplicaRequest(
            1, wins - 1, cluster.brokers[3].info.epoch, (StopReplicaPartition(T0, -2, True),)
        )
        answer = await cluster.brokers[3].capabilities.roles.handle(stop)
        assert answer.error == ErrorCode.STALE_CONTROLLER_EPOCH
        assert T0 in cluster.brokers[3].replicas.logs.logs
        cluster.resume(1)
        with pytest.raises(ControllerMoved):
            await writing
        await until(lambda: active(cluster) == [2])
        await until(lambda: deposed.controller_id == 2)
        with pytest.raises(KafkaError, match="not the controller"):
            deposed.fence()
        await asyncio.sleep(1)
        assert (owner(cluster), epoch(cluster)) == (successor, wins)
        cluster.kill(2)
        assert await time_until(lambda: active(cluster) == [1]) < 2 * SOON

    on_cluster(seed, scenario)


def test_controller_that_shuts_down_is_followed_by_an_election_not_by_a_takeover() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        await cluster.stop(1)
        await until(lambda: len(active(cluster)) == 1)
        await until(lambda: len(outcomes(cluster, "won")) == 2)
        assert outcomes(cluster, "took over") == []

    on_cluster(0, scenario)


class TakeoverStorm(Storm):
    """A storm in which no session expires after a kill: every leader and controller is replaced because it refuses."""

    faults = ("kill", "kill", "kill", "refuse", "refuse", "pause", "stop", "elect", "heal", "heal")
    agree_seconds = 30
    """A suspect that is alive may join the ISR again one session timeout after it refused a connection."""

    def __init__(self, cluster: MemoryCluster, seed: int) -> None:
        super().__init__(cluster, seed)
        self.refusing: list[MemoryServer] = []

    async def kill(self, broker: int) -> None:
        self.cluster.kill(broker)
        self.down.add(broker)

    async def refuse(self, broker: int) -> None:
        """Let the control listener of a living broker refuse connections until the storm is healed."""
        self.refusing += refuse(self.cluster, broker)

    async def heal(self) -> None:
        for server in self.refusing:
            self.cluster.servers[server.port] = server
        self.refusing.clear()
        await super().heal()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("producing", [Librdkafka, JavaClient])
def test_no_record_is_lost_in_a_storm_of_takeovers(
    producing: type[IdempotentProducer], seed: int
) -> None:
    run_storm(seed, producing, TakeoverStorm)
