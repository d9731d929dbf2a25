"""Requests of administrators in the leader-coordinated mode, on whole brokers in memory, to any broker.

Reassignments, elections and controlled shutdowns. The broker that acts at a step is killed there, with its session.
"""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.leaders_admin import (
    REQUESTS,
    at,
    below,
    create,
    directories,
    run_admin,
    until_held,
)
from support.brokers.leaders_cluster import LeadersCluster

from minikafka.base.errors import ErrorCode
from minikafka.base.model import PartitionResult, ReplicaAssignment, TopicPartition
from minikafka.client import Record
from minikafka.deciders.leaders.steps import REASSIGNMENT, STEPS

A0 = TopicPartition("a", 0)
REPLICAS, LEADER, ISR = "topics/a/0/replicas", "topics/a/0/leader", "topics/a/0/ISR"
OK = PartitionResult()
BY_LEADER = tuple(step for step in STEPS[REASSIGNMENT] if step != "request")


async def alter(
    cluster: LeadersCluster, target: tuple[int, ...] | None, number: int = 2
) -> PartitionResult:
    """Request a reassignment of partition 0 from a broker; return the result."""
    administration = cluster.brokers[number].capabilities.administration
    return (await administration.alter_reassignments({A0: target}))[A0]


async def elect(cluster: LeadersCluster, number: int, *, unclean: bool = False) -> PartitionResult:
    """Request an election of partition 0 from a broker; return the result."""
    administration = cluster.brokers[number].capabilities.administration
    return (await administration.elect_leaders(unclean=unclean, partitions=[A0]))[A0]


async def produce(cluster: LeadersCluster, value: bytes) -> None:
    async with cluster.client() as client:
        await client.produce("a", [Record(value=value)])


async def consumed(cluster: LeadersCluster) -> list[bytes | None]:
    async with cluster.client() as client:
        return [row.value async for row in client.consume("a", until_end=True)]


def hosts(cluster: LeadersCluster) -> set[int]:
    """Return the brokers that have a replica of topic a on their disk."""
    return {number for number in cluster.storages if directories(cluster, number)}


def isr(cluster: LeadersCluster) -> set[int]:
    members, _, _ = (cluster.node(ISR) or b"").partition(b";")
    return {int(member) for member in members.split(b",") if member}


@pytest.mark.row("C9", "C30", "C31")
def test_reassignment_is_requested_from_any_broker_listed_and_completed() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        await produce(cluster, b"x")
        cluster.pause(3)  # the new replica
        assert await alter(cluster, (3, 1)) == OK
        for broker in list(cluster.brokers.values())[:3]:
            moving = await broker.capabilities.administration.reassignments()
            assert moving == {A0: ReplicaAssignment((3, 1, 0), adding=(3,), removing=(0,))}
        cluster.resume(3)
        await cluster.until(lambda: cluster.node(REPLICAS) == b"3,1")
        await cluster.until(lambda: directories(cluster, 0) == [])
        await cluster.until(lambda: (cluster.node(LEADER) or b"").startswith(b"3;"))
        assert isr(cluster) == {1, 3}
        assert await consumed(cluster) == [b"x"]
        administration = cluster.brokers[2].capabilities.administration
        assert await administration.reassignments() == {}

    run_admin(scenario, brokers=4)


@pytest.mark.row("C30", "C31")
@pytest.mark.parametrize("step", BY_LEADER)
def test_reassignment_ends_when_its_leader_dies_at_a_step(step: str) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        await produce(cluster, b"x")
        await cluster.until(lambda: isr(cluster) == {0, 1})
        cluster.brokers[0].gate.hold(f"reassignment.{step}")
        assert await alter(cluster, (2, 1)) == OK
        await until_held(cluster, 0, f"reassignment.{step}")
        cluster.kill_with_session(0)
        await cluster.until(lambda: cluster.node(REPLICAS) == b"2,1")
        await cluster.until(lambda: not below(cluster, f"{REQUESTS}/a"))
        assert await consumed(cluster) == [b"x"]
        await cluster.start(0)
        await cluster.until(lambda: hosts(cluster) == {1, 2})
        assert await consumed(cluster) == [b"x"]

    run_admin(scenario)


@pytest.mark.row("C30")
def test_cancelled_reassignment_leaves_no_replica_when_its_leader_dies() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        await produce(cluster, b"x")
        await cluster.until(lambda: isr(cluster) == {0, 1})
        gate = cluster.brokers[0].gate
        gate.hold("reassignment.complete")
        assert await alter(cluster, (2, 1)) == OK
        await until_held(cluster, 0, "reassignment.complete")
        assert await alter(cluster, None) == OK
        gate.hold("reassignment.epoch")
        gate.release("reassignment.complete")
        await until_held(cluster, 0, "reassignment.epoch")
        cluster.kill_with_session(0)
        await cluster.until(lambda: hosts(cluster) == {0, 1})
        await cluster.start(0)
        await cluster.until(lambda: isr(cluster) == {0, 1})
        assert cluster.node(REPLICAS) == b"0,1"
        assert await consumed(cluster) == [b"x"]

    run_admin(scenario)


@pytest.mark.row("C31")
def test_administrator_that_dies_before_it_writes_a_reassignment_leaves_none() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        cluster.brokers[2].gate.hold("reassignment.request")
        at(cluster, 2, alter(cluster, (2, 1), 2))
        await until_held(cluster, 2, "reassignment.request")
        cluster.kill_with_session(2)
        await asyncio.sleep(5)
        assert below(cluster, f"{REQUESTS}/a") == {}
        assert cluster.node(REPLICAS) == b"0,1"

    run_admin(scenario)


@pytest.mark.row("C30")
def test_reassignment_is_replaced_and_cancelled_and_closes_what_it_had_added() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        await cluster.until(lambda: isr(cluster) == {0, 1})
        cluster.brokers[0].gate.hold("reassignment.complete")
        assert await alter(cluster, (2, 1)) == OK
        await until_held(cluster, 0, "reassignment.complete")
        assert await alter(cluster, (3, 1)) == OK
        cluster.brokers[0].gate.open()
        await cluster.until(lambda: cluster.node(REPLICAS) == b"3,1")
        await cluster.until(lambda: directories(cluster, 2) == directories(cluster, 0) == [])
        leader = int((cluster.node(LEADER) or b"1;").partition(b";")[0])
        cluster.brokers[leader].gate.hold("reassignment.complete")
        assert await alter(cluster, (3, 0)) == OK
        await until_held(cluster, leader, "reassignment.complete")
        assert await alter(cluster, None) == OK
        cluster.brokers[leader].gate.open()
        await cluster.until(lambda: directories(cluster, 0) == [])
        assert cluster.node(REPLICAS) == b"3,1"
        assert (await alter(cluster, None)).code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    run_admin(scenario, brokers=4)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((7, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((0, 1), ErrorCode.NONE),
    ],
)
def test_reassignment_that_is_impossible_or_not_needed_writes_nothing(
    target: tuple[int, ...] | None, code: ErrorCode
) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        assert (await alter(cluster, target)).code is code
        assert below(cluster, f"{REQUESTS}/a") == {}
        unknown = {TopicPartition("b", 0): (0,)}
        administration = cluster.brokers[0].capabilities.administration
        results = await administration.alter_reassignments(unknown)
        assert [result.code for result in results.values()] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert "b" not in below(cluster, REQUESTS)

    run_admin(scenario)


@pytest.mark.row("C29")
@pytest.mark.parametrize("number", [0, 1, 2])
def test_preferred_election_lets_the_leader_give_up_for_the_preferred_replica(number: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        await cluster.until(lambda: isr(cluster) == {0, 1})
        assert (await elect(cluster, number)).code is ErrorCode.ELECTION_NOT_NEEDED
        cluster.kill_with_session(0)
        await produce(cluster, b"x")
        assert (await elect(cluster, 1)).code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        await cluster.start(0)
        await cluster.until(lambda: isr(cluster) == {0, 1})
        assert (cluster.node(LEADER) or b"").startswith(b"1;")
        assert await elect(cluster, number) == OK
        await cluster.until(lambda: (cluster.node(LEADER) or b"").startswith(b"0;"))
        assert await consumed(cluster) == [b"x"]

    run_admin(scenario, auto_leader_rebalance_enable=False)


@pytest.mark.row("C29")
def test_preferred_election_fails_while_the_leader_cannot_give_up_yet() -> None:
    """The leader waits for a silent in-sync replica before it serves clients, and before it gives up."""

    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1, 2)})).ok
        await cluster.until(lambda: isr(cluster) == {0, 1, 2})
        cluster.pause(2)
        cluster.kill_with_session(0)
        await cluster.until(lambda: (cluster.node(LEADER) or b"").startswith(b"1;"))
        await cluster.start(0)
        result = await elect(cluster, 0)
        assert result.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert "the leader 1 has not given up" in (result.message or "")
        cluster.resume(2)
        await cluster.until(lambda: isr(cluster) == {0, 1, 2})
        await produce(cluster, b"x")  # the leader serves clients
        assert await elect(cluster, 0) == OK
        await cluster.until(lambda: (cluster.node(LEADER) or b"").startswith(b"0;"))

    run_admin(scenario, auto_leader_rebalance_enable=False)


@pytest.mark.row("C2")
def test_unclean_election_is_held_only_on_request_and_by_a_live_replica() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        await cluster.until(lambda: isr(cluster) == {0, 1})
        cluster.kill_with_session(1)
        await produce(cluster, b"x")
        await cluster.until(lambda: isr(cluster) == {0})
        cluster.kill_with_session(0)
        await cluster.start(1)
        await asyncio.sleep(30)
        assert cluster.node(LEADER) is None
        assert await elect(cluster, 2, unclean=True) == OK
        await cluster.until(lambda: (cluster.node(LEADER) or b"").startswith(b"1;"))
        assert isr(cluster) == {1}
        assert (await elect(cluster, 2, unclean=True)).code is ErrorCode.ELECTION_NOT_NEEDED

    run_admin(scenario)


@pytest.mark.row("R23")
def test_broker_that_shuts_down_leaves_its_leaderships_and_isrs_before_it_stops() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1), 1: (1, 0)})).ok
        await cluster.until(lambda: len(isr(cluster)) == 2)
        await produce(cluster, b"x")
        gate = cluster.brokers[0].gate
        gate.hold("controlled-shutdown.answered")
        stopping = at(cluster, 2, cluster.stop(0))
        await cluster.until(lambda: (cluster.node(LEADER) or b"").startswith(b"1;"))
        assert isr(cluster) == {1}
        assert (cluster.node("topics/a/1/ISR") or b"").startswith(b"1;")
        assert cluster.ensemble.nodes["/leaders/brokers/ids/0"]
        began = asyncio.get_running_loop().time()
        await produce(cluster, b"y")
        assert asyncio.get_running_loop().time() - began < 5
        assert await consumed(cluster) == [b"x", b"y"]
        gate.open()
        await stopping

    run_admin(scenario)


@pytest.mark.row("R23")
def test_last_in_sync_replica_that_shuts_down_stays_in_the_isr() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        cluster.kill_with_session(1)
        await produce(cluster, b"x")
        await cluster.until(lambda: isr(cluster) == {0})
        await cluster.stop(0)
        assert isr(cluster) == {0}
        await cluster.start(0)
        assert await consumed(cluster) == [b"x"]

    run_admin(scenario)


@pytest.mark.row("R23")
def test_broker_that_shuts_down_stays_in_an_isr_with_an_unassigned_replica() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        assert (await create(cluster, {0: (0, 1)})).ok
        await produce(cluster, b"x")
        cluster.brokers[0].gate.hold("reassignment.complete")
        assert await alter(cluster, (0, 2)) == OK
        await cluster.until(lambda: isr(cluster) == {0, 1, 2})
        cluster.kill_with_session(0)
        await cluster.stop(1)
        assert 1 in isr(cluster)
        await cluster.start(1)
        assert await consumed(cluster) == [b"x"]

    run_admin(scenario)
