"""librdkafka's consumer reads a topic whose old records a real broker removes by retention."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from support.clusters.running_cluster import eventually
from support.rows import proof

from minikafka.client import Client, NewTopic, Record
from minikafka.tools.cluster import LocalCluster

KEYS = {
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 200,
    "log.segment.bytes": 4_000,
    "log.segment.delete.delay.ms": 1_000,
}
FIRST = TopicPartition("t", 0)


def consumer(cluster: LocalCluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def log_of_the_broker(data: Path) -> str:
    return "".join(path.read_text() for path in data.rglob("broker-1*.log"))


async def produce(client: Client, count: int) -> None:
    for _ in range(count):
        await client.produce("t", [Record(value=b"v" * 900)], partition=0)


async def test_consumer_sees_the_earliest_offset_rise_by_retention(tmp_path: Path) -> None:
    proof.note(proof.Level.REAL)
    cluster = LocalCluster(1, data=tmp_path / "data", config=KEYS)
    await cluster.start()
    reader = consumer(cluster)
    try:
        async with Client(cluster.bootstrap) as client:
            await client.create_topics(NewTopic("t", 1, 1, {"retention.bytes": "8000"}))
            await produce(client, 20)

            async def has_moved() -> bool:
                low, high = reader.get_watermark_offsets(FIRST, timeout=30)
                return high == 20 and low >= 8

            await eventually(has_moved)
            low, _ = reader.get_watermark_offsets(FIRST, timeout=30)
            reader.assign([TopicPartition("t", 0, 2)])  # deleted offset: the position is reset
            message = reader.poll(30)
            assert message is not None
            assert message.error() is None
            assert message.offset() == low
            reader.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
            found = [reader.poll(30) for _ in range(low, 20)]
            assert [m.offset() for m in found if m is not None] == list(range(low, 20))

            directory = cluster.directory.broker_data(1) / "t-0"

            async def is_tidy() -> bool:
                logs = sorted(int(path.stem) for path in directory.glob("*.log"))
                return logs[0] == low and not list(directory.glob("*.deleted"))

            await eventually(is_tidy)
    finally:
        reader.close()
        await cluster.stop()
    assert "due to retention size 8000 breach" in log_of_the_broker(tmp_path)
