"""Whole brokers in memory, and nodes of a partition that another program has written."""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

TOPIC = "/leaders/brokers/topics/t"
REASSIGNMENT = "/leaders/brokers/partitions_reassigned/t/0"
_LONG_S = 30
"""Several times the election wait."""


@pytest.mark.parametrize("path", [f"{TOPIC}/0/ISR", f"{TOPIC}/0/replicas", TOPIC])
def test_nobody_leads_while_a_node_is_unreadable_and_a_replica_leads_when_it_is_repaired(
    path: str,
) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        text = cluster.ensemble.nodes[path].data
        cluster.ensemble.put(path, b"garbage")
        assert cluster.leader is not None
        cluster.kill_with_session(cluster.leader[0])
        await asyncio.sleep(_LONG_S)
        assert cluster.leader is None
        cluster.ensemble.put(path, text)
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]

    run_leaders(1, scenario)


@pytest.mark.row("C9")
def test_leader_is_elected_while_the_reassignment_is_unreadable_and_follows_its_repair() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        cluster.ensemble.put(REASSIGNMENT, b"[0, 1]")
        await asyncio.sleep(_LONG_S)
        assert cluster.leader is not None
        dead = cluster.leader[0]
        cluster.kill_with_session(dead)
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]
        assert cluster.node("topics/t/0/replicas") != b"0,1"
        left = [number for number in range(3) if number != dead]
        wanted = b"%d,%d" % tuple(left)
        cluster.ensemble.put(REASSIGNMENT, wanted)
        await cluster.until(lambda: cluster.node("topics/t/0/replicas") == wanted)
        assert cluster.node("partitions_reassigned/t/0") is None

    run_leaders(1, scenario)


@pytest.mark.row("C9")
def test_leader_notices_other_replicas_in_the_node_of_a_reassignment_in_progress() -> None:
    """Broker 9 does not exist; the change of the data is no change of the children of the topic."""

    async def scenario(cluster: LeadersCluster) -> None:
        cluster.ensemble.put(REASSIGNMENT, b"0,9")
        await asyncio.sleep(_LONG_S)
        assert len((cluster.node("topics/t/0/replicas") or b"").split(b",")) == 3
        cluster.ensemble.put(REASSIGNMENT, b"2,0")
        await cluster.until(lambda: cluster.node("topics/t/0/replicas") == b"2,0")

    run_leaders(1, scenario)


@pytest.mark.row("C31")
def test_replica_of_a_cancelled_reassignment_is_closed() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        cluster.ensemble.put(REASSIGNMENT, b"0,1,2")
        await cluster.until(lambda: T0 not in cluster.brokers[3].replicas.partitions)
        cluster.ensemble.put(REASSIGNMENT, b"3,9")
        await cluster.until(lambda: T0 in cluster.brokers[3].replicas.partitions)
        cluster.ensemble.delete(REASSIGNMENT)
        await cluster.until(lambda: T0 not in cluster.brokers[3].replicas.partitions)
        await cluster.until(lambda: not cluster.ensemble.nodes["/leaders/brokers/state/3"].children)
        assert cluster.node("topics/t/0/replicas") == b"0,1,2"
        assert cluster.brokers[3].replicas.logs.get(T0) is None
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]

    run_leaders(1, scenario, brokers=4)


def test_leader_whose_node_was_overwritten_is_elected_again() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        leader, epoch = cluster.leader
        cluster.ensemble.put(f"{TOPIC}/0/leader", b"%d;%d" % ((leader + 1) % 3, epoch + 5))
        await cluster.until(lambda: cluster.leader == (leader, epoch + 1))
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]
        shown = {broker.metadata.topics["t"][0].leader_epoch for broker in cluster.brokers.values()}
        assert max(shown) == epoch + 1

    run_leaders(1, scenario)
