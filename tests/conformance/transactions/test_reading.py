"""What read_committed consumers get from leaders and followers: the last stable offset and the aborted transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.clients.transactional_client import (
    READ_COMMITTED,
    CommittedReader,
    TransactionalProducer,
    committed_values,
)
from support.storage.aborted import check_indexes

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.wire.versions import FETCH, SERVED
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
A, B = TopicPartition("a", 0), TopicPartition("a", 1)
RACKS_SINCE = 11
TIMEOUT_MS = 900_000
Scenario = Callable[[MemoryCluster], Coroutine[Any, Any, None]]


def run(scenario: Scenario) -> None:
    async def scene() -> None:
        config = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
        async with MemoryCluster(3, **config) as cluster, cluster.client() as user:
            topic = NewTopic("a", 2, 3, {"segment.bytes": "300"})
            await user.admin.create_topics([topic])
            await scenario(cluster)

    run_seeded(1, scene())


class Fetcher(CommittedReader):
    """Sends single fetches of any version to any broker."""

    async def fetch(self, broker: int, version: int, offset: int = 0, wait_ms: int = 0) -> Any:
        """Return the partition's row in the response."""
        row = {"partition": self.tp.partition, "fetch_offset": offset}
        values = {
            "replica_id": -1,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": READ_COMMITTED,
            "topics": [
                {
                    "topic": self.tp.topic,
                    "topic_id": self.cluster.topic_id(self.tp.topic),
                    "partitions": [{**row, "partition_max_bytes": 1 << 20}],
                }
            ],
        }
        answer = await self.send(9092 + broker, FETCH, version, **values)
        return answer.responses[0].partitions[0]

    async def until(self, broker: int, condition: Callable[[Any], bool]) -> Any:
        """Return the row of the newest fetch version as soon as the condition is met."""
        while not condition(row := await self.fetch(broker, SERVED[FETCH][1])):
            await self.cluster.clock.sleep(10)
        return row


def aborted_in(row: Any) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]


def leader_of(cluster: MemoryCluster, tp: TopicPartition) -> int:
    return cluster.brokers[0].metadata.topics[tp.topic][tp.partition].leader


async def write_aborted(cluster: MemoryCluster) -> TransactionalProducer:
    """Abort a transaction at offset 0 of both partitions, and begin another one."""
    producer = TransactionalProducer(cluster, "tx")
    await producer.init(timeout_ms=TIMEOUT_MS)
    for tp in (A, B):
        await producer.produce(tp, b"aborted")
    await producer.end(commit=False)
    await producer.produce(A, b"open")
    return producer


def test_every_version_names_the_aborted_transactions_on_leader_and_followers() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = await write_aborted(cluster)
        reader, leader = Fetcher(cluster, A), leader_of(cluster, A)
        for broker in cluster.brokers:
            row = await reader.until(broker, lambda row: row.last_stable_offset == 2)
            assert aborted_in(row) == [(producer.producer_id, 0)]
        lowest, highest = SERVED[FETCH]
        for version in range(lowest, highest + 1):
            for broker in cluster.brokers if version >= RACKS_SINCE else [leader]:
                row = await reader.fetch(broker, version)
                assert (row.error_code, row.last_stable_offset) == (0, 2), version
                assert aborted_in(row) == [(producer.producer_id, 0)], version
        reader.close()
        producer.close()

    run(scenario)


def test_waiting_fetch_of_each_replica_is_answered_when_the_transaction_ends() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = await write_aborted(cluster)
        readers = {broker: Fetcher(cluster, A) for broker in cluster.brokers}
        for broker, reader in readers.items():
            await reader.until(broker, lambda row: row.high_watermark == 3)
        waiting = [
            asyncio.ensure_future(reader.fetch(broker, RACKS_SINCE, 2, wait_ms=15_000))
            for broker, reader in readers.items()
        ]
        begun = cluster.clock.now()
        await cluster.clock.sleep(1_000)
        assert not any(fetch.done() for fetch in waiting)
        await producer.end()
        rows = await asyncio.gather(*waiting)
        assert all(row.records and aborted_in(row) == [] for row in rows)
        assert cluster.clock.now() - begun < 10_000
        for reader in readers.values():
            reader.close()
        producer.close()

    run(scenario)


def test_stuck_transaction_holds_back_only_its_own_partitions() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        stuck = await write_aborted(cluster)
        other = TransactionalProducer(cluster, "other")
        await other.init()
        for tp in (A, B):
            await other.produce(tp, b"committed")
        await other.end()
        reader = CommittedReader(cluster, B)
        while await reader.end() < 4:
            await cluster.clock.sleep(10)
        reader.close()
        assert await committed_values(cluster, B) == [b"committed"]
        assert await committed_values(cluster, A) == []
        await stuck.end()
        reader = CommittedReader(cluster, A)
        while await reader.end() < 6:
            await cluster.clock.sleep(10)
        assert await reader.rest() == [b"open", b"committed"]
        reader.close()
        stuck.close()
        other.close()

    run(scenario)


def test_each_new_leader_knows_open_and_aborted_transactions() -> None:
    """The leader is killed and started again, so that each replica leads once while a transaction is open."""

    async def scenario(cluster: MemoryCluster) -> None:
        producer = await write_aborted(cluster)
        for _ in range(3):
            leader = leader_of(cluster, A)
            cluster.kill(leader)
            await cluster.clock.sleep(30_000)
            await cluster.start(leader)
            await cluster.until_all_are_known()
            await cluster.clock.sleep(30_000)
            reader = CommittedReader(cluster, A)
            assert await reader.end() == 2
            assert await reader.rest() == []
            reader.close()
        for broker in cluster.brokers.values():
            for tp in (A, B):
                check_indexes(broker.replicas.partitions[tp].log)
        producer.close()

    run(scenario)
