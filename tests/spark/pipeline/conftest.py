"""Clients that fill the topics of pipelines and read them back."""

from __future__ import annotations

import pytest

from minikafka.client import Client
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster


@pytest.fixture
async def client(cluster: LocalCluster):
    async with Client(cluster.bootstrap) as running:
        yield running


@pytest.fixture
def contents(client: Client):
    """Return a function that reads all records of a topic, in order of partition and offset."""

    async def read(topic: str) -> list[Record]:
        [info] = await client.describe_topics(topic)
        found: list[Record] = []
        for partition in sorted(info.partitions):
            at = 0
            while (got := await client.fetch(topic, partition, at, max_wait_ms=10)).records:
                found += got.records
                at = got.next_offset
        return found

    return read
