"""Members of two libraries in one group, each being the group's leader in turn, and members that come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import aiokafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from confluent_kafka import Consumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from support.clients.real_clients import stop_aiokafka
from support.clusters.running_cluster import create_topic, kill

from minikafka.base.model import TopicPartition
from minikafka.client import Client, Record
from minikafka.tools.cluster import LocalCluster

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

PARTITIONS = 6
SECONDS = 60
Owned = frozenset[TopicPartition]


class Member(Protocol):
    """A running group member, with its assigned partitions and the values that it has read."""

    values: list[bytes]

    def owned(self) -> Owned: ...


class Polled:
    """A consumer of a blocking library, polled in a thread."""

    def __init__(self, poll: Callable[[], Collection[bytes]], owned: Callable[[], Any]) -> None:
        self.values: list[bytes] = []
        self.is_over = False
        self._poll = poll
        self._owned = owned
        self._seen: Owned = frozenset()

    def owned(self) -> Owned:
        return self._seen

    def run(self) -> None:
        while not self.is_over:
            self.values += self._poll()
            self._seen = frozenset(TopicPartition(tp.topic, tp.partition) for tp in self._owned())


@asynccontextmanager
async def polled(member: Polled, close: Callable[[], None]) -> AsyncIterator[Polled]:
    running = asyncio.create_task(asyncio.to_thread(member.run))
    try:
        yield member
    finally:
        member.is_over = True
        await running
        await asyncio.to_thread(close)


@asynccontextmanager
async def confluent(bootstrap: str, topic: str, assignor: str) -> AsyncIterator[Member]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-group",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": assignor,
        }
    )
    consumer.subscribe([topic])

    def poll() -> list[bytes]:
        message = consumer.poll(0.05)
        return [message.value()] if message is not None and message.error() is None else []

    async with polled(Polled(poll, consumer.assignment), consumer.close) as member:
        yield member


KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


@asynccontextmanager
async def kafka_python(bootstrap: str, topic: str, assignor: str) -> AsyncIterator[Member]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=f"{topic}-group",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[KAFKA_PYTHON[assignor]],
    )
    # Without metadata of the topic, kafka-python joins twice, and hangs if a poll ends between the two answers.
    await asyncio.to_thread(consumer.partitions_for_topic, topic)

    def poll() -> list[bytes]:
        return [record.value for records in consumer.poll(50).values() for record in records]

    async with polled(Polled(poll, consumer.assignment), consumer.close) as member:
        yield member


AIOKAFKA = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}


class AioKafka:
    """A group member with aiokafka's consumer. A task runs `read`, which collects the values."""

    def __init__(self, consumer: Any) -> None:
        self.values: list[bytes] = []
        self.consumer = consumer

    @property
    def generation(self) -> int:
        found: int = self.consumer._coordinator.generation
        return found

    def owned(self) -> Owned:
        return frozenset(TopicPartition(*tp) for tp in self.consumer.assignment())

    async def read(self) -> None:
        async for record in self.consumer:
            self.values.append(record.value)


@asynccontextmanager
async def aio(bootstrap: str, topic: str, assignor: str, **more: Any) -> AsyncIterator[AioKafka]:
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-group",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=45_000,  # as the other libraries
        partition_assignment_strategy=(AIOKAFKA[assignor],),
        **more,
    )
    await consumer.start()
    member = AioKafka(consumer)
    reading = asyncio.ensure_future(member.read())
    try:
        yield member
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        await stop_aiokafka(consumer)


async def shared(*members: Member) -> None:
    """Wait until every partition is assigned to one of the members, in equal shares."""
    size = PARTITIONS // len(members)
    async with asyncio.timeout(SECONDS):
        while True:
            shares = [member.owned() for member in members]
            if len(frozenset().union(*shares)) == PARTITIONS and {*map(len, shares)} == {size}:
                return
            await asyncio.sleep(0.05)  # other libraries give no signal to wait for


async def write(bootstrap: str, topic: str, words: str) -> set[bytes]:
    values = [f"{words}-{number}".encode() for number in range(10 * PARTITIONS)]
    async with Client(bootstrap) as client:
        numbers = [number % PARTITIONS for number in range(len(values))]
        records = [Record(value=value) for value in values]
        await client.produce(topic, records, partition=numbers)
    return set(values)


async def read_by(values: set[bytes], *members: Member) -> list[bytes]:
    """Wait until each value was read by some member; return every read of these values, repeated reads included."""
    async with asyncio.timeout(SECONDS):
        while not values <= {v for member in members for v in member.values}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # other libraries give no signal to wait for
    return [value for member in members for value in member.values if value in values]


@pytest.mark.parametrize(
    ("one", "other", "assignor"),
    [
        (aio, confluent, "range"),
        (aio, confluent, "roundrobin"),
        (aio, kafka_python, "range"),
        (aio, kafka_python, "sticky"),
        (kafka_python, confluent, "cooperative-sticky"),
    ],
)
async def test_members_of_two_libraries_share_the_partitions_whichever_is_group_leader(
    cluster: LocalCluster, one: Any, other: Any, assignor: str
) -> None:
    topic = f"mixed-{one.__name__}-{other.__name__}-{assignor}"
    await create_topic(cluster, topic, PARTITIONS)
    bootstrap = cluster.bootstrap
    first = await write(bootstrap, topic, "first")
    async with AsyncExitStack() as others:
        async with one(bootstrap, topic, assignor) as ours:
            await shared(ours)
            theirs: Member = await others.enter_async_context(other(bootstrap, topic, assignor))
            await shared(ours, theirs)
            await read_by(first, ours, theirs)
            second = await write(bootstrap, topic, "second")
            assert sorted(await read_by(second, ours, theirs)) == sorted(second)
        await shared(theirs)
        async with one(bootstrap, topic, assignor) as ours:  # the group's leader is `theirs`
            await shared(ours, theirs)
            third = await write(bootstrap, topic, "third")
            assert sorted(await read_by(third, ours, theirs)) == sorted(third)


async def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    cluster: LocalCluster,
) -> None:
    topic = "mixed-static"
    await create_topic(cluster, topic, PARTITIONS)
    bootstrap = cluster.bootstrap
    async with aio(bootstrap, topic, "range", group_instance_id="one") as first:
        async with aio(bootstrap, topic, "range", group_instance_id="two") as second:
            await shared(first, second)
            kept, generation = second.owned(), second.generation
        async with aio(bootstrap, topic, "range", group_instance_id="two") as again:
            await shared(first, again)
            assert again.owned() == kept
            assert again.generation == first.generation == generation


async def test_members_keep_their_generation_and_lose_no_record_when_the_coordinator_dies(
    cluster: LocalCluster,
) -> None:
    topic = "mixed-failover"
    await create_topic(cluster, topic, PARTITIONS)
    bootstrap = cluster.bootstrap
    async with (
        Client(bootstrap) as client,
        aio(bootstrap, topic, "range") as one,
        aio(bootstrap, topic, "range") as two,
    ):
        await shared(one, two)
        generation = one.generation
        first = await write(bootstrap, topic, "first")
        await read_by(first, one, two)
        group = (await client.groups.describe([f"{topic}-group"]))[f"{topic}-group"]
        await kill(cluster, group.coordinator.id)
        second = await write(bootstrap, topic, "second")
        found = await read_by(second, one, two)
        assert sorted(found) == sorted(second)
        await one.consumer.commit()
        await two.consumer.commit()
        assert (one.generation, two.generation) == (generation, generation)
        offsets = await client.groups.offsets(f"{topic}-group")
        assert sum(at.offset for at in offsets.values()) == len(first) + len(second)
