"""Consumers in fetch sessions and in racks: librdkafka, kafka-python and, with Kafka's jars, Java's consumer."""

from __future__ import annotations

import asyncio
import os
import shutil
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import kafka
import pytest
from confluent_kafka import Consumer, TopicPartition
from support.clusters.running_cluster import eventually, kill
from support.rows import proof

from minikafka.base.config.cluster import ClusterConfig
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
RACKS: Final = {1: "a", 2: "b"}
COUNT: Final = 200

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    config = ClusterConfig(
        brokers=2,
        port=0,
        broker={
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        },
        overrides={number: {"broker.rack": rack} for number, rack in RACKS.items()},
    )
    made = LocalCluster(data=tmp_path_factory.mktemp("racks"), config=config)
    asyncio.run(made.start())
    try:
        yield made
    finally:
        asyncio.run(made.stop())


@pytest.fixture
async def client(running: LocalCluster) -> AsyncIterator[Client]:
    proof.note(proof.Level.REAL)
    async with Client(running.bootstrap) as made:
        yield made


def metric(cluster: LocalCluster, broker: int, name: str) -> float:
    """Return the value of one metric without labels."""
    with urllib.request.urlopen(cluster.metrics_urls[broker]) as page:
        lines = page.read().decode().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(name + " "))
    return float(value)


def sent_to_consumers(cluster: LocalCluster) -> dict[int, float]:
    name = "kafka_server_brokertopicmetrics_bytesout_total"
    return {broker: metric(cluster, broker, name) for broker in RACKS}


async def fill(client: Client, topic: str, partitions: int = 1) -> None:
    """Create a topic led by broker 1 and followed by broker 2, and write `COUNT` records to it."""
    await client.create_topics(NewTopic(topic, assignment=dict.fromkeys(range(partitions), (1, 2))))
    for number in range(COUNT):
        record = Record(value=b"%d" % number + bytes(100))
        await client.produce(topic, [record], partition=number % partitions)


def read_with_librdkafka(bootstrap: str, topic: str, rack: str, until: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "client.rack": rack,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < until:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.row("R51")
@pytest.mark.parametrize(("rack", "server"), [("a", 1), ("b", 2), ("", 1)])
async def test_librdkafka_reads_from_the_replica_in_its_rack(
    running: LocalCluster, client: Client, rack: str, server: int
) -> None:
    topic = f"rack-{rack}"
    await fill(client, topic)
    before = sent_to_consumers(running)
    found = await asyncio.to_thread(read_with_librdkafka, running.bootstrap, topic, rack, COUNT)
    assert [int(value.rstrip(b"\0")) for value in found] == list(range(COUNT))
    after = sent_to_consumers(running)
    served = [broker for broker in RACKS if after[broker] > before[broker]]
    assert served == [server]


@pytest.mark.row("R51")
async def test_librdkafka_returns_to_the_leader_when_its_follower_dies(
    running: LocalCluster, client: Client
) -> None:
    await fill(client, "rack-lost")
    reading = asyncio.create_task(
        asyncio.to_thread(read_with_librdkafka, running.bootstrap, "rack-lost", "b", COUNT + 50)
    )
    before = sent_to_consumers(running)[2]
    await eventually(lambda: asyncio.to_thread(lambda: sent_to_consumers(running)[2] > before))
    await kill(running, 2)
    for _ in range(50):
        await client.produce("rack-lost", [Record(value=b"after")], partition=0)
    assert (await reading)[-50:] == [b"after"] * 50
    await running.start()


@pytest.mark.row("R50")
async def test_kafka_python_consumer_opens_one_fetch_session(
    running: LocalCluster, client: Client
) -> None:
    await fill(client, "python-session", 8)
    name = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
    before = metric(running, 1, name)

    def read() -> tuple[int, float]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=running.bootstrap)
        parts = [kafka.TopicPartition("python-session", number) for number in range(8)]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        count = 0
        while count < COUNT:
            count += sum(len(rows) for rows in consumer.poll(1000).values())
        consumer.poll(1000)
        held = metric(running, 1, name)
        consumer.close()
        return count, held

    count, held = await asyncio.to_thread(read)
    assert count == COUNT
    assert held == before + 1


@pytest.mark.row("R50", "R51")
@pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka-tools-3*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka's tools",
)
async def test_java_console_consumer_reads_every_record_from_the_follower_in_its_rack(
    running: LocalCluster, client: Client
) -> None:
    await fill(client, "java-session")
    printed = await console_consumer(running, "java-session", "b")
    values = sorted(int(line.strip("\0")) for line in printed if line.strip("\0").isdigit())
    assert values == list(range(COUNT))


async def console_consumer(cluster: LocalCluster, topic: str, rack: str) -> list[str]:
    before = sent_to_consumers(cluster)
    process = await asyncio.create_subprocess_exec(
        *("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"),
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic),
        *("--bootstrap-server", cluster.bootstrap, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(COUNT), "--consumer-property", f"client.rack={rack}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        printed, errors = await process.communicate()
    after = sent_to_consumers(cluster)
    assert after[2] > before[2], errors.decode()
    return printed.decode().splitlines()
