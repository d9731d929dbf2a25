"""Whole brokers whose ZooKeeper is killed and starts again with its data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from minikafka.base.ports import SessionState
from minikafka.client import Client, NewTopic, Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.zookeeper import ZooKeeperInMemory

pytestmark = pytest.mark.usefixtures("each_mode")

SHORT_S = 5
LONG_S = 60
"""Longer than a session timeout."""
Scenario = Callable[[MemoryCluster, Client], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Run the scenario on three brokers with a topic, on a ZooKeeper that stores its data."""

    async def whole() -> None:
        cluster = MemoryCluster(3)
        cluster.ensemble = ZooKeeperInMemory(cluster.transport, cluster.clock, MemoryStorage())
        async with cluster, cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 3))
            await produce(client, b"a")
            await cluster.until_all_are_in_sync()
            await scenario(cluster, client)

    run_seeded(1, whole())


async def produce(client: Client, value: bytes) -> None:
    await client.produce("t", [Record(value=value)])


async def consumed(client: Client) -> list[bytes | None]:
    return [row.value async for row in client.consume("t", until_end=True)]


def sessions(cluster: MemoryCluster) -> dict[int, tuple[int, int]]:
    """Return session id and generation of each broker."""
    return {n: (one.session_id, one.generation) for n, one in cluster.sessions.items()}


async def until_connected(cluster: MemoryCluster) -> None:
    for one in cluster.sessions.values():
        await one.connected()


def test_brokers_serve_clients_while_zookeeper_restarts_and_keep_their_sessions() -> None:
    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        before, zxid = sessions(cluster), cluster.ensemble.zxid
        cluster.ensemble.kill()
        await asyncio.sleep(SHORT_S)
        assert {one.state for one in cluster.sessions.values()} == {SessionState.SUSPENDED}
        await produce(client, b"b")
        await cluster.ensemble.start()
        await until_connected(cluster)
        assert cluster.ensemble.zxid >= zxid
        assert sessions(cluster) == before
        await client.create_topics(NewTopic("u", 1, 3))
        assert await consumed(client) == [b"a", b"b"]

    run(scenario)


def test_sessions_go_on_when_zookeeper_was_down_longer_than_their_timeout() -> None:
    async def scenario(cluster: MemoryCluster, client: Client) -> None:
        before = sessions(cluster)
        cluster.ensemble.kill()
        await asyncio.sleep(LONG_S)
        assert {one.state for one in cluster.sessions.values()} == {SessionState.LEASE_EXPIRED}
        await cluster.ensemble.start()
        await until_connected(cluster)
        assert sessions(cluster) == before
        await produce(client, b"b")
        assert await consumed(client) == [b"a", b"b"]

    run(scenario)
