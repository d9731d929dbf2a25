"""Deaths of brokers, found by refused connections long before a session expires: whole brokers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.memory_cluster import MemoryCluster, MemoryServer
from support.seeded_loop import run_seeded
from support.until import until

from minikafka.base.model import TopicPartition
from minikafka.broker.broker import Broker
from minikafka.client import Client, NewTopic
from minikafka.ledger.reader import Line
from minikafka.record.batch import Record

T0 = TopicPartition("t", 0)
SESSION_MS = 6_000
"""Session timeout of the in-memory ZooKeeper. Sessions of killed brokers expire only when a test ends them."""


class Scene:
    """Three brokers with topic t of one partition, led by a broker that is not the controller."""

    def __init__(self, cluster: MemoryCluster, client: Client) -> None:
        self.cluster, self.client = cluster, client
        self.sent: list[bytes] = []

    @property
    def controller(self) -> Broker:
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

    def server(self, number: int) -> MemoryServer:
        """Return the control listener of a broker."""
        process = self.cluster.processes[number]
        [server] = [s for s in self.cluster.servers.values() if s.process is process]
        return server


def run(
    scenario: Callable[[Scene], Awaitable[None]], *, seed: int = 1, **config: object
) -> None:
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
