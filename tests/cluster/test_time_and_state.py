"""Snapshots, compaction, retention, expiry and a later clock on a real cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from support.clusters.running_cluster import eventually, heal

from minikafka.base import model
from minikafka.tools.cluster import ClusterError, LocalCluster

PAUSE_SECONDS = 0.002


def create(servers: str, topic: str, **config: str) -> None:
    """Create a topic with one partition and a replica on each broker, also while a controller is elected."""
    keys = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    while True:
        try:
            admin.create_topics([NewTopic(topic, 1, 3, config=keys)])[topic].result()
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                raise


def produce(servers: str, topic: str, records: Iterable[tuple[str, str]]) -> None:
    """Send records, and wait until each is acknowledged by all brokers."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for key, value in records:
        producer.produce(topic, value.encode(), key.encode(), partition=0)
    assert producer.flush(30) == 0


def read(servers: str, topic: str) -> list[tuple[int, str, str]]:
    """Return offset, key and value of all committed records of partition 0."""
    keys = {"bootstrap.servers": servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**keys, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        found.append((message.offset(), message.key().decode(), message.value().decode()))
    consumer.close()
    return found


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(servers: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=30)[0].offset
    finally:
        consumer.close()


def topic_id(servers: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id)


def transactional(servers: str, name: str, **config: Any) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, **config})
    producer.init_transactions(30)
    return producer


def begin(producer: Producer, topic: str) -> None:
    """Begin a transaction, and write a record in it."""
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", b"open", partition=0)
    assert producer.flush(30) == 0


@contextmanager
def writing(servers: str, topic: str) -> Iterator[list[int]]:
    """Send the records "0", "1", … during the block; yield the offsets that are acknowledged so far."""
    acknowledged, stop = list[int](), threading.Event()
    keys = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0}
    producer = Producer(keys)

    def send() -> None:
        number = 0
        while not stop.wait(PAUSE_SECONDS):
            text = str(number).encode()
            producer.produce(
                topic,
                text,
                text,
                partition=0,
                on_delivery=lambda error, message: error or acknowledged.append(message.offset()),
            )
            producer.poll(0)
            number += 1
        assert producer.flush(60) == 0

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


async def replicas(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    """Return what the brokers say about their replicas of a topic."""
    answers = (await cluster.state()).answers.values()
    return [row for answer in answers for row in answer["replicas"] if row["topic"] == topic]


async def broker_epochs(cluster: LocalCluster) -> dict[int, int]:
    """Return by broker the number of its registration, which changes with its session."""
    answers = (await cluster.state()).answers
    return {broker: answer["broker_epoch"] for broker, answer in answers.items()}


async def test_two_restores_bring_back_the_state_of_a_snapshot_under_load(
    cluster: LocalCluster,
) -> None:
    servers, name, other = cluster.bootstrap, "snapshot-load", "snapshot-open"
    for topic in (name, other):
        await asyncio.to_thread(create, servers, topic)
    await asyncio.to_thread(commit, servers, "snapshot-group", name, 7)
    producer = await asyncio.to_thread(transactional, servers, "snapshot-id")
    await asyncio.to_thread(begin, producer, other)
    with writing(servers, name) as acknowledged:

        async def has_some() -> bool:
            return len(acknowledged) > 100

        await eventually(has_some)
        before = list(acknowledged)
        await cluster.snapshot("loaded")
        known = await asyncio.to_thread(topic_id, servers, name)
    await asyncio.to_thread(commit, servers, "snapshot-group", name, 9)
    producer.commit_transaction(30)

    found = []
    for _ in range(2):
        await cluster.restore("loaded")
        first = await asyncio.to_thread(read, servers, name)
        await heal(cluster)

        async def are_equal() -> bool:
            rows = await replicas(cluster, name)
            return len({(row["log_start_offset"], row["log_end_offset"]) for row in rows}) == 1

        await eventually(are_equal)
        assert await asyncio.to_thread(read, servers, name) == first
        found.append(
            [
                await asyncio.to_thread(read, servers, name),
                await asyncio.to_thread(committed, servers, "snapshot-group", name),
                await asyncio.to_thread(topic_id, servers, name),
                await asyncio.to_thread(read, servers, other),
            ]
        )
    assert found[0] == found[1]
    records, *rest = found[0]
    assert rest == [7, known, []]
    assert [value for *_, value in records] == [str(number) for number in range(len(records))]
    assert {offset for offset, *_ in records} >= set(before)
    # The transaction that was open ends when its producer returns.
    await asyncio.to_thread(transactional, servers, "snapshot-id")
    await asyncio.to_thread(produce, servers, other, [("k", "after")])
    assert [key for _, key, _ in await asyncio.to_thread(read, servers, other)] == ["k"]
    cluster.remove_snapshot("loaded")


async def test_compaction_on_demand_leaves_the_latest_values_on_every_replica(
    cluster: LocalCluster,
) -> None:
    servers, topic = cluster.bootstrap, "compact-now"
    await asyncio.to_thread(
        create, servers, topic, cleanup_policy="compact", min_compaction_lag_ms="3600000"
    )
    sent = [(f"k{number % 3}", f"v{number}") for number in range(30)]
    await asyncio.to_thread(produce, servers, topic, sent)
    gone = await cluster.compact(topic)
    assert [value for *_, value in await asyncio.to_thread(read, servers, topic)] == sent_last(sent)
    assert (gone.records, sorted(gone.replicas)) == (27, [(0, 1), (0, 2), (0, 3)])
    assert {one.records for one in gone.replicas.values()} == {27}
    assert gone.bytes > 0
    assert (await cluster.compact(topic)).records == 0
    producer = await asyncio.to_thread(transactional, servers, "compact-id")
    await asyncio.to_thread(begin, producer, topic)
    with pytest.raises(ClusterError, match="an open transaction keeps the records from offset 30"):
        await cluster.compact(topic)
    producer.abort_transaction(30)


def sent_last(sent: list[tuple[str, str]]) -> list[str]:
    """Return the values that compaction keeps, in the order of their offsets."""
    return [value for _, value in sent[-3:]]


async def test_retention_on_demand_obeys_a_setting_that_was_altered_just_before(
    cluster: LocalCluster,
) -> None:
    servers, topic = cluster.bootstrap, "expire-now"
    await asyncio.to_thread(create, servers, topic)
    await asyncio.to_thread(produce, servers, topic, [("k", "v")] * 5)
    assert (await cluster.expire(topic)).records == 0
    admin = AdminClient({"bootstrap.servers": servers})
    await asyncio.to_thread(alter, admin, topic, "retention.ms", "1")
    gone = await cluster.expire(topic)
    assert (gone.records, {one.records for one in gone.replicas.values()}) == (5, {5})
    assert await asyncio.to_thread(read, servers, topic) == []


def alter(admin: AdminClient, topic: str, key: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result()


async def test_what_cannot_be_compacted_or_expired_is_named_at_once(cluster: LocalCluster) -> None:
    servers, topic = cluster.bootstrap, "compact-not"
    await asyncio.to_thread(create, servers, topic)
    with pytest.raises(ClusterError, match=r"cleanup\.policy=delete, without compact"):
        await cluster.compact(topic)
    with pytest.raises(ClusterError, match="there is no topic compact-nothing"):
        await cluster.expire("compact-nothing")
    leader = await cluster.leader_of(topic, 0)
    paused = next(broker for broker in (1, 2, 3) if broker != leader)
    await cluster.pause(paused)
    with pytest.raises(ClusterError, match=f"broker {paused} is paused"):
        await cluster.expire(topic)
    with pytest.raises(ClusterError, match=f"broker {paused} is paused: resume it first"):
        await cluster.advance_clock("1h")
    assert cluster.record.advanced_ms == 0
    await cluster.resume(paused)


async def test_offsets_of_a_group_without_members_expire_on_demand(cluster: LocalCluster) -> None:
    servers, topic = cluster.bootstrap, "expire-group"
    await asyncio.to_thread(create, servers, topic)
    await asyncio.to_thread(commit, servers, "expire-now", topic, 3)
    member = Consumer({"bootstrap.servers": servers, "group.id": "expire-lives"})
    member.subscribe([topic])

    async def has_joined() -> bool:
        return bool(await asyncio.to_thread(lambda: member.poll(0.1) or member.assignment()))

    await eventually(has_joined)
    gone = await cluster.expire_group("expire-now")
    assert gone.offsets == {model.TopicPartition(topic, 0): 3}
    with pytest.raises(ClusterError, match="there is no group expire-now"):
        await cluster.expire_group("expire-now")
    with pytest.raises(ClusterError, match="group expire-lives has members"):
        await cluster.expire_group("expire-lives")
    member.close()


async def test_later_clock_ends_retention_offsets_and_ids_but_no_session_or_timeout(
    cluster: LocalCluster,
) -> None:
    servers, topic = cluster.bootstrap, "later-clock"
    await cluster.snapshot("earlier")  # other tests need the clock of the machine
    await asyncio.to_thread(create, servers, topic)
    await asyncio.to_thread(produce, servers, topic, [("k", "v")] * 5)
    await asyncio.to_thread(commit, servers, "later-group", topic, 3)
    used = await asyncio.to_thread(transactional, servers, "later-used")
    await asyncio.to_thread(begin, used, topic)
    used.commit_transaction(30)
    opened = await asyncio.to_thread(transactional, servers, "later-open")
    await asyncio.to_thread(begin, opened, topic)
    registrations = await broker_epochs(cluster)
    await cluster.kill(3)
    found = await cluster.advance_clock(timedelta(days=8))
    tp = model.TopicPartition(topic, 0)
    assert found.retained[tp].records >= 5
    assert found.offsets["later-group"] == (tp,)
    assert "later-used" in found.transactional_ids
    assert "later-open" not in found.transactional_ids
    assert await broker_epochs(cluster) == {1: registrations[1], 2: registrations[2]}
    opened.commit_transaction(30)
    # A broker that starts later has the same clock.
    await heal(cluster)

    async def agree() -> bool:
        answers = (await cluster.state()).answers.values()
        offsets = [offset for one in answers for offset in one["clock_offsets_ms"].values()]
        return len(offsets) == 6 and max(map(abs, offsets)) < 60_000

    await eventually(agree)
    await cluster.restore("earlier")
    assert cluster.record.advanced_ms == 0
    cluster.remove_snapshot("earlier")
