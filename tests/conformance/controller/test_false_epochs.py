"""Replicas with a well-formed but wrong leader-epoch-checkpoint have the leader's records when they join the ISR."""

from __future__ import annotations

import asyncio

import pytest
from support.until import until

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import LOG_DIR, MemoryCluster
from minikafka.storage.log.epochs import encode

T0 = TopicPartition("t", 0)
FILE = f"{LOG_DIR}/t-0/leader-epoch-checkpoint"
FALSE = [
    [(0, 0), (1_000, 3)],
    [(500, 0)],
    [(0, 0)],
    [(0, 0), (1, 1), (2, 2)],
    [(0, 3)],
    [],
]


async def produce(cluster: MemoryCluster, *values: bytes) -> None:
    async with cluster.client() as client:
        for value in values:
            await client.produce("t", [Record(timestamp=1, value=value)], partition=0)


def is_in_sync(cluster: MemoryCluster) -> bool:
    replicas = [broker.replicas.partitions.get(T0) for broker in cluster.brokers.values()]
    return any(p is not None and p.is_leader and len(p.isr) == 2 for p in replicas)


def content(cluster: MemoryCluster, broker: int) -> bytes:
    log = cluster.brokers[broker].replicas.partitions[T0].log
    return b"".join(segment.file.pread(segment.file.size(), 0) for segment in log.segments)


@pytest.mark.parametrize("has_gaps", [False, True], ids=["", "compacted before"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("entries", FALSE, ids=str)
async def test_follower_with_a_wrong_leader_epoch_checkpoint_rejoins_without_record_loss(
    entries: list[tuple[int, int]], is_clean: bool, has_gaps: bool
) -> None:
    async with asyncio.timeout(20), MemoryCluster(2) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await produce(cluster, b"a", b"b")
        await cluster.stop(0)  # broker 1 becomes the leader, in a new epoch
        await produce(cluster, b"c", b"d", b"e")
        await cluster.start(0)
        await until(lambda: is_in_sync(cluster))
        follower = 0
        await cluster.stop(follower)
        storage = cluster.storages[follower]
        storage.write_atomically(FILE, encode(entries))
        if not is_clean:
            storage.remove(f"{LOG_DIR}/.kafka_cleanshutdown")
        if has_gaps:
            storage.write_atomically(f"{LOG_DIR}/cleaner-offset-checkpoint", b"0\n1\nt 0 0\n")
        await cluster.start(follower)
        await until(lambda: is_in_sync(cluster))
        await produce(cluster, b"f")
        assert content(cluster, 0) == content(cluster, 1)
        assert cluster.brokers[0].replicas.partitions[T0].log.log_end_offset == 6
        assert cluster.crashes == []
