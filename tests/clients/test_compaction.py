"""Updates of a few keys in a compacted topic, written and read by librdkafka while all replicas compact their logs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from typing import Any, Final

import confluent_kafka
import pytest
from support.clusters.running_cluster import BROKERS, eventually, kill

from minikafka.client import Client, NewTopic
from minikafka.tools.cluster import LocalCluster

TOPIC: Final = "updates"
KEYS: Final = 10
UPDATES: Final = 6_000
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "10000",
    "min.cleanable.dirty.ratio": "0.2",
    "max.message.bytes": "5000",
}


class Writer:
    """An idempotent producer, and the latest value of each key."""

    def __init__(self, bootstrap: str) -> None:
        self.expected: dict[bytes, bytes] = {}
        self.errors: list[object] = []
        self.count = 0
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 1,
            "batch.size": 4_000,
        }
        self.producer = confluent_kafka.Producer(settings)

    def write(self, updates: int) -> None:
        for _ in range(updates):
            self.count += 1
            key, value = b"key-%d" % (self.count % KEYS), b"%d" % self.count + b"x" * 40
            self.expected[key] = value
            self.producer.produce(TOPIC, value, key, on_delivery=self.delivered)
            self.producer.poll(0)
        assert self.producer.flush(30) == 0
        assert self.errors == []

    def delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(error)


def read(bootstrap: str) -> list[tuple[int, bytes, bytes]]:
    """Read the topic to its end with librdkafka."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


@pytest.fixture
async def topic(cluster: LocalCluster) -> AsyncIterator[LocalCluster]:
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(TOPIC, 1, len(BROKERS), configs=SETTINGS))
        await cluster.wait_for_isr(TOPIC)
        yield cluster


async def until_compacted(cluster: LocalCluster, end_offset: int) -> None:
    """Wait until every broker's replica reaches this end offset and has a dirty ratio below 0.3."""

    async def is_compacted() -> bool:
        answers = (await cluster.state()).answers.values()
        rows = [row for answer in answers for row in answer["replicas"] if row["topic"] == TOPIC]
        return len(rows) == len(BROKERS) and all(
            row["log_end_offset"] >= end_offset and row["compaction"]["dirty_ratio"] < 0.3
            for row in rows
        )

    await eventually(is_compacted)


async def test_clients_write_and_read_a_topic_while_it_is_compacted(topic: LocalCluster) -> None:
    cluster = topic
    writer = Writer(cluster.bootstrap)
    await asyncio.to_thread(writer.write, UPDATES)
    await until_compacted(cluster, UPDATES)
    found = await asyncio.to_thread(read, cluster.bootstrap)
    assert {key: value for _, key, value in found} == writer.expected
    assert len(found) < UPDATES / 4
    leader = await cluster.leader_of(TOPIC, 0)
    newcomer = next(broker for broker in BROKERS if broker != leader)
    await kill(cluster, newcomer)
    shutil.rmtree(cluster.directory.broker_data(newcomer) / f"{TOPIC}-0")
    await cluster.start(newcomer)
    await asyncio.to_thread(writer.write, 500)
    await cluster.wait_for_isr(TOPIC)
    await kill(cluster, leader)
    await asyncio.to_thread(writer.write, UPDATES)
    await cluster.start(leader)
    await until_compacted(cluster, 2 * UPDATES)
    for broker in BROKERS:
        await cluster.restart(broker)
    found = await asyncio.to_thread(read, cluster.bootstrap)
    assert {key: value for _, key, value in found} == writer.expected
    assert len(found) < UPDATES / 4
    # Replicas are compacted independently, and the leader may have changed: only the latest records are equal.
    async with Client(cluster.bootstrap) as client:
        own = {
            each.key: (each.offset, each.value)
            async for each in client.consume(TOPIC, until_end=True)
        }
    assert own == {key: (offset, value) for offset, key, value in found}
