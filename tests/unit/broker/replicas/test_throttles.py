"""Replication throttles of whole brokers, in virtual time: rates, replica lists, and exempt replicas."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from minikafka.base.metrics import prometheus_text
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.tools.cli.reassign.throttle import REPLICAS, set_throttle

T0 = TopicPartition("t", 0)
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATE = 200_000
BATCHES = 100
BATCH_BYTES = 20_000


async def filled(user: Client, *brokers: int, name: str = "t") -> int:
    """Create a topic with one partition and 2 MB of records on these brokers; return the number of bytes."""
    await user.create_topics(NewTopic(name, assignment={0: brokers}))
    for _ in range(BATCHES):
        await user.produce(name, [Record(value=bytes(BATCH_BYTES))])
    return BATCHES * BATCH_BYTES


async def alter(user: Client, settings: Mapping[Resource, Mapping[str, str | None]]) -> None:
    outcomes = await user.admin.alter_configs({key: dict(v) for key, v in settings.items()})
    assert all(outcome.ok for outcome in outcomes.values()), outcomes


def broker(number: int) -> Resource:
    return Resource(ResourceType.BROKER, str(number))


TOPIC = Resource(ResourceType.TOPIC, "t")


async def seconds_to_copy(
    cluster: MemoryCluster, user: Client, plan: Mapping[TopicPartition, Sequence[int]]
) -> float:
    """Reassign partitions by `plan`; return the virtual seconds until the reassignments have completed."""
    begun = cluster.clock.now()
    outcomes = await user.admin.alter_reassignments({tp: tuple(to) for tp, to in plan.items()})
    assert all(outcome.ok for outcome in outcomes.values())
    while await user.admin.list_reassignments():
        await cluster.clock.sleep(50)
    return (cluster.clock.now() - begun) / 1000


@pytest.mark.row("R54")
@pytest.mark.key(
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
@pytest.mark.parametrize(
    ("leader", "follower"),
    [("0:0", ""), ("", "0:1"), ("*", ""), ("", "*"), ("0:0,0:1", "0:1")],
)
def test_throttled_replica_is_copied_at_the_configured_rate(leader: str, follower: str) -> None:
    async def scenario() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            size = await filled(user, 0)
            rates = {LEADER_RATE: str(RATE), FOLLOWER_RATE: str(RATE)}
            lists = {REPLICAS[0]: leader, REPLICAS[1]: follower}
            await alter(user, {broker(0): rates, broker(1): rates, TOPIC: lists})
            seconds = await seconds_to_copy(cluster, user, {T0: (0, 1)})
            assert size / seconds == pytest.approx(RATE, rel=0.1)
            text = "".join(
                line for n in (0, 1) for line in prometheus_text(cluster.brokers[n].metrics)
            )
            rates = re.findall(
                r"^kafka_server_(?:leader|follower)replication_\S+ (\d+)", text, re.MULTILINE
            )
            assert max(map(int, rates)) == pytest.approx(RATE, rel=0.1)

    run_seeded(1, scenario())


def test_each_copy_of_a_replica_has_the_rate_of_the_latest_throttle() -> None:
    async def scenario() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            size = await filled(user, 0)
            plan = {T0: (0, 1)}
            for rate in (RATE, 3 * RATE):
                assert await set_throttle(user.admin, plan, {T0: (0,)}, rate) == {}
                seconds = await seconds_to_copy(cluster, user, plan)
                assert size / seconds == pytest.approx(rate, rel=0.1)
                await seconds_to_copy(cluster, user, {T0: (0,)})

    run_seeded(7, scenario())


def test_one_leader_divides_the_rate_among_its_followers() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            size = await filled(user, 0)
            plan = {T0: (0, 1, 2)}
            assert await set_throttle(user.admin, plan, {T0: (0,)}, RATE) == {}
            seconds = await seconds_to_copy(cluster, user, plan)
            assert 2 * size / seconds == pytest.approx(RATE, rel=0.1)

    run_seeded(2, scenario())


@pytest.mark.parametrize("lists", [{REPLICAS[0]: "0:1"}, {REPLICAS[1]: "0:0,1:1"}, {}])
def test_replicas_that_are_not_listed_are_not_throttled(lists: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            await filled(user, 0)
            rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
            await alter(user, {broker(0): rates, broker(1): rates})
            if lists:
                await alter(user, {TOPIC: lists})
            assert await seconds_to_copy(cluster, user, {T0: (0, 1)}) < 2

    run_seeded(3, scenario())


@pytest.mark.row("R54")
def test_replicas_in_the_isr_are_never_throttled() -> None:
    async def scenario() -> None:
        async with (
            MemoryCluster(2, min_insync_replicas=2) as cluster,
            cluster.client() as user,
        ):
            await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
            rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
            lists = dict.fromkeys(REPLICAS, "*")
            await alter(user, {broker(0): rates, broker(1): rates, TOPIC: lists})
            begun = cluster.clock.now()
            for _ in range(10):
                await user.produce("t", [Record(value=bytes(BATCH_BYTES))])
            assert cluster.clock.now() - begun < 1000
            assert cluster.brokers[0].replicas.partitions[T0].isr == (0, 1)

    run_seeded(4, scenario())


def test_throttle_does_not_delay_other_partitions_of_the_same_fetcher() -> None:
    async def scenario() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            await filled(user, 0)
            await user.create_topics(NewTopic("u", assignment={0: (0, 1)}))
            rates = {LEADER_RATE: "1000", FOLLOWER_RATE: "1000"}
            lists = {REPLICAS[0]: "0:0", REPLICAS[1]: "0:1"}
            await alter(user, {broker(0): rates, broker(1): rates, TOPIC: lists})
            await user.admin.alter_reassignments({T0: (0, 1)})
            await cluster.clock.sleep(2000)
            begun = cluster.clock.now()
            for _ in range(10):
                await user.produce("u", [Record(value=b"v")])
            assert cluster.clock.now() - begun < 1000
            assert await user.admin.list_reassignments()

    run_seeded(5, scenario())


@pytest.mark.parametrize("removed", ["rates", "lists"])
def test_throttled_copy_continues_at_full_rate_when_the_throttle_is_removed(removed: str) -> None:
    async def scenario() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            await filled(user, 0)
            rates = {LEADER_RATE: "1000", FOLLOWER_RATE: "1000"}
            lists = {REPLICAS[0]: "0:0", REPLICAS[1]: "0:1"}
            await alter(user, {broker(0): rates, broker(1): rates, TOPIC: lists})
            await user.admin.alter_reassignments({T0: (0, 1)})
            await cluster.clock.sleep(2000)
            if removed == "rates":
                gone = dict.fromkeys(rates, None)
                await alter(user, {broker(0): gone, broker(1): gone})
            else:
                await alter(user, {TOPIC: dict.fromkeys(lists, None)})
            begun = cluster.clock.now()
            while await user.admin.list_reassignments():
                await cluster.clock.sleep(50)
            assert cluster.clock.now() - begun < 2000

    run_seeded(6, scenario())
