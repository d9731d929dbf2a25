"""Brokers of the leader-coordinated mode in memory that lose their session, its lease, or their turn to run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic

SEEDS = range(1, 6)


def epochs(cluster: LeadersCluster, number: int) -> list[int]:
    """Return the broker epochs in which a broker has registered, from its ledger."""
    return [
        line["broker_epoch"] for line in cluster.ledger(number) if line.get("fact") == "registered"
    ]


@pytest.mark.row("C35")
@pytest.mark.parametrize("seed", SEEDS)
def test_leader_whose_session_expires_registers_again_and_follows(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        number, epoch = cluster.leader
        session = cluster.sessions[number]
        await session.expire()
        await cluster.until(lambda: cluster.leader not in (None, (number, epoch)))
        await session.attach()
        await cluster.produce(b"b")
        await cluster.until_in_sync()
        first, second = epochs(cluster, number)
        assert first < second
        partition = cluster.brokers[number].replicas.partitions[T0]
        assert (partition.leader, partition.leader_epoch) == cluster.leader
        assert await cluster.consumed() == [b"a", b"b"]

    run_leaders(seed, scenario)


async def elect_the_first(cluster: LeadersCluster) -> None:
    """Elect broker 0, as soon as the leader knows that it has registered again."""
    async with cluster.client() as client:
        while code := (await client.admin.elect_leaders([T0]))[T0].code:
            assert code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            await asyncio.sleep(1)
    assert cluster.leader is not None
    assert cluster.leader[0] == 0


@pytest.mark.row("C35")
def test_broker_registers_again_after_each_of_three_lost_sessions() -> None:
    """A broker that leads loses its session, then one that follows, then one that leads again."""

    async def scenario(cluster: LeadersCluster) -> None:
        records = []
        for turn in range(3):
            session = cluster.sessions[0]
            await session.expire()
            await cluster.until(lambda: cluster.leader is not None and cluster.leader[0] != 0)
            await cluster.until(lambda: not cluster.brokers[0].replicas.partitions[T0].is_leader)
            await session.attach()
            records.append(b"%d" % turn)
            await cluster.produce(records[-1])
            await cluster.until_in_sync()
            if turn:
                await elect_the_first(cluster)
        registered = epochs(cluster, 0)
        assert registered == sorted({*registered})
        assert len(registered) == 4
        assert len([line for line in cluster.ledger(0) if line.get("fact") == "session lost"]) == 3
        assert await cluster.consumed() == records

    run_leaders(1, scenario, topic_replicas=(0, 1, 2), auto_leader_rebalance_enable=False)


@pytest.mark.row("C5", "C35")
def test_requests_that_a_lost_session_interrupts_are_carried_out_by_the_next_one() -> None:
    """The first request hangs while the lease ends, and a second one waits behind it."""

    async def scenario(cluster: LeadersCluster) -> None:
        broker, session = cluster.brokers[1], cluster.sessions[1]
        async with cluster.client() as client:
            await client.create_topics(NewTopic("a", assignment={0: (1,)}))
        broker.gate.hold("deletion.replica")
        cluster.ensemble.put("/leaders/brokers/partitions_reassigned/a/0", b"")
        await cluster.until(lambda: broker.gate.waiting == "deletion.replica")
        await session.lose_lease()
        broker.gate.open()
        await asyncio.sleep(5)
        await session.attach()
        await cluster.until(lambda: not cluster.ensemble.children("/leaders/brokers/state/1"))
        await cluster.until(lambda: cluster.node("topics/a") is None)
        assert TopicPartition("a", 0) not in broker.replicas.partitions
        await cluster.produce(b"a")

    run_leaders(1, scenario)


@pytest.mark.row("C35")
@pytest.mark.parametrize("seed", SEEDS)
def test_leader_stops_serving_when_its_lease_is_over(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        number, epoch = cluster.leader
        session = cluster.sessions[number]
        await session.lose_lease()
        partition = cluster.brokers[number].replicas.partitions[T0]
        await cluster.until(lambda: not partition.is_leader)
        assert cluster.leader == (number, epoch)  # the session itself still lasts
        await session.attach()
        await cluster.until(lambda: (cluster.leader or (number, epoch))[1] > epoch)
        await cluster.produce(b"b")
        await cluster.until_in_sync()
        assert await cluster.consumed() == [b"a", b"b"]

    run_leaders(seed, scenario)


@pytest.mark.row("C42")
@pytest.mark.parametrize("seed", SEEDS)
def test_paused_leader_acknowledges_nothing_after_another_has_led(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        number, epoch = cluster.leader
        cluster.pause(number)
        cluster.end_session(number)
        await cluster.until(lambda: cluster.leader not in (None, (number, epoch)))
        writing = asyncio.ensure_future(cluster.produce(b"b"))
        await asyncio.sleep(1)
        cluster.resume(number)
        await writing
        await cluster.until_in_sync()
        assert await cluster.consumed() == [b"a", b"b"]
        partition = cluster.brokers[number].replicas.partitions[T0]
        assert (partition.leader, partition.leader_epoch) == cluster.leader

    run_leaders(seed, scenario)


@pytest.mark.row("C2", "C19")
@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_kept_when_all_brokers_stop_and_start_again(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        _, epoch = cluster.leader
        for number in (0, 1, 2):
            await cluster.stop(number, controlled=False)
        assert cluster.leader is None
        for number in (0, 1, 2):
            await cluster.start(number)
        await cluster.until(lambda: cluster.leader is not None)
        await cluster.produce(b"b")
        assert await cluster.consumed() == [b"a", b"b"]
        assert cluster.leader is not None
        assert cluster.leader[1] > epoch
        await cluster.until_in_sync()

    run_leaders(seed, scenario)


@pytest.mark.row("C42")
@pytest.mark.parametrize("seed", SEEDS)
def test_s71_broker_shows_itself_while_all_sessions_are_renewed(seed: int) -> None:
    """Clients of librdkafka that get an empty list of brokers close all connections, and never connect again."""

    async def scenario(cluster: LeadersCluster) -> None:
        shown: list[tuple[int, list[int]]] = []
        for number, broker in cluster.brokers.items():
            update = broker.metadata.update

            def note(
                new: Any, *, is_whole: bool = False, number: int = number, update: Any = update
            ) -> None:
                shown.append((number, [one.id for one in new.live_brokers]))
                update(new, is_whole=is_whole)

            broker.metadata.update = note  # type: ignore[method-assign]
        for session in cluster.sessions.values():
            await session.expire()
        for session in cluster.sessions.values():
            await session.attach()
            await asyncio.sleep(1)
        await cluster.produce(b"a")
        await cluster.until_in_sync()
        assert {number for number, _ in shown} == cluster.brokers.keys()
        assert [one for one in shown if one[0] not in one[1]] == []

    run_leaders(seed, scenario)


@pytest.mark.row("C35")
def test_replica_that_won_an_election_does_not_lead_after_its_lease_has_ended() -> None:
    """The broker has read that it leads, and waits for the topic's settings when the lease ends."""

    async def scenario(cluster: LeadersCluster) -> None:
        broker, session, tp = cluster.brokers[0], cluster.sessions[0], TopicPartition("u", 0)
        is_reading, may_go_on = asyncio.Event(), asyncio.Event()
        read = broker.replicas.configs.read

        async def slow(*arguments: Any, **keywords: Any) -> None:
            await read(*arguments, **keywords)
            is_reading.set()
            await may_go_on.wait()

        broker.replicas.configs.read = slow  # type: ignore[method-assign]
        async with cluster.client() as client:
            creating = asyncio.ensure_future(
                client.create_topics(NewTopic("u", assignment={0: (0,)}))
            )
            await is_reading.wait()
            await session.lose_lease()
            await asyncio.sleep(1)
            may_go_on.set()
            await asyncio.sleep(1)
            partition = broker.replicas.partitions.get(tp)
            assert partition is None or not partition.is_leader
            await session.attach()
            await cluster.until(lambda: tp in broker.replicas.partitions)
            await cluster.until(lambda: broker.replicas.partitions[tp].is_open)
            creating.cancel()

    run_leaders(1, scenario)
