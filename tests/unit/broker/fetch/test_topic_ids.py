"""Fetches that name topic ids (KIP-516, versions 13 to 17), and the leaders that responses name (KIP-951)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from support.clients.session_consumer import Key, SessionConsumer

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

NUMBERS = range(3)
ALL: dict[Key, int] = {("t", number): 0 for number in NUMBERS}
T0 = ("t", 0)
UNKNOWN = b"\x07" * 16
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def run(scenario: Callable[[MemoryCluster, Client], Awaitable[None]], brokers: int = 1) -> None:
    async def scene() -> None:
        async with MemoryCluster(brokers) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment=dict.fromkeys(NUMBERS, (0,))))
            await scenario(cluster, user)

    run_seeded(1, scene())


async def produce(user: Client, partition: int, value: bytes) -> None:
    await user.produce("t", [Record(value=value)], partition=partition)


def id_of(cluster: MemoryCluster, topic: str = "t") -> bytes:
    return cluster.brokers[0].metadata.topic_ids[topic]


async def consumer_of(
    cluster: MemoryCluster, broker: int = 0, version: int = 13, **ids: bytes
) -> SessionConsumer:
    """Return a consumer of the partitions of topic t. `ids`: ids of topics instead of the ids in the metadata."""
    known = {"t": id_of(cluster), **ids}
    port = 9092 + broker
    made = await SessionConsumer.connect(
        cluster.transport, cluster.clock, port, version=version, ids=known
    )
    made.assign(ALL)
    return made


async def delete(cluster: MemoryCluster, user: Client) -> None:
    await user.delete_topics("t")
    replicas = cluster.brokers[0].replicas
    while replicas.partitions or "t" in replicas.metadata.topics:
        await cluster.clock.sleep(50)


async def create(cluster: MemoryCluster, user: Client) -> None:
    wanted = [NewTopic("t", len(NUMBERS), 1)]
    while not (await user.admin.create_topics(wanted))["t"].ok:
        await cluster.clock.sleep(50)


def host_as(
    cluster: MemoryCluster, key: Key, topic_id: bytes | None, *, is_hosted: bool = True
) -> None:
    """Let the metadata name the topic by an id, and unless `is_hosted` is False, give the log this id too."""
    broker = cluster.brokers[0]
    if topic_id is not None:
        names = {**broker.metadata.snapshot.topic_names, topic_id: key[0]}
        object.__setattr__(broker.metadata.snapshot, "topic_names", names)
    if is_hosted:
        partition = broker.replicas.hosted.remove(TopicPartition(*key))
        assert partition is not None
        partition.log.topic_id = topic_id
        broker.replicas.hosted.add(partition)


@pytest.mark.row("R50")
@pytest.mark.parametrize("version", range(13, 18))
def test_consumer_reads_a_topic_by_its_id_in_a_session(version: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster, version=version)
        await produce(user, 2, b"a")
        assert await consumer.poll() == 0
        assert consumer.session_id > 0
        assert sorted(consumer.answered) == sorted(ALL)
        await produce(user, 1, b"b")
        assert await consumer.poll(max_wait_ms=1000) == 0
        assert consumer.answered == [("t", 1)]
        assert consumer.received == {("t", 2): [b"a"], ("t", 1): [b"b"]}
        consumer.positions.pop(("t", 1))
        assert await consumer.poll() == 0
        await produce(user, 1, b"forgotten")
        assert await consumer.poll() == 0
        assert consumer.answered == []

    run(scenario)


@pytest.mark.row("R50")
@pytest.mark.parametrize(("first", "second"), [(12, 13), (17, 12)])
def test_session_refuses_requests_that_name_topics_in_the_other_way(
    first: int, second: int
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster, version=first)
        assert await consumer.poll() == 0
        known = consumer.session_id, consumer.epoch
        consumer.version = second
        assert await consumer.poll() == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        consumer.version, (consumer.session_id, consumer.epoch) = first, known
        consumer.sent = dict(ALL)
        await produce(user, 0, b"later")
        assert await consumer.poll() == 0
        assert consumer.received == {T0: [b"later"]}, "the session continues"
        consumer.version, consumer.session_id, consumer.epoch = second, known[0], 0
        consumer.sent.clear()
        assert await consumer.poll() == 0
        assert consumer.session_id not in (0, known[0]), "an initial epoch replaces the session"

    run(scenario)


@pytest.mark.row("R50")
def test_unknown_topic_id_is_refused_until_the_broker_learns_of_the_topic() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster, later=UNKNOWN)
        consumer.assign({**ALL, ("later", 0): 0})
        for _ in range(3):
            assert await consumer.poll(max_wait_ms=60_000) == 0, "errors are answered at once"
            assert consumer.errors[T0] == 0
            assert consumer.errors["later", 0] == ErrorCode.UNKNOWN_TOPIC_ID
        await user.create_topics(NewTopic("later", 1, 1))
        host_as(cluster, ("later", 0), UNKNOWN)
        await consumer.poll()
        assert consumer.errors["later", 0] == 0

    run(scenario)


@pytest.mark.row("R50")
def test_session_never_reads_a_topic_that_was_created_again_with_the_same_name() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        old = id_of(cluster)
        await produce(user, 0, b"old")
        await consumer.poll()
        await delete(cluster, user)
        await consumer.poll()
        assert set(consumer.answered) == set(ALL)
        assert set(consumer.errors.values()) == {UNKNOWN_TOPIC}
        await create(cluster, user)
        await produce(user, 0, b"new")
        await produce(user, 0, b"newer")
        while id_of(cluster) == old:
            await cluster.clock.sleep(50)
        for _ in range(2):
            assert await consumer.poll(max_wait_ms=60_000) == 0, "errors are answered at once"
            assert set(consumer.errors.values()) == {ErrorCode.INCONSISTENT_TOPIC_ID}
        fresh = await consumer_of(cluster, t=old)
        for epoch in (0, -1):
            await fresh.poll(epoch=epoch)
            assert set(fresh.errors.values()) == {ErrorCode.UNKNOWN_TOPIC_ID}
            fresh.session_id = 0
        assert fresh.received == {}
        assert consumer.received == {T0: [b"old"]}
        fresh = await consumer_of(cluster)
        await fresh.poll()
        assert fresh.received == {T0: [b"new", b"newer"]}

    run(scenario)


@pytest.mark.row("R50")
def test_log_with_another_topic_id_is_refused_and_a_log_without_an_id_is_read() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        host_as(cluster, T0, UNKNOWN)
        host_as(cluster, T0, id_of(cluster), is_hosted=False)
        await consumer.poll(max_wait_ms=60_000)
        assert consumer.errors[T0] == ErrorCode.INCONSISTENT_TOPIC_ID
        assert consumer.errors["t", 1] == 0
        host_as(cluster, T0, None)
        await consumer.poll()
        assert consumer.errors[T0] == 0, "a log from before topic ids has none"

    run(scenario)


@pytest.mark.row("R50")
def test_fetch_by_id_of_200_partitions_returns_the_records_of_all_partitions() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("many", 200, 1))
        consumer = await consumer_of(cluster, many=id_of(cluster, "many"))
        consumer.assign({("many", number): 0 for number in range(200)})
        await consumer.poll()
        for number in range(200):
            await user.produce("many", [Record(value=b"%d" % number)], partition=number)
        assert await consumer.poll(max_wait_ms=60_000) == 0
        assert consumer.received == {("many", n): [b"%d" % n] for n in range(200)}

    run(scenario)


@pytest.mark.parametrize("version", [15, 16, 17])
def test_broker_that_does_not_lead_names_the_leader_from_version_16_on(version: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster, broker=1, version=version)
        await consumer.poll()
        assert set(consumer.errors.values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        epoch = cluster.brokers[0].replicas.partitions[TopicPartition(*T0)].leader_epoch
        found = consumer.leaders[T0].leader_id, consumer.leaders[T0].leader_epoch
        named = version >= 16
        assert found == ((0, epoch) if named else (-1, -1))
        assert consumer.nodes == ({0: ("127.0.0.1", 9092)} if named else {})

    run(scenario, brokers=2)


def test_leader_names_itself_when_it_refuses_an_old_leader_epoch() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster, version=16)
        partition = cluster.brokers[0].replicas.partitions[TopicPartition(*T0)]
        consumer.leader_epoch = partition.leader_epoch
        partition.leader_epoch += 1
        await consumer.poll()
        assert consumer.errors[T0] == ErrorCode.FENCED_LEADER_EPOCH
        leader = consumer.leaders[T0]
        assert (leader.leader_id, leader.leader_epoch) == (0, partition.leader_epoch)
        assert consumer.leaders["t", 1].leader_id == -1
        consumer.leader_epoch += 2
        consumer.sent.clear()
        await consumer.poll()
        assert consumer.errors[T0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert consumer.leaders[T0].leader_id == -1

    run(scenario)
