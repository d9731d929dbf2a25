"""Attacks on a broker: requests whose responses are never read, and connections that take its file descriptors."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from support.clusters.running_cluster import known_everywhere

from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.wire.codec import encode_request, request
from minikafka.kafka.wire.versions import DESCRIBE_CONFIGS, FETCH, METADATA
from minikafka.tools.cluster import LocalCluster

PARTITIONS = 600
BROKER = 1
CONNECTIONS = 30
GROWTH_MAX = 100 << 20


def metadata(number: int, topic: str) -> bytes:
    body = request(METADATA, 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    return encode_request(METADATA, 9, number, "attacker", body)


def configs(number: int, topic: str) -> bytes:
    resource = {"resource_type": 4, "resource_name": str(BROKER), "configuration_keys": None}
    body = request(DESCRIBE_CONFIGS, 4, resources=[resource])
    return encode_request(DESCRIBE_CONFIGS, 4, number, "attacker", body)


def fetch(number: int, topic: str) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}
    topics = [{"topic": topic, "partitions": [partition]}]
    body = request(
        FETCH, 4, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, topics=topics
    )
    return encode_request(FETCH, 4, number, "attacker", body)


ATTACKS = {"metadata": (metadata, 4_000), "configs": (configs, 4_000), "fetch": (fetch, 20)}


def memory(pid: int, name: str) -> int:
    """Return a memory size of the process in bytes: VmRSS (current) or VmHWM (peak)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def forget_largest(pid: int) -> None:
    """Reset the process's peak memory, VmHWM, to the current memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@asynccontextmanager
async def attack(address: str, data: bytes) -> AsyncIterator[None]:
    """Send the data on each of `CONNECTIONS` connections, and read no responses."""
    host, port = address.rsplit(":", 1)
    writers = []
    try:
        for _ in range(CONNECTIONS):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(data)
            writers.append(writer)
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize("kind", ATTACKS)
async def test_broker_serves_clients_in_bounded_memory_while_some_never_read_responses(
    cluster: LocalCluster, kind: str
) -> None:
    address = cluster.bootstrap.split(",")[BROKER - 1]
    process = cluster.process(BROKER)
    assert process is not None
    make, count = ATTACKS[kind]
    topic = f"attacked-by-{kind}"
    data = b"".join(make(number, topic) for number in range(count))
    async with Client(address) as client:
        on_one = {number: [BROKER] for number in range(PARTITIONS)}
        await client.create_topics(NewTopic(topic, assignment=on_one))
        try:
            await known_everywhere(cluster, topic)
            for _ in range(16):
                await client.produce(topic, [Record(value=bytes(900_000))], partition=0)
            before = memory(process.pid, "VmRSS")
            forget_largest(process.pid)
            async with attack(address, data):
                for _ in range(50):
                    record = Record(value=b"of another client")
                    await client.produce(topic, [record], partition=1)
                    await client.list_topics()
                assert memory(process.pid, "VmHWM") - before < GROWTH_MAX
        finally:
            await client.delete_topics(topic)


@contextmanager
def few_descriptors(pid: int) -> Iterator[None]:
    """Lower the limit of open files of a process to 80 above the number of its open files."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    limit = len(os.listdir(f"/proc/{pid}/fd")) + 80
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


async def test_broker_serves_clients_while_idle_connections_exhaust_its_file_descriptors(
    cluster: LocalCluster,
) -> None:
    address = cluster.bootstrap.split(",")[BROKER - 1]
    process = cluster.process(BROKER)
    assert process is not None
    async with Client(address) as client:
        await client.create_topics(NewTopic("flooded", assignment={0: [BROKER], 1: [BROKER]}))
        await known_everywhere(cluster, "flooded")
        await client.produce("flooded", [Record(value=b"before")], partition=0)
        with few_descriptors(process.pid), ExitStack() as flood:
            for _ in range(300):
                flood.enter_context(socket.create_connection(address.rsplit(":", 1)))
            for _ in range(20):
                await client.produce("flooded", [Record(value=b"during")], partition=1)
        async with Client(address) as other:
            found = [row.value async for row in other.consume("flooded", until_end=True)]
        assert found.count(b"before") == 1
        assert found.count(b"during") == 20
        await client.delete_topics("flooded")
    assert cluster.process(BROKER) == process
