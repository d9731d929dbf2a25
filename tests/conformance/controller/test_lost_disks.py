"""A broker that comes back with an empty disk waits until no partition counts on its records."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.until import until

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.nodes import layout

T0 = TopicPartition("t", 0)
LONG = 120


def records(count: int) -> list[Record]:
    return [Record(value=b"%d" % number) for number in range(count)]


def log_end(cluster: MemoryCluster, number: int) -> int:
    return cluster.brokers[number].replicas.partitions[T0].log.log_end_offset


async def refuses_to_start(cluster: MemoryCluster, number: int) -> asyncio.Task[object]:
    """Start a broker, which must not register, and return the task of its start."""
    start = asyncio.ensure_future(cluster.start(number))
    await asyncio.sleep(LONG)
    assert not start.done()
    assert layout.broker_path(number) not in cluster.ensemble.nodes
    return start


def test_broker_with_an_empty_disk_does_not_lead_after_the_death_of_all() -> None:
    async def scene() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (0, 1, 2)}))
            await user.produce("t", records(100), partition=0)
            await cluster.until_all_are_in_sync()
            for number in range(3):
                cluster.kill_with_session(number)
            cluster.storages[0] = MemoryStorage()
            start = await refuses_to_start(cluster, 0)
            await cluster.start(1)
            async with asyncio.timeout(LONG):
                await start
                await until(lambda: T0 in cluster.brokers[0].replicas.partitions)
                await until(lambda: log_end(cluster, 0) == 100)
            await cluster.start(2)

    run_seeded(1, scene())


def test_broker_that_lost_the_newest_records_waits_for_an_unclean_election(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
            await user.produce("t", records(60), partition=0)
            await cluster.until_all_are_in_sync()
            cluster.kill_with_session(1)
            await user.produce("t", records(40), partition=0)
            cluster.kill_with_session(0)
            await cluster.start(1)
            cluster.storages[0] = MemoryStorage()
            with caplog.at_level(logging.WARNING):
                start = await refuses_to_start(cluster, 0)
            assert "broker 0 has empty log directories, but is in the ISR of t-0" in caplog.text
            elected = await user.admin.elect_leaders([T0], unclean=True)
            assert elected[T0].ok
            async with asyncio.timeout(LONG):
                await start
                await until(lambda: T0 in cluster.brokers[0].replicas.partitions)
                await until(lambda: log_end(cluster, 0) == log_end(cluster, 1) == 60)

    run_seeded(1, scene())


def test_second_broker_with_the_id_of_a_living_one_is_refused_with_an_empty_disk() -> None:
    async def scene() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
            mine = cluster.storages[0], cluster.brokers[0], cluster.processes[0]
            cluster.storages[0] = MemoryStorage()
            with pytest.raises(ConfigError, match=r"broker.id = 0 is used by another broker, "):
                await cluster.start(0)
            cluster.storages[0], cluster.brokers[0], cluster.processes[0] = mine

    run_seeded(1, scene())


def test_partition_without_other_replicas_does_not_delay_a_broker_with_an_empty_disk() -> None:
    async def scene() -> None:
        async with MemoryCluster(2) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (0,)}))
            await user.produce("t", records(10), partition=0)
            cluster.kill_with_session(0)
            cluster.storages[0] = MemoryStorage()
            async with asyncio.timeout(10):
                await cluster.start(0)

    run_seeded(1, scene())
