"""Whole brokers without a free file descriptor: their log directories stay online, and what failed is tried again."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from random import Random

import pytest
from support.forms import seeds
from support.until import until

from minikafka.base.coordination import MODES
from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.batch import build
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.descriptors import FewDescriptors, no_descriptor
from minikafka.simulation.loop import run_seeded

KEYS = {"log_segment_bytes": 200, "log_index_interval_bytes": 1, "min_insync_replicas": 2}


def few_of(cluster: MemoryCluster) -> list[FewDescriptors]:
    return [FewDescriptors(storage) for storage in cluster.storages.values()]


def offline(cluster: MemoryCluster) -> int:
    return sum(broker.logs.failed_directories for broker in cluster.brokers.values())


async def values(client: Client, topic: str) -> list[bytes]:
    return sorted([row.value async for row in client.consume(topic, until_end=True)])


def numbered(first: int, count: int = 1) -> list[Record]:
    return [Record(value=b"%04d" % number) for number in range(first, first + count)]


async def test_full_segments_take_acknowledged_records_until_descriptors_are_free() -> None:
    async with MemoryCluster(3, **KEYS) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 3))
        await client.produce("t", numbered(0))
        few = few_of(cluster)
        for one in few:
            one.fail_all("/data")
        for number in range(1, 20):
            await client.produce("t", numbered(number))
        assert all(one.failed for one in few)
        for one in few:
            one.heal()
        for number in range(20, 25):
            await client.produce("t", numbered(number))
        assert offline(cluster) == 0
        assert await values(client, "t") == [b"%04d" % number for number in range(25)]
        for number in tuple(cluster.brokers):
            broker = cluster.brokers[number]
            assert len(broker.logs.logs[TopicPartition("t", 0)].segments) > 1
        for number in tuple(cluster.brokers):
            await cluster.stop(number)
        for number in cluster.storages:
            await cluster.start(number)
        assert await values(client, "t") == [b"%04d" % number for number in range(25)]


async def test_first_records_of_a_partition_are_refused_until_descriptors_are_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MemoryCluster(3, **KEYS) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 3))
        few = few_of(cluster)
        with caplog.at_level(logging.ERROR):
            for one in few:
                one.fail_all("/data/t-0")
            produced = asyncio.ensure_future(client.produce("t", numbered(0)))
            await until(lambda: sum(one.failed for one in few) > 3)
        said = [row for row in caplog.records if "ulimit -n" in row.getMessage()]
        assert len(said) == 1
        for one in few:
            one.heal()
        try:
            await produced
        except KafkaError:
            await client.produce("t", numbered(0))
        assert set(await values(client, "t")) == {b"0000"}
        assert offline(cluster) == 0


async def test_missing_descriptor_fails_no_earlier_request_and_frees_descriptors() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: [0, 1]}))
        leader = cluster.brokers[0].replicas
        freed: list[bool] = []
        leader.on_shortage = lambda: freed.append(True)
        follower = few_of(cluster)[1]
        follower.fail_all("/data/t-0")
        produced = asyncio.ensure_future(client.produce("t", numbered(0)))
        partition = leader.partitions[TopicPartition("t", 0)]
        await until(lambda: partition.produce_waiting)
        leader.purgatory.storage_failed(partition, no_descriptor("/data/t-0/0.index"))
        leader.purgatory.finish_tick(cluster.clock.now())
        assert (freed, len(partition.produce_waiting), produced.done()) == ([True], 1, False)
        follower.heal()
        await produced


async def test_records_without_an_fsync_for_lack_of_a_descriptor_are_refused() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1, configs={"flush.messages": "1"}))
        await client.produce("t", numbered(0))
        few = few_of(cluster)[0]
        few.fail_all("/data/t-0")
        replicas = cluster.brokers[0].replicas
        batch = build([Record(value=b"0001")])
        with pytest.raises(KafkaError) as refused:
            await replicas.appends.append(TopicPartition("t", 0), batch)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        few.heal()
        await replicas.appends.append(TopicPartition("t", 0), batch)
        assert (offline(cluster), replicas.partitions[TopicPartition("t", 0)].offline) == (0, False)


async def test_follower_without_descriptors_joins_the_isr_once_it_has_some() -> None:
    keys = {**KEYS, "replica_fetch_backoff_ms": 50}
    async with MemoryCluster(3, **keys) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: [0, 1, 2]}))
        few = few_of(cluster)[2]
        few.fail_all("/data/t-0")
        await until(lambda: TopicPartition("t", 0) in cluster.brokers[2].replicas.partitions)
        produced = asyncio.ensure_future(client.produce("t", numbered(0, 3)))
        await until(lambda: few.failed > 1)
        few.heal()
        await produced
        log = cluster.brokers[2].logs.logs[TopicPartition("t", 0)]
        await until(lambda: log.written_log_end_offset == 3)
        assert offline(cluster) == 0


async def test_replica_is_created_once_a_descriptor_is_free() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        few = few_of(cluster)[0]
        few.fail_all("/data/t-")
        created = asyncio.ensure_future(client.create_topics(NewTopic("t", 1, 1)))
        await until(lambda: few.failed > 2)
        assert TopicPartition("t", 0) not in cluster.brokers[0].replicas.partitions
        few.heal()
        await created
        await until(lambda: TopicPartition("t", 0) in cluster.brokers[0].replicas.partitions)
        await client.produce("t", numbered(0))
        assert (await values(client, "t"), offline(cluster)) == ([b"0000"], 0)


@pytest.mark.parametrize("mode", MODES)
async def test_replica_is_created_with_its_settings_after_another_topic_was_deleted(
    mode: str,
) -> None:
    configs = {"max.message.bytes": "1234"}
    async with MemoryCluster(1, coordination=mode) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("other", 1, 1))
        few, replicas = few_of(cluster)[0], cluster.brokers[0].replicas
        few.fail_all("/data/t-")
        created = asyncio.ensure_future(client.create_topics(NewTopic("t", 1, 1, configs=configs)))
        await until(lambda: few.failed)
        await client.delete_topics("other")
        few.heal()
        await created
        await until(lambda: TopicPartition("t", 0) in replicas.partitions)
        assert replicas.configs.get("t").max_message_bytes == 1_234


async def test_replica_without_descriptors_is_forgotten_when_its_topic_is_deleted() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        few = few_of(cluster)[0]
        few.fail_all("/data/t-")
        created = asyncio.ensure_future(client.create_topics(NewTopic("t", 1, 1)))
        await until(lambda: few.failed)
        await created
        await client.delete_topics("t")
        replicas = cluster.brokers[0].replicas
        await until(lambda: not replicas.unhosted)
        few.heal()
        assert TopicPartition("t", 0) not in replicas.partitions


async def test_start_without_descriptors_says_how_to_raise_the_limit() -> None:
    cluster = MemoryCluster(1, log_dirs="/d,/e")
    FewDescriptors(cluster.storages[0]).fail_all("/d")
    with pytest.raises(ConfigError, match="ulimit -n"):
        await cluster.start(0)


STORM = {
    "log_segment_bytes": 2_000,
    "log_index_interval_bytes": 100,
    "log_initial_task_delay_ms": 0,
    "log_retention_check_interval_ms": 1_000,
    "log_cleaner_backoff_ms": 1_000,
    "log_flush_offset_checkpoint_interval_ms": 1_000,
    "min_insync_replicas": 2,
    "replica_fetch_backoff_ms": 50,
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
SHORT = {"retention.bytes": "3000", "file.delete.delay.ms": "1000"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", seeds(2, 4))
def test_nothing_goes_offline_and_no_record_is_lost_while_every_third_opening_fails(
    seed: int, mode: str
) -> None:
    async def produce(client: Client, acknowledged: dict[str, list[bytes]], count: int) -> None:
        for number in range(count):
            for topic in ("t", "compacted", "short"):
                record = Record(
                    key=b"%d" % (number % 7), value=b"%s-%04d" % (topic.encode(), number)
                )
                with suppress(KafkaError):
                    await client.produce(topic, [record])
                    assert record.value is not None
                    acknowledged[topic].append(record.value)

    async def scenario() -> None:
        rng = Random(seed)
        acknowledged: dict[str, list[bytes]] = {"t": [], "compacted": [], "short": []}
        async with (
            MemoryCluster(3, coordination=mode, **STORM) as cluster,
            cluster.client() as client,
        ):
            await client.create_topics(
                NewTopic("t", 1, 3),
                NewTopic("compacted", 1, 3, configs=COMPACTED),
                NewTopic("short", 1, 3, configs=SHORT),
            )
            few = few_of(cluster)
            for one in few:
                one.lacks = lambda path, at: rng.random() < 1 / 3
            await produce(client, acknowledged, 150)
            await client.delete_topics("short")
            await cluster.clock.sleep(20_000)
            assert all(one.failed > 20 for one in few)
            for one in few:
                one.heal()
            await cluster.clock.sleep(20_000)
            assert offline(cluster) == 0
            assert len(acknowledged["t"]) > 50
            assert set(acknowledged["t"]) <= set(await values(client, "t"))
            rows = [row async for row in client.consume("compacted", until_end=True)]
            last = {row.key: row.value for row in rows}
            assert acknowledged["compacted"][-1] in last.values()
            assert len(rows) < len(acknowledged["compacted"])
            for storage in cluster.storages.values():
                assert not [name for name in storage.names("/data") if name.startswith("short")]

    run_seeded(seed, scenario())
