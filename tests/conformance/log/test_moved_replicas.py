"""Replicas that are moved between the log directories of their brokers, by both modes of coordination."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = [pytest.mark.usefixtures("each_mode"), pytest.mark.row("R68")]

T0 = TopicPartition("t", 0)


async def produce(user: Client, *numbers: int) -> None:
    for number in numbers:
        await user.produce("t", [Record(value=b"%0100d" % number)], partition=0)


async def numbers(user: Client) -> list[int]:
    """Return the numbers of all records, in order."""
    found: list[int] = []
    end = (await user.list_offsets("t", "latest"))[0]
    while len(found) < end:
        found += [int(one.value or b"") for one in (await user.fetch("t", 0, len(found))).records]
    return found


async def until_moved(cluster: MemoryCluster, broker: int) -> None:
    """Wait until the broker serves its replica from /second."""
    async with asyncio.timeout(60):
        while cluster.brokers[broker].replicas.partitions[T0].log.directory != "/second/t-0":
            await cluster.clock.sleep(10)


def test_leader_and_follower_are_moved_and_keep_every_record_after_failovers() -> None:
    async def scene() -> None:
        keys = {"log_dirs": "/data,/second", "log_segment_bytes": 2000}
        async with MemoryCluster(2, **keys) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
            await produce(user, *range(60))
            for broker in (1, 0):
                got = await user.admin.alter_log_dirs(broker, {T0: "/second"})
                assert got[T0].code == ErrorCode.NONE
            await produce(user, *range(60, 90))
            for broker in (0, 1):
                await until_moved(cluster, broker)
            await produce(user, *range(90, 100))
            await cluster.until_all_are_in_sync()
            for broker, end in ((0, 101), (1, 102)):
                cluster.kill_with_session(broker)
                assert await numbers(user) == [*range(end - 1)]
                await produce(user, end - 1)
                await cluster.start(broker)
                await cluster.until_all_are_in_sync()
                assert await numbers(user) == [*range(end)]
                assert cluster.brokers[broker].logs.logs[T0].directory == "/second/t-0"

    run_seeded(1, scene())
