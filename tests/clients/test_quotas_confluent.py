"""librdkafka's producer and consumer against a real broker that has quotas for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from support.rows import proof

from minikafka.client import Client, NewTopic
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import ALTER_CLIENT_QUOTAS
from minikafka.tools.cluster import LocalCluster

RATE = 20_000
WINDOW = {"quota.window.num": 2, "quota.window.size.seconds": 1}
VALUE = b"v" * 10_000


async def set_quota(cluster: LocalCluster, key: str, client_id: str) -> None:
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    ops = [{"key": key, "value": RATE, "remove": False}]
    body = request(
        ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": ops}], validate_only=False
    )
    writer.write(encode_request(ALTER_CLIENT_QUOTAS, 1, 7, "admin", body))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    writer.close()
    [entry] = decode_response(ALTER_CLIENT_QUOTAS, 1, frame).entries
    assert entry.error_code == 0


def produce(cluster: LocalCluster, client_id: str, told: Callable[[Any], None]) -> None:
    """Produce twelve records, each in a request of its own."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "throttle_cb": told,
        }
    )
    for _ in range(12):
        producer.produce("t", VALUE, partition=0)
    assert producer.flush(60) == 0


def consume(cluster: LocalCluster, client_id: str, told: Callable[[Any], None]) -> None:
    """Consume all records, in small fetches."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "group.id": "g",
            "fetch.message.max.bytes": len(VALUE) + 500,
            "throttle_cb": told,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        for offset in range(12):  # each poll may return a record, and calls `told`
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            assert message.offset() == offset
    finally:
        consumer.close()


@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate"])
async def test_client_with_a_quota_is_slowed_down_and_told_about_it(
    key: str, tmp_path: Path
) -> None:
    proof.note(proof.Level.REAL)
    cluster = LocalCluster(1, data=tmp_path / "data", config=WINDOW)
    await cluster.start()
    try:
        async with Client(cluster.bootstrap) as client:
            await client.create_topics(NewTopic("t", 1, 1))
        await set_quota(cluster, key, "slow")
        work = produce if key == "producer_byte_rate" else consume
        if work is consume:
            await asyncio.to_thread(produce, cluster, "other", lambda event: None)
        events: list[Any] = []
        began = time.monotonic()
        await asyncio.to_thread(work, cluster, "slow", events.append)
        assert time.monotonic() - began > 2  # 120 kB at 20 kB/s, after a burst of at most 40 kB
        assert max(event.throttle_time for event in events) > 0.1
        others: list[Any] = []
        await asyncio.to_thread(work, cluster, "other", others.append)
        assert others == []
    finally:
        await cluster.stop()
