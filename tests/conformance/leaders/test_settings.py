"""Settings that decide elections and in-sync replicas in the leader-coordinated mode."""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

from minikafka.base.config import BrokerConfig
from minikafka.client.administration.admin import Resource, ResourceType
from minikafka.simulation.cluster import LOG_DIR

SESSION_MS = 60_000
"""Longer than any pause of a broker in these tests, so that its session lasts."""


async def only_lagging_replica_lives(cluster: LeadersCluster) -> int:
    """Let one broker live whose replica is outside the ISR; return its id."""
    assert cluster.leader is not None
    leader = cluster.leader[0]
    outside, other = (id_ for id_ in (0, 1, 2) if id_ != leader)
    cluster.kill_with_session(outside)
    await cluster.produce(b"b")  # waits until the follower, which lags now, has left the ISR
    assert outside not in cluster.isr
    cluster.kill_with_session(other)
    cluster.kill_with_session(leader)
    await cluster.start(outside)
    await asyncio.sleep(20)
    return outside


@pytest.mark.row("H2", "T3", "X3")
def test_replica_outside_the_isr_does_not_lead_without_unclean_election() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        outside = await only_lagging_replica_lives(cluster)
        assert cluster.leader is None
        assert outside not in cluster.isr
        assert cluster.isr, "members of the ISR, and no leader"

    run_leaders(1, scenario, replica_lag_time_max_ms=3_000)


@pytest.mark.row("A15", "H4", "M1", "X3")
def test_topic_setting_lets_a_replica_outside_the_isr_lead() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        outside = await only_lagging_replica_lives(cluster)
        assert cluster.leader is None
        async with cluster.client() as client:
            setting = {"unclean.leader.election.enable": "true"}
            await client.admin.alter_configs({Resource(ResourceType.TOPIC, "t"): setting})
        await cluster.until(lambda: cluster.leader is not None)
        assert cluster.leader is not None
        assert cluster.leader[0] == outside
        assert cluster.isr == {outside}
        assert await cluster.consumed() == [b"a"]

    run_leaders(1, scenario, replica_lag_time_max_ms=3_000)


@pytest.mark.key("minikafka.leaders.election.wait.ms")
@pytest.mark.row("C40", "M3")
@pytest.mark.parametrize("wait_ms", [500, 5_000])
def test_unclean_election_waits_for_the_isr_for_the_time_set(wait_ms: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        await only_lagging_replica_lives(cluster)
        began = asyncio.get_running_loop().time()
        async with cluster.client() as client:
            setting = {"unclean.leader.election.enable": "true"}
            await client.admin.alter_configs({Resource(ResourceType.TOPIC, "t"): setting})
        await cluster.until(lambda: cluster.leader is not None)
        took = asyncio.get_running_loop().time() - began
        assert 0 <= took * 1_000 - wait_ms < 500

    run_leaders(
        1, scenario, replica_lag_time_max_ms=3_000, minikafka_leaders_election_wait_ms=wait_ms
    )


@pytest.mark.row("C29", "M2", "X20")
@pytest.mark.parametrize("enabled", [True, False])
def test_leadership_returns_to_the_preferred_replica_if_balancing_is_on(enabled: bool) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        preferred = cluster.state.replicas[0]
        cluster.kill_with_session(preferred)
        await cluster.produce(b"a")
        await cluster.start(preferred)
        await cluster.until_in_sync()
        await asyncio.sleep(60)
        assert cluster.leader is not None
        assert (cluster.leader[0] == preferred) == enabled
        assert await cluster.consumed() == [b"a"]

    run_leaders(
        1,
        scenario,
        auto_leader_rebalance_enable=enabled,
        leader_imbalance_check_interval_seconds=5,
    )


@pytest.mark.row("B1", "B2", "C40", "M3")
@pytest.mark.parametrize("lag_ms", [2_000, 20_000])
def test_follower_leaves_the_isr_after_the_keep_in_sync_time(lag_ms: int) -> None:
    """The wait for the preferred replica and the size of the queue are keys too (test_whole_brokers.py)."""

    async def scenario(cluster: LeadersCluster) -> None:
        loop = asyncio.get_running_loop()
        assert cluster.leader is not None
        leader = cluster.brokers[cluster.leader[0]]
        follower = next(id_ for id_ in cluster.brokers if id_ != leader.config.broker_id)
        cluster.pause(follower)
        began = loop.time()
        await cluster.produce(b"a")  # waits until the follower has left
        took = (loop.time() - began) * 1_000
        cluster.resume(follower)
        assert (
            lag_ms <= took <= 2 * lag_ms + 5_000
        )  # it is checked in intervals; the client looks for the leader
        [row] = [row for row in leader.describe()["replicas"] if row["topic"] == "t"]
        assert (row["role"], row["log_end_offset"], row["high_watermark"]) == ("leader", 1, 1)
        assert set(row["isr"]) < set(row["replicas"])
        await cluster.until_in_sync()

    run_leaders(
        1, scenario, replica_lag_time_max_ms=lag_ms, zookeeper_session_timeout_ms=SESSION_MS
    )


@pytest.mark.parametrize("min_isr", [1, 2])
def test_s70_follower_leaves_the_isr_when_its_registration_ends(min_isr: int) -> None:
    """Writes with acks=all do not wait for the keep-in-sync time, 30 s."""

    async def scenario(cluster: LeadersCluster) -> None:
        loop = asyncio.get_running_loop()
        assert cluster.leader is not None
        epoch, leader = cluster.leader[1], cluster.leader[0]
        first, second = (id_ for id_ in cluster.brokers if id_ != leader)
        began = loop.time()
        cluster.kill_with_session(first)
        await cluster.produce(b"a")
        assert loop.time() - began < 2
        assert cluster.isr == {leader, second}
        cluster.kill_with_session(second)
        await asyncio.sleep(2)
        assert cluster.isr == ({leader} if min_isr == 1 else {leader, second})
        for id_ in (first, second):
            await cluster.start(id_)
        await cluster.until_in_sync()
        assert cluster.leader == (leader, epoch)
        assert await cluster.consumed() == [b"a"]

    run_leaders(1, scenario, min_insync_replicas=min_isr)


@pytest.mark.row("B4", "M5")
def test_high_watermark_is_checkpointed_at_its_interval_and_survives_a_kill() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a", b"b")
        assert cluster.leader is not None
        follower = next(id_ for id_ in cluster.brokers if id_ != cluster.leader[0])
        await asyncio.sleep(3)
        cluster.kill_with_session(follower)
        file = cluster.storages[follower].files[f"{LOG_DIR}/replication-offset-checkpoint"]
        assert b"t 0 2" in bytes(file).splitlines()
        broker = await cluster.start(follower)
        assert broker.replicas.partitions[T0].high_watermark == 2

    run_leaders(1, scenario, replica_high_watermark_checkpoint_interval_ms=1_000)


@pytest.mark.row("C40")
def test_waits_and_the_size_of_the_queue_are_keys_with_defaults() -> None:
    keys = BrokerConfig.keys()
    names = ("election.wait.ms", "preferred.wait.ms", "queue.max")
    found = [keys[f"minikafka.leaders.{name}"].default for name in names]
    assert found == [1_000, 1_000, 10_000]
    assert keys["replica.lag.time.max.ms"].default == 30_000
