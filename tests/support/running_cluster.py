"""A real cluster for all tests of a folder, healed after each of them; at the end its ledgers are gone through.

from support.running_cluster import cluster, shared_cluster
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator

import pytest
from support.invariants import check_ledgers

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.cluster import LocalCluster
from minikafka.cluster.processes import is_paused
from minikafka.cluster.state import brokers_know
from minikafka.runtime.clock import SystemClock

BROKERS = (1, 2, 3)
KEYS = {
    "zookeeper.session.timeout.ms": 4_000,
    "replica.lag.time.max.ms": 10_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "controlled.shutdown.retry.backoff.ms": 300,
}


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    running = LocalCluster(len(BROKERS), data=tmp_path_factory.mktemp("shared"), config=KEYS)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        asyncio.run(running.stop())
    check_ledgers(running.directory.path)


@pytest.fixture
async def cluster(shared_cluster: LocalCluster) -> AsyncIterator[LocalCluster]:
    try:
        yield shared_cluster
    finally:
        await heal(shared_cluster)
        gc.collect()  # what a client left behind warns in its own test, not in a later one


async def heal(cluster: LocalCluster) -> None:
    """Everything runs, and every topic is fully replicated, as the next test expects it."""
    for broker in BROKERS:
        process = cluster.process(broker)
        if process is not None and is_paused(process):
            await cluster.resume(broker)
    await cluster.start()

    async def is_whole() -> bool:
        state = await cluster.state()
        topics = {tp.topic for tp in state.partitions}
        return not state.not_serving(BROKERS) and all(state.has_isr(t, None) for t in topics)

    await eventually(is_whole)


async def create_topic(cluster: LocalCluster, name: str, partitions: int = 3) -> None:
    """With the cluster's replication factor of 3."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(name, partitions, len(BROKERS)))


async def known_everywhere(cluster: LocalCluster, topic: str) -> None:
    """Until every broker's metadata shows it: a client asks any of them, and a creation waits for one."""
    for broker in BROKERS:

        async def is_known(broker: int = broker) -> bool:
            first = TopicPartition(topic, 0)
            return await brokers_know(cluster.record, [broker], first, SystemClock())

        await eventually(is_known)


async def wait_for_records(cluster: LocalCluster, topics: Collection[str]) -> None:
    """Until every topic has some: clients take their time to begin."""

    async def have_some() -> bool:
        views = (await cluster.state()).partitions.items()
        return {tp.topic for tp, view in views if view.high_watermark} >= set(topics)

    await eventually(have_some)


async def busiest(cluster: LocalCluster) -> int:
    """The broker that leads most partitions."""
    leaders = [view.leader for view in (await cluster.state()).partitions.values()]
    return max(BROKERS, key=leaders.count)


async def wait_for_leaders(
    cluster: LocalCluster, topics: Collection[str], partitions: int, without: int
) -> None:
    """Until every partition of the topics is led by another broker than this one."""

    async def are_led() -> bool:
        state = await cluster.state()
        leaders = {state.leader_of(topic, p) for topic in topics for p in range(partitions)}
        return not leaders & {None, without}

    await eventually(are_led)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Until it holds; what is asked is other processes, which announce nothing."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.05)
