"""Reassignment requests of `reassign --via-zookeeper` in a cluster without a controller."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.zookeeper.reassignments_by_leaders import ReassignmentsByLeaders
from minikafka.zookeeper.nodes.leaders import layout

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PLAN = {T0: (2, 3), T1: (3, 1)}


@pytest.fixture
def ensemble() -> ZooKeeperInMemory:
    made = ZooKeeperInMemory()
    for path in layout.PERSISTENT:
        made.put(path, b"")
    for broker in (1, 2, 3):
        made.put(f"{layout.BROKER_IDS}/{broker}", b"{}")
    made.put(layout.topic_path("t"), layout.encode_topic(bytes(range(16))))
    for tp in PLAN:
        made.put(layout.partition_path(tp), b"")
        made.put(layout.replicas_path(tp), b"1,2")
    return made


def tool(
    ensemble: ZooKeeperInMemory, plan: dict[TopicPartition, tuple[int, ...]]
) -> ReassignmentsByLeaders:
    return ReassignmentsByLeaders(InMemoryClient(ensemble), plan)


async def test_each_partition_has_a_request_of_its_own(ensemble: ZooKeeperInMemory) -> None:
    request = tool(ensemble, PLAN)
    await request.submit()
    assert ensemble.nodes[layout.reassignment_path(T0)].data == b"2,3"
    assert ensemble.nodes[layout.reassignment_path(T1)].data == b"3,1"
    assert (await request.assignments())[T0] == ReplicaAssignment((2, 3, 1), (3,), (1,))


async def test_no_request_is_written_if_a_partition_has_another_one(
    ensemble: ZooKeeperInMemory,
) -> None:
    await tool(ensemble, {T1: (1, 3)}).submit()
    with pytest.raises(ClusterError, match=r"in progress in /leaders/.*: t-1 to 1,3; wait.*cancel"):
        await tool(ensemble, PLAN).submit()
    assert layout.reassignment_path(T0) not in ensemble.nodes
    ensemble.put(layout.reassignment_path(T1), b"")
    with pytest.raises(ClusterError, match=r"t-1 to no brokers \(a deletion\); wait"):
        await tool(ensemble, PLAN).submit()


async def test_identical_requests_are_resumed_and_missing_ones_are_created(
    ensemble: ZooKeeperInMemory,
) -> None:
    await tool(ensemble, {T1: (3, 1)}).submit()
    request = tool(ensemble, PLAN)
    assert not await request.submit()
    assert layout.reassignment_path(T0) in ensemble.nodes
    ensemble.delete(layout.reassignment_path(T0))
    ensemble.put(layout.replicas_path(T0), b"2,3")  # this move has completed
    assert not await request.submit()
    assert layout.reassignment_path(T0) not in ensemble.nodes
    async for left in request.left():
        assert left == [T1]
        ensemble.delete(layout.reassignment_path(T1))


async def test_request_for_an_unknown_broker_or_partition_is_refused(
    ensemble: ZooKeeperInMemory,
) -> None:
    with pytest.raises(ClusterError, match="broker 4 is not alive; the live brokers are 1, 2, 3"):
        await tool(ensemble, {T0: (4, 1)}).submit()
    with pytest.raises(ClusterError, match="there is no partition t-9"):
        await tool(ensemble, {TopicPartition("t", 9): (1, 2)}).submit()


async def finished(request: ReassignmentsByLeaders) -> None:
    async for _ in request.left():
        pass


async def test_requests_end_when_the_leaders_have_removed_them(ensemble: ZooKeeperInMemory) -> None:
    request = tool(ensemble, PLAN)
    await request.submit()
    waiting = asyncio.ensure_future(finished(request))
    leader = InMemoryClient(ensemble)
    await leader.attach()
    await leader.delete(layout.reassignment_path(T0), 0)
    await request.assignments()
    assert not waiting.done()
    await leader.delete(layout.reassignment_path(T1), 0)
    await waiting


async def test_only_requests_of_partitions_without_a_leader_are_taken_back(
    ensemble: ZooKeeperInMemory,
) -> None:
    ensemble.put(layout.leader_path(T1), b"1;1")
    request = tool(ensemble, PLAN)
    await request.submit()
    assert await request.take_back() == [T0]
    assert layout.reassignment_path(T0) not in ensemble.nodes
    assert layout.reassignment_path(T1) in ensemble.nodes
