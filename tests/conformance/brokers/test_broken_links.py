"""Links between brokers, and to ZooKeeper, that lose everything in one direction or in both, in virtual time.

`scripts/broken-networks` runs all directions, and real networks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.simulation.cluster import CLIENTS, ZOOKEEPER, MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.tools.cluster.observation.links import (
    broken_links,
    latest_reports,
    link_sentences,
)

LAG_MS = 4_000
SESSION_MS = 6_000
NAMED_MS = 15_000
"""Time after which a broken link is named."""
T0 = TopicPartition("t", 0)


def run(scenario: Callable[[MemoryCluster, Client], Awaitable[None]]) -> None:
    """Run a scenario on three brokers. Broker 1 leads the only partition, and broker 0 is the controller."""

    async def scene() -> None:
        keys = {
            "replica_lag_time_max_ms": LAG_MS,
            "zookeeper_session_timeout_ms": SESSION_MS,
            "min_insync_replicas": 2,
        }
        async with MemoryCluster(3, **keys) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (1, 2, 0)}))
            await cluster.until_all_are_in_sync()
            await user.produce("t", [Record(value=b"first")])
            await cluster.clock.sleep(SESSION_MS)
            await scenario(cluster, user)
            await cluster.until_all_are_in_sync()

    run_seeded(1, scene())


async def produce_for(cluster: MemoryCluster, user: Client) -> int:
    """Produce one record with acks=all; return how long it took in milliseconds."""
    begun = cluster.clock.now()
    await user.produce("t", [Record(value=b"v")])
    return cluster.clock.now() - begun


def told_by(cluster: MemoryCluster, broker: int) -> list[str]:
    """Return what one broker tells about the links of all brokers."""
    reports = latest_reports([cluster.brokers[broker].describe()])
    return [text for _, text in link_sentences(broken_links(reports, ()), reports)]


async def until_told(cluster: MemoryCluster, broker: int, words: str) -> None:
    async with asyncio.timeout(NAMED_MS / 1000):
        while not any(words in text for text in told_by(cluster, broker)):  # noqa: ASYNC110
            await asyncio.sleep(0.5)


@pytest.mark.usefixtures("each_mode")
def test_acks_all_resumes_without_the_follower_whose_link_to_the_leader_is_cut_one_way() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for way in ((1, 2), (2, 1)):
            cluster.cut(*way)
            assert await produce_for(cluster, user) <= 1.5 * LAG_MS + 500
            await until_told(cluster, 0, "brokers 1 and 2 cannot reach each other")
            cluster.heal(*way)
            await cluster.until_all_are_in_sync()

    run(scenario)


@pytest.mark.usefixtures("each_mode")
def test_leader_without_zookeeper_sends_its_clients_to_the_new_leader() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        cluster.cut(ZOOKEEPER, 1)
        await cluster.clock.sleep(SESSION_MS + NAMED_MS)
        assert told_by(cluster, 2)[0].startswith("broker 1 cannot reach ZooKeeper at memory:2181")
        # The client knows only the old leader.
        async with Client("127.0.0.1:9093", **cluster_ports(cluster)) as stranger:
            await stranger.produce("t", [Record(value=b"v")])
        assert cluster.brokers[0].metadata.topics["t"][0].leader in (0, 2)
        former = cluster.brokers[1].replicas.partition(T0)
        assert former is not None
        assert not former.is_leader
        cluster.heal(ZOOKEEPER, 1)

    run(scenario)


def cluster_ports(cluster: MemoryCluster) -> dict[str, object]:
    return {"transport": cluster.transport, "clock": cluster.clock}


def test_leader_without_followers_and_zookeeper_refuses_acks_all() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for other in (0, 2, ZOOKEEPER):
            cluster.cut(1, other)
        for other in (0, 2):
            cluster.cut(CLIENTS, other)
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            async with Client(
                "127.0.0.1:9093", delivery_timeout_ms=15_000, **cluster_ports(cluster)
            ) as lonely:
                await lonely.produce("t", [Record(value=b"never")])
        for other in (0, 2, ZOOKEEPER):
            cluster.heal(1, other)
        for other in (0, 2):
            cluster.heal(CLIENTS, other)
        await produce_for(cluster, user)

    run(scenario)


def test_broker_that_nobody_reaches_is_named_by_the_others() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for other in (0, 1, ZOOKEEPER, CLIENTS):
            cluster.cut(2, other)
        await until_told(cluster, 1, "no broker reaches broker 2: its host or its network is down")
        for other in (0, 1, ZOOKEEPER, CLIENTS):
            cluster.heal(2, other)
        async with asyncio.timeout(NAMED_MS / 1000):
            while told_by(cluster, 1):  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    run(scenario)
