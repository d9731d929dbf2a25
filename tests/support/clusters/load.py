"""A stream of records during a fault, and the check that no acknowledged record is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.clients.real_clients import ConfluentKafka, Writing
from support.clusters.running_cluster import create_topic, heal, wait_for_records

from minikafka.checks.delivery import verdict
from minikafka.tools.cluster import LocalCluster

PARTITIONS = 3
STREAM_SECONDS = 0.3
_CLIENT = ConfluentKafka(in_flight=1)


@asynccontextmanager
async def load(cluster: LocalCluster, topic: str) -> AsyncIterator[None]:
    """Write to a new topic during the block, which injects a fault; then heal the cluster and check all records."""
    await create_topic(cluster, topic, PARTITIONS)
    with Writing(_CLIENT, cluster.bootstrap, topic, "none") as writing:
        await wait_for_records(cluster, [topic])
        await asyncio.sleep(STREAM_SECONDS)
        yield
        await asyncio.sleep(STREAM_SECONDS)
        await heal(cluster)
        history = await asyncio.to_thread(writing.finish)
    reading = await asyncio.to_thread(_CLIENT.read, cluster.bootstrap, topic, PARTITIONS)
    result = verdict([history], reading)
    assert result.ok, result
    assert result.acked == result.sent, "some records were never acknowledged"
