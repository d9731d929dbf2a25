"""Fetches of consumers on whole brokers in virtual time: sessions, limits and waits, reads from followers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.clients.session_consumer import Key, SessionConsumer

from minikafka.base.errors import ErrorCode
from minikafka.base.model import ClusterMetadata, TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.kafka.wire.codec import decode_response, request
from minikafka.kafka.wire.versions import LIST_OFFSETS
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NUMBERS = range(6)
ALL: dict[Key, int] = {("t", number): 0 for number in NUMBERS}


def run(
    scenario: Callable[[MemoryCluster, Client], Awaitable[None]],
    brokers: int = 1,
    seed: int = 1,
    **config: object,
) -> None:
    async def scene() -> None:
        async with MemoryCluster(brokers, **config) as cluster, cluster.client() as user:
            await user.create_topics(
                NewTopic("t", assignment=dict.fromkeys(NUMBERS, tuple(range(brokers))))
            )
            await scenario(cluster, user)

    run_seeded(seed, scene())


async def produce(user: Client, partition: int, value: bytes = b"x", topic: str = "t") -> None:
    await user.produce(topic, [Record(value=value)], partition=partition)


async def consumer_of(
    cluster: MemoryCluster, broker: int = 0, **options: object
) -> SessionConsumer:
    made = await SessionConsumer.connect(cluster.transport, cluster.clock, 9092 + broker, **options)
    made.assign(ALL)
    return made


async def end_offset(consumer: SessionConsumer, partition: int) -> int:
    """Ask for the end of a partition of topic t on the connection that the consumer fetches from."""
    row = {"partition_index": partition, "timestamp": -1}
    topics = [{"name": "t", "partitions": [row]}]
    body = request(LIST_OFFSETS, 1, replica_id=-1, topics=topics)
    data = await consumer.connection.request(LIST_OFFSETS, 1, body, 120_000)
    answer = decode_response(LIST_OFFSETS, 1, memoryview(data))
    return int(answer.topics[0].partitions[0].offset)


def sessions(cluster: MemoryCluster) -> int:
    return len(cluster.brokers[0].replicas.fetch_sessions.consumers)


@pytest.mark.row("R50")
@pytest.mark.parametrize("version", [7, 9, 11, 12])
def test_fetch_session_response_contains_only_changed_partitions(version: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster, version=version)
        await produce(user, 2, b"a")
        assert await consumer.poll() == 0
        assert consumer.session_id > 0
        assert sorted(consumer.answered) == sorted(ALL)
        assert await consumer.poll() == 0
        assert consumer.answered == []
        await produce(user, 4, b"b")
        assert await consumer.poll(max_wait_ms=1000) == 0
        assert consumer.answered == [("t", 4)]
        assert consumer.received == {("t", 2): [b"a"], ("t", 4): [b"b"]}

    run(scenario)


@pytest.mark.row("R50")
def test_consumer_below_version_7_or_without_an_initial_epoch_gets_no_session() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        old, final = await consumer_of(cluster, version=6), await consumer_of(cluster)
        await produce(user, 0)
        await old.poll()
        await final.poll(epoch=-1)
        assert (old.session_id, final.session_id, sessions(cluster)) == (0, 0, 0)
        assert len(old.answered) == len(final.answered) == len(ALL)

    run(scenario)


@pytest.mark.row("R50")
def test_wrong_fetch_session_id_or_epoch_is_refused_and_the_session_continues() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        known = consumer.session_id
        consumer.session_id = known + 1
        assert await consumer.poll() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        consumer.session_id, consumer.sent = known, dict(ALL)
        for epoch in (2, 7):
            consumer.session_id = known
            error = await consumer.poll(epoch=epoch)
            assert error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        consumer.session_id, consumer.epoch, consumer.sent = known, 1, dict(ALL)
        await produce(user, 3, b"kept")
        assert await consumer.poll() == 0
        assert consumer.received == {("t", 3): [b"kept"]}

    run(scenario)


@pytest.mark.row("R50")
def test_fetch_session_is_removed_at_once_when_the_consumer_closes_it() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        assert sessions(cluster) == 1
        await consumer.close_session()
        assert sessions(cluster) == 0
        partition = cluster.brokers[0].replicas.partitions[TopicPartition("t", 0)]
        assert partition.readers == {}

    run(scenario)


@pytest.mark.row("R50")
def test_fetch_session_ends_when_the_consumer_removes_its_last_partition() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        consumer.assign({})
        assert await consumer.poll(max_wait_ms=60_000) == 0
        assert (consumer.session_id, sessions(cluster)) == (0, 0)

    run(scenario)


@pytest.mark.row("R50")
def test_fetch_session_continues_when_the_consumer_reconnects() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        consumer.connection.close()
        other = await consumer_of(cluster)
        consumer.connection = other.connection
        await produce(user, 1, b"late")
        assert await consumer.poll() == 0
        assert consumer.received == {("t", 1): [b"late"]}

    run(scenario)


@pytest.mark.row("R50")
def test_waiting_fetch_is_refused_when_another_fetch_uses_its_session() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer, other = await consumer_of(cluster), await consumer_of(cluster)
        await consumer.poll()
        other.session_id, other.epoch, other.sent = consumer.session_id, 2, dict(ALL)
        waiting = asyncio.create_task(consumer.poll(max_wait_ms=30_000))
        await cluster.clock.sleep(100)
        assert not waiting.done()
        assert await other.poll() == 0
        assert await waiting == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    run(scenario)


@pytest.mark.key("max.incremental.fetch.session.cache.slots")
@pytest.mark.parametrize(("slots", "ids"), [(0, 0), (2, 2), (5, 3)])
def test_consumer_gets_records_without_a_session_when_no_session_slot_is_free(
    slots: int, ids: int
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5, b"z")
        consumers = [await consumer_of(cluster) for _ in range(3)]
        for consumer in consumers:
            await consumer.poll()
            await consumer.poll()
            assert consumer.received == {("t", 5): [b"z"]}
        assert sum(consumer.session_id > 0 for consumer in consumers) == ids

    run(scenario, max_incremental_fetch_session_cache_slots=slots)


@pytest.mark.row("R50")
def test_fetch_session_reports_a_deleted_topic_and_reads_the_recreated_topic() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await produce(user, 0, b"old")
        await consumer.poll()
        await user.delete_topics("t")
        while cluster.brokers[0].replicas.partitions:
            await cluster.clock.sleep(50)
        await consumer.poll()
        assert set(consumer.answered) == set(ALL)
        assert set(consumer.errors.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        wanted = [NewTopic("t", len(NUMBERS), 1)]
        while not (await user.admin.create_topics(wanted))["t"].ok:
            await cluster.clock.sleep(50)
        await produce(user, 2, b"new")
        while consumer.received.get(("t", 2)) != [b"new"]:
            await consumer.poll()
            await cluster.clock.sleep(10)
        assert set(consumer.errors.values()) <= {0, ErrorCode.OFFSET_OUT_OF_RANGE}

    run(scenario)


@pytest.mark.row("R50")
@pytest.mark.parametrize("seed", range(6))
def test_consumer_with_a_session_reads_the_same_records_as_without_a_session(seed: int) -> None:
    """Random produces, deletions, leader moves and limits: the session must not omit a partition with new records."""

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        rng = random.Random(seed)
        ids = cluster.brokers[0].metadata.topic_ids
        consumer = await consumer_of(cluster, version=(12, 17)[seed % 2], ids=ids)
        written: dict[Key, list[bytes]] = {}
        for step in range(150):
            for _ in range(rng.randrange(3)):
                number = rng.choice(NUMBERS)
                value = b"%d" % step + bytes(rng.randrange(200))
                await produce(user, number, value)
                written.setdefault(("t", number), []).append(value)
            if rng.random() < 0.05:
                number = rng.choice(NUMBERS)
                start = consumer.positions["t", number]  # the consumer has read these records
                await user.admin.delete_records({TopicPartition("t", number): start})
            if rng.random() < 0.1:
                number = rng.choice(NUMBERS)
                consumer.positions.pop(("t", number))
                await consumer.poll(epoch=consumer.epoch)
                consumer.positions["t", number] = len(consumer.received.get(("t", number), []))
            await consumer.poll(
                max_bytes=rng.choice((1, 100, 1000, 1 << 20)),
                partition_max_bytes=rng.choice((1, 300, 1 << 20)),
                max_wait_ms=rng.choice((0, 5)),
            )
            if rng.random() < 0.05:
                consumer.session_id += rng.randrange(2)
        while consumer.received != written:
            assert len(consumer.answered) <= len(ALL)
            await consumer.poll(max_wait_ms=10)
        for number in NUMBERS:
            partition = cluster.brokers[0].replicas.partitions[TopicPartition("t", number)]
            assert consumer.high_watermarks.get(("t", number), 0) == partition.high_watermark
            assert consumer.log_starts["t", number] == partition.log_start_offset

    run(scenario, seed=seed)


@pytest.mark.row("R50")
def test_records_that_the_consumer_discarded_are_sent_again() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        await produce(user, 0, b"twice")
        await consumer.poll()
        consumer.assign(ALL)
        assert await consumer.poll() == 0
        assert consumer.received == {("t", 0): [b"twice", b"twice"]}

    run(scenario)


@pytest.mark.row("R50")
def test_waiting_fetch_of_a_session_is_answered_by_the_next_record() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        for number in (3, 3, 4, 3, 4, 4):
            waiting = asyncio.create_task(consumer.poll(max_wait_ms=60_000))
            await cluster.clock.sleep(50)
            began = cluster.clock.now()
            await produce(user, number, b"x")
            await waiting
            assert cluster.clock.now() - began < 100
        assert consumer.received == {("t", 3): [b"x"] * 3, ("t", 4): [b"x"] * 3}

    run(scenario)


@pytest.mark.row("R50")
def test_fetch_session_of_200_partitions_returns_the_records_of_all_partitions() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("many", 200, 1))
        consumer = await consumer_of(cluster)
        consumer.assign({("many", number): 0 for number in range(200)})
        await consumer.poll()
        for number in range(200):
            await produce(user, number, b"%d" % number, topic="many")
        assert await consumer.poll(max_wait_ms=60_000) == 0
        assert consumer.received == {("many", n): [b"%d" % n] for n in range(200)}
        waiting = asyncio.create_task(consumer.poll(max_wait_ms=60_000, min_bytes=1000))
        for number in range(200):
            await produce(user, number, bytes(2), topic="many")
        await waiting
        while sum(map(len, consumer.received.values())) < 400:
            assert await consumer.poll(max_wait_ms=1_000) == 0
        assert {len(values) for values in consumer.received.values()} == {2}

    run(scenario)


# ---- limits and waits


def test_first_batch_is_sent_at_any_size_and_further_batches_only_if_they_fit() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for number in (0, 1, 2):
            await produce(user, number, bytes(1000))
        consumer = await consumer_of(cluster)
        await consumer.poll(max_bytes=1)
        assert {key: len(values) for key, values in consumer.received.items()} == {("t", 0): 1}
        await consumer.poll(max_bytes=1500)
        assert list(consumer.received) == [("t", 0), ("t", 1)]
        other = await consumer_of(cluster)
        await other.poll(partition_max_bytes=500)
        assert list(other.received) == [("t", 0)]

    run(scenario)


def test_partitions_take_turns_when_a_response_holds_one_batch() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for _ in range(3):
            for number in NUMBERS:
                await produce(user, number, bytes(500))
        consumer = await consumer_of(cluster)
        for served in range(1, 4):
            for _ in NUMBERS:
                await consumer.poll(max_bytes=1)
            counts = {len(values) for values in consumer.received.values()}
            assert (counts, len(consumer.received)) == ({served}, len(NUMBERS))

    run(scenario)


@pytest.mark.key("fetch.max.bytes")
def test_fetch_response_is_limited_by_fetch_max_bytes_of_the_broker() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for number in NUMBERS:
            await produce(user, number, bytes(900))
        consumer = await consumer_of(cluster)
        await consumer.poll(min_bytes=1 << 20, max_wait_ms=600_000)
        assert sum(map(len, consumer.received.values())) == 2

    run(scenario, fetch_max_bytes=2048)


@pytest.mark.row("R48")
def test_fetch_waits_for_min_bytes_or_max_wait() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        began = cluster.clock.now()
        assert await consumer.poll(max_wait_ms=2_000) == 0
        assert 2_000 <= cluster.clock.now() - began < 2_100
        waiting = asyncio.create_task(consumer.poll(max_wait_ms=60_000, min_bytes=1_000))
        await produce(user, 0, bytes(400))
        await cluster.clock.sleep(100)
        assert not waiting.done()
        await produce(user, 1, bytes(600))
        await waiting
        assert sorted(consumer.answered) == [("t", 0), ("t", 1)]

    run(scenario)


@pytest.mark.parametrize("version", [6, 12])
def test_waiting_fetch_is_answered_when_its_connection_sends_another_request(version: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster, version=version)
        await consumer.poll()
        await produce(user, 3, b"few")
        waiting = asyncio.create_task(consumer.poll(max_wait_ms=60_000, min_bytes=1_000))
        await cluster.clock.sleep(100)
        assert not waiting.done()
        began = cluster.clock.now()
        assert await end_offset(consumer, 3) == 1
        assert await waiting == 0
        assert cluster.clock.now() - began < 100
        assert consumer.received == {("t", 3): [b"few"]}
        waiting = asyncio.create_task(consumer.poll(max_wait_ms=60_000))
        await cluster.clock.sleep(100)
        await produce(user, 3, b"later")
        await waiting
        assert consumer.received == {("t", 3): [b"few", b"later"]}

    run(scenario)


def test_waiting_fetch_is_answered_when_its_session_is_closed() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await consumer_of(cluster)
        await consumer.poll()
        waiting = asyncio.create_task(consumer.poll(max_wait_ms=60_000))
        await cluster.clock.sleep(100)
        began = cluster.clock.now()
        await consumer.close_session()
        assert await waiting == 0
        assert cluster.clock.now() - began < 100
        assert sessions(cluster) == 0

    run(scenario)


# ---- reads from followers


async def three_racks(scenario: Callable[[MemoryCluster, Client], Awaitable[None]]) -> None:
    cluster = RackCluster(3, replica_selector_class=RACK_AWARE)
    async with cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1, 2)}))
        await scenario(cluster, user)


class RackCluster(MemoryCluster):
    """A cluster of three brokers in the racks a, b and c."""

    async def start(self, number: int) -> Any:
        self.config["broker.rack"] = "abc"[number]
        return await super().start(number)


T0 = ("t", 0)


async def reader(
    cluster: MemoryCluster, broker: int, rack: str, version: int = 12
) -> SessionConsumer:
    made = await consumer_of(cluster, broker, rack=rack, version=version)
    made.assign({T0: 0})
    return made


@pytest.mark.row("R51")
@pytest.mark.key("replica.selector.class", "broker.rack")
@pytest.mark.parametrize(
    ("rack", "preferred"), [("b", 1), ("c", 2), ("a", -1), ("x", -1), ("", -1)]
)
def test_leader_returns_the_follower_in_the_consumers_rack_as_preferred_replica(
    rack: str, preferred: int
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 0, b"one")
        consumer = await reader(cluster, 0, rack)
        await consumer.poll(max_wait_ms=60_000)
        assert consumer.preferred[T0] == preferred
        assert (consumer.received == {}) == (preferred >= 0)
        assert consumer.high_watermarks[T0] == 1

    run_seeded(1, three_racks(scenario))


def test_leader_sends_no_consumer_to_a_suspect() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 0, b"one")
        leader = cluster.brokers[0]
        leader.replicas.partitions[
            TopicPartition(*T0)
        ].min_isr = 3  # so the suspect stays in the ISR
        live = tuple(leader.metadata.brokers.values())
        leader.replicas.update_metadata(ClusterMetadata(0, (), live, (), (1,)), is_whole=False)
        consumer = await reader(cluster, 0, "b")
        await consumer.poll(max_wait_ms=60_000)
        assert consumer.preferred[T0] == -1
        assert consumer.received[T0]

    run_seeded(1, three_racks(scenario))


@pytest.mark.row("R51")
def test_leader_prefers_no_follower_for_an_old_consumer_or_without_a_selector() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        old = await reader(cluster, 0, "b", version=10)
        await old.poll()
        assert old.preferred[T0] == -1
        for broker in cluster.brokers.values():
            object.__setattr__(broker.config, "replica_selector_class", None)
        plain = await reader(cluster, 0, "b")
        await plain.poll()
        assert plain.preferred[T0] == -1

    run_seeded(2, three_racks(scenario))


@pytest.mark.row("R51")
def test_leader_prefers_no_follower_that_lacks_the_offset_or_left_the_isr() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 0, b"one")
        cluster.pause(1)
        asyncio.create_task(produce(user, 0, b"two"))  # noqa: RUF006
        await cluster.clock.sleep(100)
        consumer = await reader(cluster, 0, "b")
        consumer.assign({T0: 2})
        await consumer.poll()
        assert consumer.preferred[T0] == -1
        partition = cluster.brokers[0].replicas.partitions[TopicPartition("t", 0)]
        while 1 in partition.isr:
            await cluster.clock.sleep(1000)
        consumer.assign({T0: 0})
        await consumer.poll()
        assert consumer.preferred[T0] == -1
        assert consumer.received == {T0: [b"one", b"two"]}
        cluster.resume(1)

    run_seeded(3, three_racks(scenario))


@pytest.mark.row("R51")
def test_follower_serves_consumers_up_to_its_high_watermark() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for value in (b"one", b"two"):
            await produce(user, 0, value)
        consumer = await reader(cluster, 1, "b")
        while consumer.received.get(T0) != [b"one", b"two"]:
            assert await consumer.poll(max_wait_ms=1000) == 0
            assert consumer.errors.get(T0, 0) == 0
        replica = cluster.brokers[1].replicas.partitions[TopicPartition("t", 0)]
        assert consumer.high_watermarks[T0] == replica.high_watermark == 2

    run_seeded(4, three_racks(scenario))


@pytest.mark.row("R51")
@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, 0), (12, 0)]
)
def test_follower_refuses_consumer_fetch_versions_without_a_rack(version: int, code: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        consumer = await reader(cluster, 1, "", version=version)
        await consumer.poll()
        assert consumer.errors[T0] == code

    run_seeded(5, three_racks(scenario))


@pytest.mark.row("R51")
def test_follower_returns_out_of_range_only_beyond_its_log_end() -> None:
    """Between its high watermark and its log end, the follower returns no records and no error, as in Kafka."""

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 0, b"one")
        cluster.pause(2)
        asyncio.create_task(produce(user, 0, b"two"))  # noqa: RUF006
        replica = cluster.brokers[1].replicas.partitions[TopicPartition("t", 0)]
        while replica.log.log_end_offset < 2:
            await cluster.clock.sleep(10)
        assert replica.high_watermark < 2
        consumer = await reader(cluster, 1, "b")
        for offset, code in ((2, 0), (3, ErrorCode.OFFSET_OUT_OF_RANGE)):
            consumer.assign({T0: offset})
            await consumer.poll()
            assert (consumer.errors[T0], consumer.received) == (code, {})
        cluster.resume(2)

    run_seeded(6, three_racks(scenario))


@pytest.mark.row("R51", "R33")
def test_preferred_follower_learns_a_new_high_watermark_at_once() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 0, b"one")
        asked = await reader(cluster, 0, "b")
        await asked.poll()
        assert asked.preferred[T0] == 1
        consumer = await reader(cluster, 1, "b")
        await consumer.poll(max_wait_ms=1000)
        began = cluster.clock.now()
        for number in range(20):
            value = b"%d" % number
            await produce(user, 0, value)
            while value not in consumer.received.get(T0, ()):
                await consumer.poll(max_wait_ms=1000)
        assert cluster.clock.now() - began < 500  # one wait of a follower's fetch would take longer

    run_seeded(7, three_racks(scenario))
