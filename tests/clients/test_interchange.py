"""What one client wrote every other reads, byte for byte, in every codec that both have."""

from __future__ import annotations

import asyncio

import pytest
from support.real_clients import CLIENTS, Client, Writing
from support.running_cluster import create_topic, wait_for_records

from minikafka.client import Client as NativeClient
from minikafka.cluster import LocalCluster

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

PARTITIONS = 2
STREAM_SECONDS = 0.3


@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
async def test_what_a_client_wrote_every_client_reads(
    cluster: LocalCluster, writer: Client
) -> None:
    if not writer.codecs():
        pytest.skip("not installed")
    for codec in writer.codecs():
        topic = f"from-{writer.name}-{codec}"
        await create_topic(cluster, topic, PARTITIONS)
        with Writing(writer, cluster.bootstrap, topic, codec) as writing:
            await wait_for_records(cluster, [topic])
            await asyncio.sleep(STREAM_SECONDS)
            await asyncio.to_thread(writing.finish)
        expected = await read_natively(cluster, topic)
        assert any(expected.values())
        for reader in CLIENTS:
            if codec in reader.codecs():
                reading = await asyncio.to_thread(reader.read, cluster.bootstrap, topic, PARTITIONS)
                assert reading == expected, f"{codec} read by {reader.name}"


async def read_natively(cluster: LocalCluster, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    found: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(PARTITIONS)}
    async with NativeClient(cluster.bootstrap) as client:
        async for record in client.consume(topic, until_end=True):
            assert record.value is not None
            found[record.partition].append((record.offset, record.value))
    return found
