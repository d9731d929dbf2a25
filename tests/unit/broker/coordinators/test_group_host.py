"""Groups on whole brokers in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.clients.group_client import GroupClient, Member

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.batch import valid_run
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import SeededLoop, run_seeded

Scenario = Callable[[MemoryCluster, Client], Awaitable[None]]
FAST = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3}


def run(scenario: Scenario, seed: int = 1, brokers: int = 3, **config: object) -> None:
    """Run a scenario with the topic t of three partitions, and few partitions in the offsets topic."""

    async def scene() -> None:
        async with (
            MemoryCluster(brokers, **{**FAST, **config}) as cluster,
            cluster.client() as user,
        ):
            await user.admin.create_topics([NewTopic("t", 3, brokers)])
            await scenario(cluster, user)

    run_seeded(seed, scene())


def test_two_members_join_one_group_and_see_the_offsets_that_both_committed() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        one, two = Member(cluster, "g", 0), Member(cluster, "g", 1)
        await asyncio.gather(one.join(), two.join())
        while await one.beat() or await two.beat():
            await asyncio.gather(one.join(), two.join())
        assert one.generation == two.generation
        for member in (one, two):
            assert member.assignment == f"{member.generation} {member.member_id}".encode()
        assert await one.commit_as_member({("t", 0): 5, ("t", 1): 6}) == {0}
        assert await two.commit_as_member({("t", 2): 7}) == {0}
        assert await two.committed() == {("t", 0): 5, ("t", 1): 6, ("t", 2): 7}
        await one.leave()
        one.close()
        two.close()

    run(scenario)


def test_offsets_topic_is_internal_and_compacted() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        member = GroupClient(cluster, "g")
        await member.find()
        member.close()
        topic = (await user.admin.describe_topics([GROUP_TOPIC]))[GROUP_TOPIC]
        assert topic.is_internal
        assert len(topic.partitions) == 3
        config = cluster.brokers[0].replicas.configs.get(GROUP_TOPIC)
        assert config.cleanup_policy == ("compact",)

    run(scenario)


def test_metrics_count_committed_offsets_and_the_groups_in_each_state() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        member, client = Member(cluster, "g"), GroupClient(cluster, "g2")
        await member.join()
        assert await client.commit({("t", 0): 1, ("t", 1): 2}) == {0}
        totals = cluster.brokers[0].metrics.totals()
        states = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
        assert [totals[f"NumGroups{state}"] for state in states] == [1, 0, 0, 1, 0]
        assert (totals["NumGroups"], totals["NumOffsets"]) == (2, 2)
        member.close()
        client.close()

    run(scenario, brokers=1, offsets_topic_replication_factor=1)


def test_offsets_of_a_deleted_topic_stay_removed_after_restarts() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.admin.create_topics([NewTopic("u", 1, 3)])
        client = GroupClient(cluster, "g")
        assert await client.commit({("t", 0): 1, ("u", 0): 2}) == {0}
        await user.admin.delete_topics(["u"])
        while await client.committed() != {("t", 0): 1}:
            await cluster.clock.sleep(10)
        for number in tuple(cluster.storages):
            await cluster.stop(number)
            await cluster.start(number)
        assert await client.committed() == {("t", 0): 1}
        client.close()

    run(scenario)


def test_offsets_of_a_topic_that_was_deleted_and_recreated_are_removed() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        client = GroupClient(cluster, "g")
        assert await client.commit({("t", 0): 1}) == {0}
        await user.admin.delete_topics(["t"])
        await user.admin.create_topics([NewTopic("t", 3, 3)])
        assert await client.committed() == {}
        client.close()

    run(scenario)


def test_clients_cannot_produce_to_the_offsets_topic() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        client = GroupClient(cluster, "g")
        assert await client.commit({("t", 0): 1}) == {0}
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            await user.produce(GROUP_TOPIC, [Record(value=b"x")], partition=0)
        client.close()

    run(scenario)


def test_rebalances_of_a_group_are_written_to_the_brokers_ledger() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        member = Member(cluster, "g")
        await member.join()
        await member.leave()
        await cluster.clock.sleep(100)
        lines = [line for line in cluster.history() if line["kind"] == "group"]
        facts = [line["fact"] for line in lines if line["group"] == "g"]
        assert facts[:2] == ["member added", "rebalance started"]
        assert {"members joined", "assignment written", "member removed"} <= set(facts)
        member.close()

    run(scenario)


def test_group_of_200_members_becomes_stable() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        members = [Member(cluster, "g") for _ in range(200)]
        await asyncio.gather(*(member.join() for member in members))
        while any(await asyncio.gather(*(member.beat() for member in members))):
            await asyncio.gather(*(member.join() for member in members))
        assert len({member.member_id for member in members}) == 200
        assert {member.generation for member in members} == {members[0].generation}
        for member in members:
            assert member.assignment == f"{member.generation} {member.member_id}".encode()
            member.close()

    run(
        scenario,
        brokers=1,
        offsets_topic_replication_factor=1,
        group_initial_rebalance_delay_ms=500,
    )


def test_offsets_of_1000_partitions_are_committed_and_fetched_in_one_request() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.admin.create_topics([NewTopic("wide", 1000, 1)])
        client = GroupClient(cluster, "g")
        offsets = {("wide", number): number + 1 for number in range(1000)}
        assert await client.commit(offsets) == {0}
        assert await client.committed() == offsets
        await cluster.stop(0)
        await cluster.start(0)
        assert await client.committed() == offsets
        client.close()

    run(scenario, brokers=1, offsets_topic_replication_factor=1)


def test_broker_with_300_groups_keeps_their_members_and_offsets_after_a_restart() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        members = [Member(cluster, f"group-{number}") for number in range(300)]
        await asyncio.gather(*(member.join() for member in members))
        commits = await asyncio.gather(
            *(member.commit_as_member({("t", 0): 5}) for member in members)
        )
        assert all(codes == {0} for codes in commits)
        await cluster.stop(0)
        await cluster.start(0)
        beats = await asyncio.gather(*(member.beat() for member in members))
        assert set(beats) == {0}
        totals = cluster.brokers[0].metrics.totals()
        assert (totals["NumGroupsStable"], totals["NumOffsets"]) == (300, 300)
        for member in members:
            member.close()

    run(scenario, brokers=1, offsets_topic_replication_factor=1)


def test_members_stay_in_the_group_after_a_broker_pause_beyond_their_timeout() -> None:
    """After the pause, heartbeats wait in the sockets while the session timers have already expired."""

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        members = [Member(cluster, "g", session_ms=2_000) for _ in range(3)]
        await asyncio.gather(*(member.join() for member in members))
        while any(await asyncio.gather(*(member.beat() for member in members))):
            await asyncio.gather(*(member.join() for member in members))
        generations = [member.generation for member in members]
        cluster.pause(0)
        beats = [loop.create_task(member.beat()) for member in members]
        await cluster.clock.sleep(5_000)
        cluster.resume(0)
        assert await asyncio.gather(*beats) == [0, 0, 0]
        await cluster.clock.sleep(1_000)
        assert await asyncio.gather(*(member.beat() for member in members)) == [0, 0, 0]
        assert [member.generation for member in members] == generations
        for member in members:
            member.close()

    run(
        scenario,
        brokers=1,
        offsets_topic_replication_factor=1,
        group_min_session_timeout_ms=1_000,
        zookeeper_session_timeout_ms=60_000,
    )


def test_offset_commits_that_arrive_in_one_event_loop_turn_share_a_batch() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        clients = [GroupClient(cluster, "g") for _ in range(12)]
        for client in clients:
            await client.find()
        partition = cluster.brokers[0].replicas.partitions[TopicPartition(GROUP_TOPIC, 0)]
        before = partition.log.log_end_offset
        codes = await asyncio.gather(
            *(client.commit({("t", 0): number}) for number, client in enumerate(clients))
        )
        assert codes == [{0}] * len(clients)
        data, _, _ = partition.log.read(before, 1 << 20, 1 << 20)
        headers, _, end = valid_run(data, memoryview(data), 0, len(data), before, False)
        assert end == before + len(clients)
        assert len(headers) < len(clients)  # commits that arrived in one turn share a batch
        for client in clients:
            client.close()

    run(scenario, brokers=1, offsets_topic_replication_factor=1, offsets_topic_num_partitions=1)
