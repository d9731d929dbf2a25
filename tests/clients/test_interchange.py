"""Records written by each client are read unchanged by every other client, in every codec that both support."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from support.clients.real_clients import CLIENTS, Client, Writing
from support.clusters.running_cluster import create_topic, wait_for_records

from minikafka.client import Client as NativeClient
from minikafka.tools.cluster import LocalCluster

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

PARTITIONS = 2
STREAM_SECONDS = 0.3


@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
async def test_records_of_one_client_are_read_by_every_client(
    cluster: LocalCluster, writer: Client
) -> None:
    if not writer.codecs():
        pytest.skip("not installed")
    topics = {codec: f"from-{writer.name}-{codec}" for codec in writer.codecs()}
    await asyncio.gather(*(create_topic(cluster, t, PARTITIONS) for t in topics.values()))
    with ExitStack() as stopped_at_the_end:
        writers = [
            stopped_at_the_end.enter_context(Writing(writer, cluster.bootstrap, topic, codec))
            for codec, topic in topics.items()
        ]
        await wait_for_records(cluster, topics.values())
        await asyncio.sleep(STREAM_SECONDS)
        for writing in writers:
            await asyncio.to_thread(writing.finish)
    for codec, topic in topics.items():
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
