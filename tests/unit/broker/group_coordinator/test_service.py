"""Groups on whole brokers in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from support.group_client import GroupClient, Member
from support.memory_cluster import MemoryCluster
from support.seeded_loop import run_seeded

from minikafka.base.names import GROUP_TOPIC
from minikafka.client import Client, NewTopic

Scenario = Callable[[MemoryCluster, Client], Awaitable[None]]
FAST = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3}


def run(scenario: Scenario, seed: int = 1, brokers: int = 3, **config: object) -> None:
    """Run a scenario with the topic t of three partitions, and few partitions for groups."""

    async def scene() -> None:
        async with (
            MemoryCluster(brokers, **{**FAST, **config}) as cluster,
            cluster.client() as user,
        ):
            await user.admin.create_topics([NewTopic("t", 3, brokers)])
            await scenario(cluster, user)

    run_seeded(seed, scene())


def test_members_share_a_group_and_commits_are_fetched_back() -> None:
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
