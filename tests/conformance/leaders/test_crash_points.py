"""The broker that acts is killed at each step of an election, of the balance and of a controlled shutdown.

test_topics.py and test_administration.py have the steps of creations, deletions and reassignments.
"""

from __future__ import annotations

import pytest
from support.brokers.leaders_admin import at, run_admin, until_held
from support.brokers.leaders_cluster import LeadersCluster

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.deciders.leaders.steps import CONTROLLED_SHUTDOWN, ELECTION, STEPS

T0 = TopicPartition("t", 0)


async def begin(cluster: LeadersCluster) -> None:
    """Create topic t on all brokers, led by broker 0, and write a record."""
    async with cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: (0, 1, 2)}))
    await cluster.until(lambda: cluster.isr == {0, 1, 2})
    assert cluster.leader == (0, 1)
    await cluster.produce(b"a")


async def end(cluster: LeadersCluster, *dead: int) -> None:
    """Write with the remaining brokers, start the dead ones, and read everything."""
    before = cluster.leader
    await cluster.produce(b"b")
    for number in dead:
        await cluster.start(number)
    await cluster.until_in_sync()
    assert before is None or cluster.leader is None or cluster.leader[1] >= before[1]
    assert await cluster.consumed() == [b"a", b"b"]


@pytest.mark.row("C14", "C16", "C17")
@pytest.mark.parametrize("step", STEPS[ELECTION])
def test_another_replica_leads_when_the_elected_one_dies_at_a_step(step: str) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster)
        cluster.brokers[1].gate.hold(f"{ELECTION}.{step}")
        cluster.brokers[2].gate.hold(f"{ELECTION}.lead")
        cluster.kill_with_session(0)
        await until_held(cluster, 1, f"{ELECTION}.{step}")
        cluster.kill_with_session(1)
        cluster.brokers[2].gate.open()
        await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] == 2)
        assert cluster.leader is not None
        assert cluster.leader[1] == (2 if step == "lead" else 3)
        await end(cluster, 0, 1)

    run_admin(scenario)


@pytest.mark.row("C29")
def test_preferred_replica_leads_when_the_leader_dies_as_it_gives_up() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster)
        cluster.kill_with_session(0)
        await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] != 0)
        await cluster.start(0)
        await cluster.until_in_sync()
        assert cluster.leader is not None
        leader, epoch = cluster.leader
        await cluster.until(lambda: cluster.brokers[leader].replicas.partitions[T0].is_open)
        await cluster.until_in_sync()
        cluster.brokers[leader].gate.hold("balance.give-up")
        other = cluster.brokers[3 - leader].capabilities.administration
        asked = at(cluster, 3 - leader, other.elect_leaders(unclean=False, partitions=[T0]))
        await until_held(cluster, leader, "balance.give-up")
        cluster.kill_with_session(leader)
        await cluster.until(lambda: cluster.leader == (0, epoch + 1))
        await asked
        await end(cluster, leader)

    run_admin(scenario, auto_leader_rebalance_enable=False)


@pytest.mark.row("R23")
@pytest.mark.parametrize("step", STEPS[CONTROLLED_SHUTDOWN])
def test_another_replica_leads_when_a_broker_dies_at_a_step_of_its_shutdown(step: str) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await begin(cluster)
        cluster.brokers[0].gate.hold(f"{CONTROLLED_SHUTDOWN}.{step}")
        broker = cluster.brokers[0]
        at(cluster, 0, cluster.stop(0))
        await cluster.until(lambda: broker.gate.waiting == f"{CONTROLLED_SHUTDOWN}.{step}")
        cluster.kill_with_session(0)
        await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] != 0)
        assert cluster.leader is not None
        assert cluster.leader[1] == 2
        await end(cluster, 0)

    run_admin(scenario)
