"""Reassignments that another program writes, replaces and cancels in ZooKeeper, with whole brokers in memory."""

from __future__ import annotations

import pytest
from support.leaders_cluster import T0, LeadersCluster
from support.seeded_loop import run_seeded

from minikafka.client import NewTopic

TARGET = "/leaders/brokers/partitions_reassigned/t/0"


async def with_two_replicas(cluster: LeadersCluster) -> None:
    async with cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
    await cluster.until(lambda: cluster.isr == {0, 1})


def reassign(cluster: LeadersCluster, target: bytes) -> None:
    if not cluster.ensemble.nodes.get("/leaders/brokers/partitions_reassigned/t"):
        cluster.ensemble.put("/leaders/brokers/partitions_reassigned/t", b"")
    cluster.ensemble.put(TARGET, target)


def hosts(cluster: LeadersCluster) -> set[int]:
    return {id_ for id_, broker in cluster.brokers.items() if T0 in broker.replicas.partitions}


@pytest.mark.row("A5", "C9", "C30", "C31")
@pytest.mark.parametrize("seed", range(1, 4))
def test_reassignment_in_the_node_moves_the_partition(seed: int) -> None:
    async def whole() -> None:
        async with LeadersCluster() as cluster:
            await with_two_replicas(cluster)
            await cluster.produce(b"a")
            reassign(cluster, b"2,1")
            await cluster.until(lambda: cluster.node("topics/t/0/replicas") == b"2,1")
            await cluster.until(lambda: hosts(cluster) == {1, 2})
            await cluster.until(lambda: cluster.leader is not None and cluster.isr == {1, 2})
            assert TARGET not in cluster.ensemble.nodes
            await cluster.produce(b"b")
            assert await cluster.consumed() == [b"a", b"b"]

    run_seeded(seed, whole())


@pytest.mark.row("C15")
@pytest.mark.parametrize("seed", range(1, 4))
def test_cancelled_reassignment_closes_the_replica_that_it_added(seed: int) -> None:
    async def whole() -> None:
        async with LeadersCluster() as cluster:
            await with_two_replicas(cluster)
            reassign(cluster, b"0,1,2,9")  # broker 9 never starts, and has no queue
            await cluster.until(lambda: 2 in cluster.isr)
            cluster.ensemble.delete(TARGET)
            await cluster.until(lambda: 2 not in hosts(cluster) and 2 not in cluster.isr)
            assert cluster.leader == (0, 3)
            await cluster.produce(b"a")
            assert await cluster.consumed() == [b"a"]

    run_seeded(seed, whole())
