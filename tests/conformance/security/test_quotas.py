"""Quotas on whole brokers: what clients that exceed one are told, and that their next request waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.security.secured import User as SecuredUser

from minikafka.base.errors import ConfigError, ErrorCode
from minikafka.base.metrics import prometheus_text
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.client.administration.admin import Resource, ResourceType
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")

CONFIG = {"offsets_topic_num_partitions": 1, "offsets_topic_replication_factor": 1}
BATCH = build([Record(timestamp=1_700_000_000_000, value=b"v" * 20_000)])


async def until(condition: Callable[[], object]) -> None:
    """Let virtual time pass until the condition is true."""
    async with asyncio.timeout(600):
        while not condition():  # noqa: ASYNC110  what is watched has no event
            await asyncio.sleep(0.005)


class User(SecuredUser):
    """One connection of a user, whose responses may take long in virtual time."""

    async def ask(self, api: int, version: int, **values: Any) -> Any:
        received = len(self.peer.frames())
        body = request(api, version, **values)
        self.peer.link.send([encode_request(api, version, 7, self.name, body)])
        await until(lambda: self.peer.is_closed or len(self.peer.frames()) > received)
        assert not self.peer.is_closed
        return decode_response(api, version, self.peer.frames()[received])


Scene = Callable[[MemoryCluster], Awaitable[None]]


def play(scene: Scene, brokers: int = 1, **config: object) -> None:
    """Run a scene in virtual time on a cluster with the topic `t`."""

    async def run() -> None:
        async with MemoryCluster(brokers, **CONFIG | config) as cluster:
            async with cluster.client() as client:
                await client.create_topics(NewTopic("t", 2, 1))
            await until_led(cluster)
            await scene(cluster)

    run_seeded(1, run())


async def until_led(cluster: MemoryCluster, topic: str = "t") -> None:
    """Wait until the leader of the topic serves clients."""
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    code = -1
    while code:
        user = await User(cluster, "admin", _leader(cluster, topic)).connect()
        answer = await user.ask(LIST_OFFSETS, 1, replica_id=-1, topics=asked)
        code = answer.topics[0].partitions[0].error_code
        user.peer.link.abort()


async def set_quota(
    cluster: MemoryCluster,
    value: float | None,
    key: str = "producer_byte_rate",
    **entity: str | None,
) -> None:
    """Set or remove a quota through one broker, and wait until all brokers know it."""
    admin = await User(cluster, "admin").connect()
    parts = [
        {"entity_type": kind.replace("_", "-"), "entity_name": name}
        for kind, name in entity.items()
    ]
    ops = [{"key": key, "value": value or 0, "remove": value is None}]
    before = {number: broker.quotas.version for number, broker in cluster.brokers.items()}
    entries = [{"entity": parts, "ops": ops}]
    got = await admin.ask(ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    assert [entry.error_code for entry in got.entries] == [ErrorCode.NONE]
    await until(
        lambda: all(
            broker.quotas.version > before[number] for number, broker in cluster.brokers.items()
        )
    )
    admin.peer.link.abort()


def now() -> float:
    return asyncio.get_running_loop().time()


async def produce(user: User, version: int = 9, acks: int = 1, parts: int = 1) -> tuple[int, int]:
    """Produce one batch per partition; return the error code and the throttle time."""
    rows = [{"index": number, "records": BATCH} for number in range(parts)]
    topics = [{"name": "t", "partition_data": rows}]
    values = {"transactional_id": None, "acks": acks, "timeout_ms": 5_000, "topic_data": topics}
    answer = await user.ask(PRODUCE, version, **values)
    return answer.responses[0].partition_responses[0].error_code, answer.throttle_time_ms


async def fetch(user: User, offset: int = 0, version: int = 11, max_wait_ms: int = 0) -> Any:
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "t", "partitions": [row]}]
    limits = {"replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 1 << 20}
    session = {"session_id": 0, "session_epoch": -1}
    return await user.ask(FETCH, version, topics=topics, **limits, **session)


async def waited(user: User) -> float:
    """Return the seconds until a small request on the connection is answered."""
    began = now()
    await user.ask(API_VERSIONS, 0)
    return now() - began


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("acks", [1, -1])
def test_producer_above_its_quota_is_told_the_time_and_waits_for_it(
    version: int, parts: int, acks: int
) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, user="alice")
        alice = await User(cluster, "alice").connect()
        code, throttle_ms = await produce(alice, version, acks, parts)
        assert code == 0
        over = len(BATCH) * parts - 10_000  # bytes above those of 10 s: a millisecond for each
        assert over < throttle_ms < over + 200
        assert await waited(alice) == pytest.approx(throttle_ms / 1000, abs=0.1)

    play(scene)


def test_producer_within_its_quota_is_not_told_to_wait() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000_000, user="alice")
        alice = await User(cluster, "alice").connect()
        assert await produce(alice) == (0, 0)
        assert await waited(alice) < 0.1

    play(scene)


def test_average_rate_of_a_producer_comes_down_to_its_quota() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 10_000, user="alice")
        alice = await User(cluster, "alice").connect()
        began = now()
        for _ in range(30):
            assert (await produce(alice))[0] == 0
        await alice.ask(API_VERSIONS, 0)
        rate = 30 * len(BATCH) / (now() - began)
        assert 8_000 < rate < 13_000

    play(scene)


def test_producer_without_acks_waits_too() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, client_id="alice")
        alice = await User(cluster, "alice").connect()
        rows = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]
        values = {"transactional_id": None, "acks": 0, "timeout_ms": 5_000, "topic_data": rows}
        asked = asyncio.ensure_future(alice.ask(PRODUCE, 9, **values))
        partition = cluster.brokers[0].replicas.partitions[TopicPartition("t", 0)]
        await until(lambda: partition.log.log_end_offset == 1)
        asked.cancel()
        assert await waited(alice) > 5

    play(scene)


def test_requests_behind_the_one_that_exceeds_the_quota_wait_in_the_buffer() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, user="alice")
        alice = await User(cluster, "alice").connect()
        rows = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]
        body = request(PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=5_000, topic_data=rows)
        alice.peer.link.send([encode_request(PRODUCE, 9, 7, "alice", body)] * 2)
        log = cluster.brokers[0].replicas.partitions[TopicPartition("t", 0)].log
        await until(lambda: log.log_end_offset)
        await asyncio.sleep(5)
        assert log.log_end_offset == 1
        await until(lambda: len(alice.peer.frames()) == 2)
        assert log.log_end_offset == 2

    play(scene)


def test_throttle_time_of_a_fetch_does_not_end_that_of_a_later_produce_request() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, user="alice")
        await set_quota(cluster, 5, "consumer_byte_rate", user="alice")
        alice = await User(cluster, "alice").connect()
        began = now()
        fetching = asyncio.ensure_future(fetch(alice, max_wait_ms=2_000))
        await asyncio.sleep(1)
        rows = [{"index": 1, "records": BATCH}]
        values = {"transactional_id": None, "acks": 1, "timeout_ms": 5_000}
        topics = [{"name": "t", "partition_data": rows}]
        body = request(PRODUCE, 9, topic_data=topics, **values)
        alice.peer.link.send([encode_request(PRODUCE, 9, 8, "alice", body)])
        assert 0 < (await fetching).throttle_time_ms < 6_000
        assert now() - began < 3
        await until(lambda: len(alice.peer.frames()) == 2)
        await waited(alice)
        assert now() - began > 1 + 10

    play(scene)


def test_other_users_do_not_wait() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, user="alice")
        alice, bob = [await User(cluster, name).connect() for name in ("alice", "bob")]
        assert (await produce(alice))[1] > 0
        assert await produce(bob) == (0, 0)
        assert await waited(bob) < 0.1

    play(scene)


def test_connections_of_one_user_share_the_quota() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 3_000, user=None)
        first, second = [await User(cluster, "alice").connect() for _ in range(2)]
        assert (await produce(first))[1] == 0
        assert (await produce(second))[1] > 0

    play(scene)


def test_quota_applies_to_open_connections_and_ends_with_its_removal() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        alice = await User(cluster, "alice").connect()
        assert await produce(alice) == (0, 0)
        assert alice.connection.metering is None
        await set_quota(cluster, 1_000, user="alice")
        assert (await produce(alice))[1] > 0
        await set_quota(cluster, None, user="alice")
        assert alice.connection.metering is None
        await alice.ask(API_VERSIONS, 0)
        assert await produce(alice) == (0, 0)

    play(scene)


def test_changed_quota_applies_to_the_next_request() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000_000, user="alice")
        alice = await User(cluster, "alice").connect()
        assert await produce(alice) == (0, 0)
        await set_quota(cluster, 1_000, user="alice")
        assert (await produce(alice))[1] > 0

    play(scene)


@pytest.mark.parametrize("value", [1_000_000, None], ids=["raised", "removed"])
def test_client_waits_as_it_was_told_although_its_quota_changes(value: float | None) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, user="alice")
        alice = await User(cluster, "alice").connect()
        _, throttle_ms = await produce(alice)
        told_at = now()
        await set_quota(cluster, value, user="alice")
        await waited(alice)
        assert now() - told_at == pytest.approx(throttle_ms / 1000, abs=0.1)
        assert await produce(alice) == (0, 0)

    play(scene)


def test_quota_is_known_to_brokers_that_start_later_and_is_described() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, user="alice", client_id=None)
        await cluster.stop(1)
        await cluster.start(1)
        alice = await User(cluster, "alice", broker=1).connect()
        got = await alice.ask(DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
        [entry] = got.entries
        assert {(part.entity_type, part.entity_name) for part in entry.entity} == {
            ("user", "alice"),
            ("client-id", None),
        }
        assert [(value.key, value.value) for value in entry.values] == [
            ("producer_byte_rate", 1_000.0)
        ]

    play(scene, brokers=2)


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_consumer_above_its_quota_gets_no_records_until_the_time_is_over(version: int) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        first = await User(cluster, "bob").connect()
        for _ in range(3):
            await produce(first)
        await set_quota(cluster, 1_000, "consumer_byte_rate", user="alice")
        alice, other = [await User(cluster, "alice").connect() for _ in range(2)]
        got = await fetch(alice, 0, version)
        assert len(got.responses[0].partitions[0].records) == len(BATCH)
        assert got.throttle_time_ms > 5_000
        refused = await fetch(other, 1, version)
        assert refused.responses == ()
        assert refused.throttle_time_ms > 5_000
        began = now()
        again = await fetch(alice, 1, version)
        assert now() - began == pytest.approx(got.throttle_time_ms / 1000, abs=0.1)
        assert not again.responses or again.responses[0].partitions[0].error_code == 0

    play(scene)


def test_response_to_a_consumer_has_at_most_the_bytes_of_the_window() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        bob = await User(cluster, "bob").connect()
        for _ in range(5):
            await produce(bob)
        await set_quota(cluster, 4_500, "consumer_byte_rate", user="alice")
        alice = await User(cluster, "alice").connect()
        got = await fetch(alice)
        assert len(got.responses[0].partitions[0].records) == 2 * len(BATCH)
        assert got.throttle_time_ms == 0

    play(scene)


def test_followers_are_not_counted() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        for key in ("consumer_byte_rate", "request_percentage"):
            await set_quota(cluster, 1, key, user=None)
        async with cluster.client() as client:
            await client.create_topics(NewTopic("two", 1, 2))
        await until_led(cluster, "two")
        bob = await User(cluster, "bob", _leader(cluster, "two")).connect()
        rows = [{"name": "two", "partition_data": [{"index": 0, "records": BATCH}]}]
        values = {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": rows}
        began = now()
        for _ in range(3):
            answer = await bob.ask(PRODUCE, 9, **values)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert now() - began < 3

    play(scene, brokers=2)


def _leader(cluster: MemoryCluster, topic: str) -> int:
    return cluster.brokers[0].metadata.topics[topic][0].leader


# ---- the time of requests


class Slow:
    """A processor on which everything takes one millisecond between two readings of the time."""

    def __init__(self) -> None:
        self.ns = 0

    def yield_ns(self) -> int:
        return 0

    def time_ns(self) -> int:
        self.ns += 1_000_000
        return self.ns


@pytest.mark.parametrize("api", ["produce", "fetch", "metadata"])
def test_client_that_takes_too_much_of_the_brokers_time_waits(api: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.brokers[0].listener._processor = Slow()
        await set_quota(cluster, 0.005, "request_percentage", user="alice")
        alice, bob = [await User(cluster, name).connect() for name in ("alice", "bob")]
        for user, most_ms in ((alice, 1_000), (bob, 0)):
            if api == "produce":
                _, throttle_ms = await produce(user)
            elif api == "fetch":
                throttle_ms = (await fetch(user)).throttle_time_ms
            else:
                throttle_ms = (await user.ask(METADATA, 9, topics=[])).throttle_time_ms
            assert throttle_ms == most_ms
            assert await waited(user) == pytest.approx(most_ms / 1000, abs=0.1)

    play(scene)


# ---- changes of topics


async def create(user: User, name: str, partitions: int, version: int = 7, **rest: Any) -> Any:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    topic |= {"assignments": [], "configs": []}
    got = await user.ask(CREATE_TOPICS, version, topics=[topic], timeout_ms=10_000, **rest)
    return got.topics[0].error_code, got.throttle_time_ms


@pytest.mark.parametrize("version", [5, 6])
def test_changes_above_the_quota_are_refused_or_delayed(version: int) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1, "controller_mutation_rate", user="alice")
        alice = await User(cluster, "alice").connect()
        code, throttle_ms = await create(alice, "a", 21, version)
        assert code == ErrorCode.NONE
        if version == 6:  # strict: the tokens are there before the request
            assert throttle_ms == 0
            code, throttle_ms = await create(alice, "b", 1, version)
            assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 8_000 < throttle_ms <= 10_000
        began = now()
        code, throttle_ms = await create(alice, "c", 1, version)
        assert now() - began > 7
        assert (code, throttle_ms) == (ErrorCode.NONE, 0) or version == 5

    play(scene)


def test_validated_and_refused_topics_take_nothing_from_the_quota() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1, "controller_mutation_rate", user="alice")
        alice = await User(cluster, "alice").connect()
        for _ in range(3):
            assert await create(alice, "a", 50, validate_only=True) == (ErrorCode.NONE, 0)
            assert (await create(alice, "t", 50))[0] == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await create(alice, "a", 1) == (ErrorCode.NONE, 0)

    play(scene)


def test_deleted_topics_and_added_partitions_take_from_the_same_quota() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1, "controller_mutation_rate", user="alice")
        alice = await User(cluster, "alice").connect()
        more = [{"name": "t", "count": 22, "assignments": None}]
        values = {"topics": more, "timeout_ms": 10_000, "validate_only": False}
        got = await alice.ask(CREATE_PARTITIONS, 3, **values)
        assert (got.results[0].error_code, got.throttle_time_ms) == (ErrorCode.NONE, 0)
        got = await alice.ask(DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=10_000)
        assert got.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert got.throttle_time_ms > 5_000

    play(scene)


def test_topics_created_for_a_metadata_request_take_from_the_quota_of_changes() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1, "controller_mutation_rate", user="alice")
        alice = await User(cluster, "alice").connect()
        wanted = [{"name": name} for name in ("a", "b")]
        for _ in range(2):  # topics that are being created are counted once
            got = await alice.ask(METADATA, 8, topics=wanted, allow_auto_topic_creation=True)
            assert got.throttle_time_ms == 0
        code, throttle_ms = await create(alice, "c", 1)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 8_000 < throttle_ms <= 9_000  # 20 partitions, of which 11 were saved up

    play(scene, num_partitions=10)


# ---- metrics


def test_metrics_have_the_throttle_times_and_the_rates_of_clients_with_quotas() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1_000, user="alice")
        alice = await User(cluster, "alice").connect()
        _, throttle_ms = await produce(alice)
        text = "".join(prometheus_text(cluster.brokers[0].metrics))
        name = 'kafka_network_requestmetrics_throttletimems_sum{request="Produce"}'
        assert f"{name} {throttle_ms}" in text
        assert 'kafka_server_produce_byte_rate{user="alice",client_id=""}' in text

    play(scene)


@pytest.mark.key("quota.window.num")
@pytest.mark.key("quota.window.size.seconds")
def test_rates_are_averaged_over_the_configured_windows() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 10_000, user="alice")
        alice = await User(cluster, "alice").connect()
        _, throttle_ms = await produce(alice)
        assert 90 <= throttle_ms / 10 <= 110  # 20,000 bytes in 1 s instead of 10 s

    play(scene, quota_window_num=2, quota_window_size_seconds=1)


@pytest.mark.key("controller.quota.window.num")
@pytest.mark.key("controller.quota.window.size.seconds")
def test_changes_can_be_saved_up_for_the_configured_windows() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1, "controller_mutation_rate", user="alice")
        alice = await User(cluster, "alice").connect()
        assert await create(alice, "a", 13) == (ErrorCode.NONE, 0)
        code, throttle_ms = await create(alice, "b", 1)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 6_000 < throttle_ms <= 7_000

    play(scene, controller_quota_window_num=3, controller_quota_window_size_seconds=2)


# ---- connections


async def is_served(user: User) -> bool:
    """Return True if a request on the connection is answered, False if the connection is closed."""
    body = request(API_VERSIONS, 0)
    user.peer.link.send([encode_request(API_VERSIONS, 0, 7, user.name, body)])
    await until(lambda: user.peer.is_closed or user.peer.frames())
    return not user.peer.is_closed


async def connect(cluster: MemoryCluster) -> User:
    user = User(cluster, "alice")
    await cluster.transport.connect(lambda: user.peer, "127.0.0.1", 9092)
    return user


@pytest.mark.key("max.connections.per.ip")
def test_connections_above_the_number_of_an_address_are_closed_at_once() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        places = cluster.brokers[0].listener._places
        await until(lambda: not places._counts)
        users = [await connect(cluster) for _ in range(4)]
        assert await is_served(users[-1])
        assert not await is_served(await connect(cluster))
        users[0].peer.link.abort()
        await until(lambda: sum(places._counts.values()) == 3)
        assert await is_served(await connect(cluster))

    play(scene, max_connections_per_ip=4)


@pytest.mark.key("max.connections.per.ip.overrides")
def test_an_address_may_have_a_number_of_its_own() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        users = [await connect(cluster) for _ in range(6)]
        assert await is_served(users[-1])

    play(scene, max_connections_per_ip=1, max_connections_per_ip_overrides=["127.0.0.1:50"])


def test_malformed_overrides_stop_the_start_with_the_name_of_the_key() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        raise AssertionError("the broker has started")

    for entry in ("127.0.0.1", "somewhere:5", "127.0.0.1:many"):
        with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
            play(scene, max_connections_per_ip_overrides=[entry])


@pytest.mark.key("max.connection.creation.rate")
def test_connections_above_the_rate_are_served_later() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        times = []
        for _ in range(15):
            user = await connect(cluster)
            began = now()
            assert await is_served(user)
            times.append(now() - began)
        assert times[0] < 0.1
        assert times[-1] > 0.3

    play(scene, max_connection_creation_rate=1)


def test_connections_above_the_rate_of_an_address_are_closed_later() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        await set_quota(cluster, 1, "connection_creation_rate", ip="127.0.0.1")
        users = [await connect(cluster) for _ in range(12)]
        assert await is_served(users[0])
        began = now()
        assert not await is_served(users[-1])
        assert 0.1 < now() - began <= 1.1

    play(scene)


def test_connections_above_the_number_of_a_listener_wait_for_the_end_of_another() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        places = cluster.brokers[0].listener._places
        await until(lambda: not places._counts)
        users = [await connect(cluster) for _ in range(2)]
        assert await is_served(users[-1])
        third, fourth = [await connect(cluster) for _ in range(2)]
        answers = [asyncio.ensure_future(is_served(user)) for user in (third, fourth)]
        await asyncio.sleep(2)
        assert not any(answer.done() for answer in answers)
        users[0].peer.link.abort()
        assert await answers[0]
        assert not answers[1].done()
        fourth.peer.link.abort()
        users[1].peer.link.abort()
        assert await is_served(await connect(cluster))

    play(scene, listener_name_plaintext_max_connections=2)


def test_connections_above_the_rate_of_a_listener_are_served_later() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        users = [await connect(cluster) for _ in range(15)]
        began = now()
        assert await is_served(users[-1])
        assert now() - began > 0.3

    play(scene, listener_name_plaintext_max_connection_creation_rate=1)


def test_limits_of_connections_are_altered_at_run_time() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        places = cluster.brokers[0].listener._places
        await until(lambda: not places._counts)
        own, every = Resource(ResourceType.BROKER, "0"), Resource(ResourceType.BROKER, "")
        async with cluster.client() as client:

            async def alter(broker: Resource, **changes: str | None) -> None:
                settings = {name.replace("_", "."): value for name, value in changes.items()}
                [outcome] = (await client.admin.alter_configs({broker: settings})).values()
                assert outcome.ok

            await alter(every, max_connections_per_ip="1")
            await until(lambda: places._most == 1)
            assert not await is_served(await connect(cluster))
            await alter(
                own, max_connections_per_ip="9", listener_name_plaintext_max_connections="1"
            )
            await until(lambda: places._most == 9)
            waiting = asyncio.ensure_future(is_served(await connect(cluster)))
            await asyncio.sleep(2)
            assert not waiting.done()
            await alter(own, listener_name_plaintext_max_connections=None)
            assert await waiting

    play(scene)
