"""A flipped bit in a closed segment, which recovery after a restart does not read again (S36)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import kafka
import pytest
from kafka.errors import CorruptRecordError
from support.clusters.running_cluster import BROKERS, eventually, wait_for_leaders

from minikafka.base.errors import CorruptBatch
from minikafka.client import Client, NewTopic, Record
from minikafka.tools.cluster import LocalCluster

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

VALUES = [b"%04d " % number + b"x" * 400 for number in range(200)]
SEGMENT = {"segment.bytes": "16384"}


async def make_topic(cluster: LocalCluster, topic: str) -> None:
    """Create a topic whose single partition has several segments, with one record per batch."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(topic, 1, len(BROKERS), configs=SEGMENT))
        for value in VALUES:
            await client.produce(topic, [Record(value=value)], partition=0)
    await cluster.wait_for_isr(topic)


def directory(cluster: LocalCluster, broker: int, topic: str) -> Path:
    return cluster.directory.broker_data(broker) / f"{topic}-0"


def flip(cluster: LocalCluster, broker: int, topic: str) -> None:
    """Damage one value in the middle of the first segment."""
    first, *others = sorted(directory(cluster, broker, topic).glob("*.log"))
    assert others, "the first segment is still open"
    with first.open("r+b") as file:
        at = first.read_bytes().index(VALUES[len(VALUES) // len(others) // 3])
        file.seek(at + 100)
        file.write(b"y")


async def read(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    async with Client(cluster.bootstrap) as client:
        return [record.value async for record in client.consume(topic, until_end=True)]


def read_by_kafka_python(cluster: LocalCluster, topic: str) -> None:
    """Read the topic to its end; kafka-python compares checksums by default."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        while consumer.poll(timeout_ms=30_000):
            pass
    finally:
        consumer.close()


async def replace(cluster: LocalCluster, broker: int, topic: str) -> None:
    """Repair the replica as an operator would: stop the broker, delete the replica's directory, start the broker."""
    await cluster.stop(broker)
    shutil.rmtree(directory(cluster, broker, topic))
    await cluster.start(broker)


@pytest.mark.row("R44")
async def test_damaged_batch_of_a_leader_is_neither_read_nor_replicated(
    cluster: LocalCluster,
) -> None:
    topic = "rotten-leader"
    await make_topic(cluster, topic)
    leader = await cluster.leader_of(topic, 0)
    flip(cluster, leader, topic)
    with pytest.raises(CorruptBatch):
        await read(cluster, topic)
    with pytest.raises(CorruptRecordError):
        await asyncio.to_thread(read_by_kafka_python, cluster, topic)

    victim = next(broker for broker in BROKERS if broker != leader)
    await replace(cluster, victim, topic)
    output = cluster.directory.output(f"broker-{victim}")

    async def has_refused() -> bool:
        return (
            f"{topic}-0: refusing the leader's records: the batch at offset" in output.read_text()
        )

    await eventually(has_refused)
    assert victim not in next(
        view.isr for tp, view in (await cluster.state()).partitions.items() if tp.topic == topic
    )

    await cluster.stop(leader)
    await wait_for_leaders(cluster, [topic], 1, leader)
    await cluster.wait_for_isr(topic, [broker for broker in BROKERS if broker != leader])
    assert await read(cluster, topic) == VALUES
    shutil.rmtree(directory(cluster, leader, topic))
    await cluster.start(leader)
    await cluster.wait_for_isr(topic)
    logs = {
        b"".join(file.read_bytes() for file in sorted(directory(cluster, b, topic).glob("*.log")))
        for b in BROKERS
    }
    assert len(logs) == 1


async def test_damaged_batch_of_a_follower_is_replaced_from_the_leader(
    cluster: LocalCluster,
) -> None:
    topic = "rotten-follower"
    await make_topic(cluster, topic)
    leader = await cluster.leader_of(topic, 0)
    follower = next(broker for broker in BROKERS if broker != leader)
    flip(cluster, follower, topic)
    assert await read(cluster, topic) == VALUES
    await replace(cluster, follower, topic)
    await cluster.wait_for_isr(topic)
    await cluster.stop(leader)
    await wait_for_leaders(cluster, [topic], 1, leader)
    assert await read(cluster, topic) == VALUES
