"""Unmodified consumers with a group id read, commit, share partitions and resume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaConnectionError
from support.clients.real_clients import stop_aiokafka
from support.clusters.running_cluster import create_topic, kill

from minikafka.tools.cluster import LocalCluster

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

RECORDS = 60
PARTITIONS = 3
SECONDS = 60.0
SESSION_MS = 30_000
"""Longer than a pause of this process on a busy machine: no test here waits for the end of a session."""


class GroupReader(Protocol):
    """A consumer of one client library. `read` joins the group, reads and commits `count` records, and leaves."""

    name: str

    def read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        """Return the values of the first `count` records that the group has not committed."""


class ConfluentGroup:
    """A `GroupReader` with confluent-kafka, the Python binding of librdkafka."""

    name = "confluent-kafka"

    def read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
            }
        )
        consumer.subscribe([topic])
        found: list[str] = []
        end = time.monotonic() + SECONDS
        try:
            while len(found) < count and time.monotonic() < end:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append(message.value().decode())
                    consumer.commit(message, asynchronous=False)
        finally:
            consumer.close()
        return found


class KafkaPythonGroup:
    """A `GroupReader` with kafka-python. Each poll waits for a record until the time limit, for the following reason.

    kafka-python 3.0.12 first joins without metadata of the topic. When it has the metadata, it sends a second
    JoinGroup, and then SyncGroup. A member hangs if its poll ends, or if the coordinator dies, between the
    responses to these two requests. No later poll takes the assignment: the leader has already recorded the new
    metadata, so `ConsumerCoordinator.need_rejoin` returns False. The member reads nothing and sends no heartbeats.
    """

    name = "kafka-python"

    def read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            max_poll_records=1,
        )
        found: list[str] = []
        end = time.monotonic() + SECONDS
        try:
            while len(found) < count and (left := end - time.monotonic()) > 0:
                try:
                    polled = consumer.poll(left * 1000)
                except (
                    KafkaConnectionError
                ):  # raised if its request for metadata meets a dead broker
                    continue
                found += [
                    record.value.decode() for records in polled.values() for record in records
                ]
                consumer.commit()
        finally:
            consumer.close()
        return found


class AioKafkaGroup:
    """A `GroupReader` with aiokafka."""

    name = "aiokafka"

    def read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        return asyncio.run(self._read(bootstrap, topic, group, count))

    async def _read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            max_poll_records=1,
        )
        await consumer.start()
        found: list[str] = []
        try:
            async with asyncio.timeout(SECONDS):
                while len(found) < count:
                    record = await consumer.getone()
                    found.append(record.value.decode())
                    await consumer.commit()
        finally:
            await stop_aiokafka(consumer)
        return found


READERS: tuple[GroupReader, ...] = (ConfluentGroup(), KafkaPythonGroup(), AioKafkaGroup())


def fill(bootstrap: str, topic: str, values: Collection[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def described(bootstrap: str, group: str) -> Any:
    """Return librdkafka's description of a group, None if its coordinator cannot answer at the moment."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        return admin.describe_consumer_groups([group], request_timeout=10)[group].result()
    except KafkaException:
        return None


async def wait_for_members(cluster: LocalCluster, group: str, count: int) -> Any:
    """Wait until the group has this number of members and all partitions are assigned to them; describe the group."""
    while True:
        found = await asyncio.to_thread(described, cluster.bootstrap, group)
        if found is not None and len(found.members) == count and found.state.name == "STABLE":
            assigned = sum(len(member.assignment.topic_partitions) for member in found.members)
            if assigned == PARTITIONS:
                return found
        await asyncio.sleep(0.1)


@pytest.fixture(params=READERS, ids=lambda reader: reader.name)
def reader(request: pytest.FixtureRequest) -> GroupReader:
    found: GroupReader = request.param
    return found


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(call, *arguments)


async def test_group_resumes_at_its_committed_offsets(
    cluster: LocalCluster, reader: GroupReader
) -> None:
    topic = f"resume-{reader.name}"
    await create_topic(cluster, topic, PARTITIONS)
    values = [str(number) for number in range(RECORDS)]
    await in_thread(fill, cluster.bootstrap, topic, values)
    found: list[str] = []
    for _ in range(3):
        found += await in_thread(
            reader.read, cluster.bootstrap, topic, f"g-{reader.name}", RECORDS // 3
        )
    assert sorted(found, key=int) == values


async def test_members_of_one_group_share_the_partitions(
    cluster: LocalCluster, reader: GroupReader
) -> None:
    topic = f"share-{reader.name}"
    await create_topic(cluster, topic, PARTITIONS)
    values = [str(number) for number in range(RECORDS)]
    group = f"sharing-{reader.name}"
    reads = [
        asyncio.create_task(
            in_thread(reader.read, cluster.bootstrap, topic, group, RECORDS // PARTITIONS)
        )
        for _ in range(PARTITIONS)
    ]
    await wait_for_members(cluster, group, PARTITIONS)
    await in_thread(fill, cluster.bootstrap, topic, values)
    found = [value for values in await asyncio.gather(*reads) for value in values]
    assert set(found) == set(values)


async def test_group_continues_when_its_coordinator_is_killed(
    cluster: LocalCluster, reader: GroupReader
) -> None:
    topic, group = f"killed-{reader.name}", f"orphans-{reader.name}"
    await create_topic(cluster, topic, PARTITIONS)
    values = [str(number) for number in range(RECORDS)]
    await in_thread(fill, cluster.bootstrap, topic, values[: RECORDS // 2])
    first = await in_thread(reader.read, cluster.bootstrap, topic, group, RECORDS // 4)
    reading = asyncio.create_task(
        in_thread(reader.read, cluster.bootstrap, topic, group, RECORDS - len(first))
    )
    orphans = await wait_for_members(cluster, group, 1)
    await kill(cluster, orphans.coordinator.id)
    await in_thread(fill, cluster.bootstrap, topic, values[RECORDS // 2 :])
    found = first + await reading
    assert set(found) == set(values)
