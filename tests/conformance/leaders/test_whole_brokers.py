"""Whole brokers of the leader-coordinated mode in memory: elections, deaths, returns, lost leases and full restarts."""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

from minikafka.base.config import TopicConfig
from minikafka.broker.capabilities import TopicPlan

SEEDS = range(1, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_record_is_kept_and_another_replica_leads_when_the_leader_dies(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        before = cluster.state
        cluster.kill_with_session(before.leader)
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]
        after = cluster.state
        assert after.leader != before.leader
        assert after.leader_epoch == before.leader_epoch + 1
        await cluster.start(before.leader)
        await cluster.until_in_sync()
        assert cluster.leader == (after.leader, after.leader_epoch)
        log = cluster.brokers[before.leader].replicas.partitions[T0].log
        assert log.log_end_offset == 2

    run_leaders(seed, scenario)


@pytest.mark.key("minikafka.leaders.preferred.wait.ms")
@pytest.mark.row("C40", "M3")
@pytest.mark.parametrize("wait_ms", [500, 5_000])
def test_replica_leaves_the_election_to_the_preferred_one_for_the_time_set(wait_ms: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        preferred = cluster.state.replicas[0]
        cluster.kill_with_session(preferred)
        await cluster.produce(b"a")
        await cluster.start(preferred)
        await cluster.until_in_sync()
        assert cluster.leader is not None
        await asyncio.sleep(2 * wait_ms / 1_000)  # no wait of the first election is running
        loop = asyncio.get_running_loop()
        cluster.pause(preferred)
        began = loop.time()
        cluster.kill_with_session(cluster.leader[0])
        await cluster.until(lambda: cluster.leader is not None)
        cluster.resume(preferred)
        assert 0 <= (loop.time() - began) * 1_000 - wait_ms < 500

    run_leaders(
        1, scenario, minikafka_leaders_preferred_wait_ms=wait_ms, auto_leader_rebalance_enable=False
    )


@pytest.mark.key("minikafka.leaders.queue.max")
@pytest.mark.row("C12")
def test_broker_scans_when_the_start_requests_in_its_full_queue_were_dropped() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.stop(2)
        assignment = dict.fromkeys(range(5), (0, 1, 2))
        plan = TopicPlan("u", b"u" * 16, assignment, {}, TopicConfig())
        errors = await cluster.brokers[0].capabilities.topics.create([plan])
        assert errors == {}
        queue = cluster.ensemble.nodes["/leaders/brokers/state/2"]
        assert 1 <= len(queue.children) <= 2
        hosted = (await cluster.start(2)).replicas.partitions
        await cluster.until(
            lambda: {tp.partition for tp in hosted if tp.topic == "u"} == {*assignment}
        )
        assert not cluster.ensemble.nodes["/leaders/brokers/state/2"].children

    run_leaders(1, scenario, minikafka_leaders_queue_max=2)
