"""Transactions whose coordinator is killed, paused or moved at each named step of their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.clients.group_client import GroupClient
from support.clients.transactional_client import TransactionalProducer, committed_values

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.deciders.transactions.steps import STEPS, TRANSACTION
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SMALL = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
Scenario = Callable[[MemoryCluster, TransactionalProducer], Coroutine[Any, Any, None]]


def run(scenario: Scenario, seed: int = 1) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **SMALL) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("t", 3, 3)])
            producer = TransactionalProducer(cluster, "x")
            await producer.init()
            await scenario(cluster, producer)
            producer.close()

    run_seeded(seed, scene())


def end(cluster: MemoryCluster, number: int) -> None:
    """Kill a broker, and let the cluster learn it at once."""
    cluster.kill_with_session(number)


async def end_at(
    cluster: MemoryCluster, producer: TransactionalProducer, step: str, *, commit: bool
) -> tuple[int, asyncio.Task[None]]:
    """End the transaction with the step held; return the blocked coordinator, and the producer's request."""
    await cluster.until_all_are_in_sync()
    coordinator, _ = await producer.find()
    gate = cluster.brokers[coordinator].gate
    gate.hold(f"{TRANSACTION}.{step}")
    ending = asyncio.get_running_loop().create_task(producer.end(commit=commit))
    await gate.wait_for_arrival(f"{TRANSACTION}.{step}", cluster.clock, 60_000)
    assert gate.waiting == f"{TRANSACTION}.{step}"
    return coordinator, ending


async def visible(cluster: MemoryCluster, count: int) -> list[list[bytes]]:
    """Return the committed values of each partition, as soon as no transaction is open and there are `count` values."""
    async with asyncio.timeout(300):
        while True:
            values = [await committed_values(cluster, tp) for tp in PARTITIONS]
            if sum(map(len, values)) >= count and not any(map(is_unstable, _leaders(cluster))):
                return values
            await cluster.clock.sleep(100)


async def has_committed(group: GroupClient, expected: dict[tuple[str, int], int]) -> None:
    """Wait until these are the committed offsets of the group."""
    async with asyncio.timeout(60):
        while await group.committed() != expected:
            await group.cluster.clock.sleep(100)


def _leaders(cluster: MemoryCluster) -> list[Any]:
    return [
        partition
        for broker in cluster.brokers.values()
        for tp in PARTITIONS
        if (partition := broker.replicas.partition(tp)) is not None and partition.is_open
    ]


def is_unstable(partition: Any) -> bool:
    return partition.log.producers.first_unstable_offset(partition.high_watermark) is not None


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("step", STEPS[TRANSACTION])
def test_transaction_ends_once_when_its_coordinator_dies_at_a_step(step: str, commit: bool) -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        group = GroupClient(cluster, "g")
        for tp in PARTITIONS:
            await producer.produce(tp, b"1")
        await producer.commit_offsets(group, {("t", 0): 5})
        coordinator, ending = await end_at(cluster, producer, step, commit=commit)
        end(cluster, coordinator)
        await ending
        expected = [[b"1"]] * 3 if commit else [[]] * 3
        assert await visible(cluster, 3 * commit) == expected
        await has_committed(group, {("t", 0): 5} if commit else {})
        for tp in PARTITIONS:
            await producer.produce(tp, b"2")
        await producer.commit_offsets(group, {("t", 0): 6})
        await producer.end()
        assert await visible(cluster, 3 * commit + 3) == [[*row, b"2"] for row in expected]
        await has_committed(group, {("t", 0): 6})
        group.close()

    run(scenario)


@pytest.mark.parametrize("step", STEPS[TRANSACTION])
def test_transaction_ends_once_when_its_coordinator_moves_at_a_step(step: str) -> None:
    """The former coordinator goes on, at the step where it was held, when another broker is the coordinator."""

    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        for tp in PARTITIONS:
            await producer.produce(tp, b"1")
        coordinator, ending = await end_at(cluster, producer, step, commit=True)
        cluster.end_session(coordinator)
        while (await producer.find())[0] == coordinator:
            await cluster.clock.sleep(100)
        cluster.brokers[coordinator].gate.open()
        await ending
        assert await visible(cluster, 3) == [[b"1"]] * 3
        for tp in PARTITIONS:
            await producer.produce(tp, b"2")
        await producer.end(commit=False)
        assert await visible(cluster, 3) == [[b"1"]] * 3

    run(scenario)
