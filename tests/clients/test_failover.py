"""Acknowledged records of every client and codec survive when a leader broker is killed, paused or stopped."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import count

import kafka
import pytest
from support.clients.readings import disagreements
from support.clients.real_clients import CLIENTS, Client, ConfluentKafka, KafkaPython, Writing
from support.clusters.running_cluster import (
    BROKERS,
    busiest,
    create_topic,
    heal,
    kill,
    wait_for_leaders,
    wait_for_records,
)

from minikafka.base.model import TopicPartition
from minikafka.checks.delivery import Reading, verdict
from minikafka.client import Client as NativeClient
from minikafka.tools.cluster import LocalCluster

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

PARTITIONS = 2
STREAM_SECONDS = 0.5
ELECTIONS = 40
FAULTS = ("kill", "pause", "stop")
PAIRS = [(client, codec) for client in CLIENTS for codec in client.codecs()]


def topic_of(client: Client, codec: str, fault: str) -> str:
    return f"{client.name}-{codec}-{fault}"


@pytest.mark.parametrize("fault", FAULTS)
async def test_acknowledged_records_of_every_client_survive_a_fault(
    cluster: LocalCluster, fault: str
) -> None:
    topics = {topic_of(client, codec, fault): (client, codec) for client, codec in PAIRS}
    await asyncio.gather(*(create_topic(cluster, topic, PARTITIONS) for topic in topics))
    with ExitStack() as stopped_at_the_end:
        writing = {
            topic: stopped_at_the_end.enter_context(
                Writing(client, cluster.bootstrap, topic, codec)
            )
            for topic, (client, codec) in topics.items()
        }
        await wait_for_records(cluster, topics)
        await asyncio.sleep(STREAM_SECONDS)
        victim = await busiest(cluster)
        await getattr(cluster, fault)(victim)
        await wait_for_leaders(cluster, topics, PARTITIONS, victim)
        await asyncio.sleep(STREAM_SECONDS)
        await heal(cluster)
        histories = {t: await asyncio.to_thread(w.finish) for t, w in writing.items()}
    problems = {}
    for topic, (client, _) in topics.items():
        reading = await asyncio.to_thread(client.read, cluster.bootstrap, topic, PARTITIONS)
        result = verdict([histories[topic]], reading)
        if not result.ok or not result.acked:
            problems[topic] = str(result)
    assert problems == {}


async def test_records_of_every_topic_stay_unchanged_while_any_one_broker_is_down(
    cluster: LocalCluster,
) -> None:
    written = {topic_of(client, codec, fault) for client, codec in PAIRS for fault in FAULTS}
    topics = sorted(written & {tp.topic for tp in (await cluster.state()).partitions})
    assert topics, "the tests above left no topics"
    before = await read_all(cluster, topics)
    for victim in BROKERS:
        await kill(cluster, victim)
        await wait_for_leaders(cluster, topics, PARTITIONS, victim)
        after = await read_all(cluster, topics)
        differing = {t: disagreements(before[t], after[t]) for t in topics}
        assert not any(differing.values()), differing
        await heal(cluster)


async def read_all(cluster: LocalCluster, topics: list[str]) -> dict[str, Reading]:
    client = ConfluentKafka()
    reads = (asyncio.to_thread(client.read, cluster.bootstrap, t, PARTITIONS) for t in topics)
    return dict(zip(topics, await asyncio.gather(*reads), strict=True))


async def test_librdkafka_reads_a_topic_again_and_again_during_leader_elections(
    cluster: LocalCluster,
) -> None:
    """Some reads get the leader from a broker whose metadata does not show the election yet."""
    await create_topic(cluster, "elections", PARTITIONS)
    over = asyncio.Event()
    reading = asyncio.create_task(read_until(over, cluster.bootstrap, "elections"))
    async with NativeClient(cluster.bootstrap) as operator:
        partitions = [TopicPartition("elections", number) for number in range(PARTITIONS)]
        for turn in range(ELECTIONS):
            order = BROKERS[turn % len(BROKERS) :] + BROKERS[: turn % len(BROKERS)]
            await operator.admin.alter_reassignments(dict.fromkeys(partitions, order))
            await operator.admin.elect_leaders(partitions)
    over.set()
    assert await reading


async def read_until(over: asyncio.Event, bootstrap: str, topic: str) -> int:
    """Read the topic with librdkafka again and again until `over` is set; return the number of reads."""
    for times in count():
        if over.is_set():
            return times
        await asyncio.to_thread(ConfluentKafka().read, bootstrap, topic, PARTITIONS)
    raise AssertionError


async def test_kafka_python_consumer_gets_end_offsets_from_the_new_leader_after_an_election(
    cluster: LocalCluster,
) -> None:
    await create_topic(cluster, "one-election", 1)
    partition = TopicPartition("one-election", 0)
    consumer = KafkaPython().consumer(cluster.bootstrap)
    try:
        wanted = [kafka.TopicPartition(*partition)]
        consumer.assign(wanted)
        before = await asyncio.to_thread(consumer.end_offsets, wanted)
        await move_leader(cluster, partition)
        assert await asyncio.to_thread(consumer.end_offsets, wanted) == before
    finally:
        consumer.close()


async def move_leader(cluster: LocalCluster, partition: TopicPartition) -> None:
    """Make another replica the preferred leader, and elect it."""
    former = (await cluster.state()).leader_of(*partition)
    order = sorted(BROKERS, key=lambda broker: broker == former)
    async with NativeClient(cluster.bootstrap) as operator:
        await operator.admin.alter_reassignments({partition: tuple(order)})
        await operator.admin.elect_leaders([partition])
