"""Reassignments in the leader-coordinated mode, requested in the nodes by another client of ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster

from minikafka.client import NewTopic
from minikafka.simulation.cluster import LOG_DIR
from minikafka.simulation.loop import run_seeded

SEEDS = range(1, 4)
ROOT = "/leaders/brokers"
REQUEST = "partitions_reassigned/t/0"


async def begin(cluster: LeadersCluster, *replicas: int) -> None:
    """Create topic t on these brokers, and write a record."""
    async with cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: replicas}))
    await cluster.until(lambda: cluster.isr == {*replicas})
    await cluster.produce(b"a")


def request(cluster: LeadersCluster, *replicas: int) -> None:
    """Ask for these replicas; none of them: for the deletion of the partition."""
    cluster.ensemble.put(f"{ROOT}/{REQUEST}", ",".join(map(str, replicas)).encode())


def hosts(cluster: LeadersCluster) -> set[int]:
    """Return the brokers with t-0 on their disks."""
    return {id_ for id_, disk in cluster.storages.items() if disk.exists(f"{LOG_DIR}/t-0")}


def senders(cluster: LeadersCluster, operation: str) -> set[int]:
    """Return the leaders that have requested an operation on t-0, from all ledgers."""
    return {
        line["sender"]
        for line in cluster.history()
        if line.get("fact") == "requested" and line["operation"] == operation
    } - {-1}


@pytest.mark.row("A5", "C9", "C30", "C31", "T6", "X11")
@pytest.mark.row("K14", "K15", "K16")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("origin", "target"),
    [((0, 1), (0, 2)), ((0, 1), (1, 2)), ((0, 1), (2, 3)), ((0, 1, 2), (1,)), ((0,), (3, 0))],
)
def test_reassignment_moves_the_replicas_and_removes_its_request(
    seed: int, origin: tuple[int, ...], target: tuple[int, ...]
) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster, *origin)
        assert cluster.leader is not None
        former, epoch = cluster.leader
        request(cluster, *target)
        expected = ",".join(map(str, target)).encode()
        await cluster.until(lambda: cluster.node("topics/t/0/replicas") == expected)
        assert cluster.node(REQUEST) is None, "one multi writes both"
        await cluster.until(lambda: hosts(cluster) == {*target})
        await cluster.until(lambda: cluster.isr == {*target} and cluster.leader is not None)
        await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] == target[0])
        assert cluster.leader[1] > epoch
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]
        added = {*target} - {*origin}
        assert senders(cluster, "start-replica") == ({former} if added else set())

    on_four_brokers(seed, scenario)


@pytest.mark.row("C31")
def test_leader_stays_after_a_reassignment_while_the_preferred_replica_is_dead() -> None:
    """The next reassignment is completed by the same leader, which then gives up."""

    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster, 0, 1)
        gate = cluster.brokers[0].gate
        gate.hold("reassignment.complete")
        request(cluster, 3, 0)
        await cluster.until(lambda: gate.waiting == "reassignment.complete")
        cluster.kill_with_session(3)
        gate.open()
        await cluster.until(lambda: cluster.node("topics/t/0/replicas") == b"3,0")
        await cluster.produce(b"b")
        assert cluster.leader is not None
        assert cluster.leader[0] == 0
        request(cluster, 1, 0)
        await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] == 1)
        request(cluster, 0, 1)
        await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] == 0)
        await cluster.produce(b"c")
        assert await cluster.consumed() == [b"a", b"b", b"c"]

    on_four_brokers(1, scenario)


@pytest.mark.row("A5", "C10", "C15")
@pytest.mark.parametrize("seed", SEEDS)
def test_empty_reassignment_closes_every_replica_of_the_partition(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster, 0, 1, 2)
        await cluster.stop(2, controlled=False)
        await cluster.until(lambda: cluster.node("ids/2") is None)
        request(cluster)
        await cluster.until(lambda: hosts(cluster) == {2})
        assert len(cluster.ensemble.children(f"{ROOT}/state/2")) >= 1, "it waits for the broker"
        await cluster.start(2)
        await cluster.until(lambda: hosts(cluster) == set())

    on_four_brokers(seed, scenario)


@pytest.mark.row("C15")
@pytest.mark.parametrize("seed", SEEDS)
def test_cancelled_reassignment_closes_the_replica_that_it_added(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster, 0, 1)
        request(cluster, 0, 1, 2, 9)  # broker 9 never starts, and has no queue
        await cluster.until(lambda: 2 in cluster.isr)
        cluster.ensemble.delete(f"{ROOT}/{REQUEST}")
        await cluster.until(lambda: 2 not in hosts(cluster) and 2 not in cluster.isr)
        assert cluster.leader == (0, 3)
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]

    on_four_brokers(seed, scenario)


@pytest.mark.row("K17")
def test_reassignment_of_a_partition_that_does_not_exist_changes_nothing() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster, 0, 1)
        before = cluster.leader, cluster.isr, hosts(cluster)
        cluster.ensemble.put(f"{ROOT}/partitions_reassigned/t/1", b"2,3")
        cluster.ensemble.put(f"{ROOT}/partitions_reassigned/no-such-topic/0", b"2,3")
        await cluster.produce(b"b")
        assert (cluster.leader, cluster.isr, hosts(cluster)) == before
        assert await cluster.consumed() == [b"a", b"b"]
        found = {tp for b in cluster.brokers.values() for tp in b.replicas.partitions}
        assert found == {T0}

    on_four_brokers(1, scenario)


def on_four_brokers(seed: int, scenario: Callable[[LeadersCluster], object]) -> None:
    """Run a scenario with four brokers in a seeded loop."""

    async def whole() -> None:
        async with LeadersCluster(4, log_segment_delete_delay_ms=50) as cluster:
            await scenario(cluster)  # type: ignore[misc]

    run_seeded(seed, whole())
