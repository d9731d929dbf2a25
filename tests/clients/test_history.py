"""Histories of real clients on real brokers, and the verdicts on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, DeserializingConsumer, Producer, SerializingProducer
from confluent_kafka.serialization import StringDeserializer, StringSerializer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from support.clusters.running_cluster import known_everywhere

import minikafka
from minikafka.checks.histories import Recorder, parse
from minikafka.client import Client, NewTopic, Record
from minikafka.testing.history import ClientHistory
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.verdict.cluster import cluster_in, verdict_on

STUCK_SECONDS = 10


@pytest.fixture
def history(cluster: LocalCluster) -> Iterator[ClientHistory]:
    with minikafka.history(cluster) as history:
        yield history


def confluent(cluster: LocalCluster, **conf: Any) -> dict[str, Any]:
    dotted = {name.replace("_", "."): value for name, value in conf.items()}
    return {
        "bootstrap.servers": cluster.bootstrap,
        "topic.metadata.refresh.interval.ms": 100,
        **dotted,
    }


def reading(cluster: LocalCluster, group: str, **conf: Any) -> dict[str, Any]:
    return confluent(cluster, group_id=group, auto_offset_reset="earliest", **conf)


def receive(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        if (message := consumer.poll(1)) is not None and message.error() is None:
            found.append(message)
    return found


async def test_clients_of_confluent_kafka_are_recorded_where_a_program_makes_them(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    def run() -> None:
        with Producer(confluent(cluster)) as producer:
            for number in range(3):
                producer.produce("recorded-confluent", f"v{number}", key="k")
            producer.produce("recorded-confluent", None, key="k")
        with Consumer(reading(cluster, "recorded-confluent", enable_auto_commit=False)) as consumer:
            consumer.subscribe(["recorded-confluent"])
            consumer.commit(receive(consumer, 4)[-1], asynchronous=False)
        assert isinstance(producer, confluent_kafka.Producer)

    await asyncio.to_thread(run)
    found = await asyncio.to_thread(history.verdict, STUCK_SECONDS)
    assert found.ok, str(found)
    assert found.facts == {"writes": 4, "reads": 4}
    assert history.clients == ["producer-1", "consumer-1"]
    kinds = {(event.client, event.kind) for event in history.events}
    assert {("consumer-1", "offsets"), ("consumer-1", "closed"), ("producer-1", "closed")} <= kinds


async def test_serializers_send_what_the_verdict_compares(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    def run() -> list[Any]:
        reported: list[Any] = []
        producer = SerializingProducer(
            confluent(cluster, value_serializer=StringSerializer("utf_16"))
        )
        producer.produce(
            "recorded-serialized", value="v", on_delivery=lambda *report: reported.append(report)
        )
        producer.flush(30)
        text = StringDeserializer("utf_16")
        with DeserializingConsumer(
            reading(cluster, "recorded-serialized", value_deserializer=text)
        ) as consumer:
            consumer.subscribe(["recorded-serialized"])
            (message,) = receive(consumer, 1)
        assert message.value() == "v"
        return reported

    ((error, message),) = await asyncio.to_thread(run)
    assert (error, message.offset()) == (None, 0)
    found = await asyncio.to_thread(history.verdict, STUCK_SECONDS)
    assert found.ok, str(found)
    assert found.facts == {"writes": 1, "reads": 1}


async def test_clients_of_aiokafka_are_recorded_with_their_transactions(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    servers = cluster.bootstrap
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="recorded") as producer:
        async with producer.transaction():
            await producer.send_and_wait("recorded-aiokafka", b"committed")
        await producer.begin_transaction()
        await producer.send_and_wait("recorded-aiokafka", b"aborted")
        await producer.abort_transaction()
    consumer = AIOKafkaConsumer(
        "recorded-aiokafka",
        bootstrap_servers=servers,
        group_id="recorded-aiokafka",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        assert (await consumer.getone()).value == b"committed"
        await consumer.commit()
    found = history.verdict(STUCK_SECONDS)
    assert found.ok, str(found)
    assert found.facts == {"writes": 2, "reads": 1}


async def test_consumer_of_kafka_python_that_reads_uncommitted_records_reads_aborted_ones(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    def run() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="aborting")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("recorded-aborted", b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
        producer.close()
        consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_uncommitted",
        )
        consumer.assign([TopicPartition("recorded-aborted", 0)])
        assert next(consumer).value == b"aborted"
        consumer.close()

    await asyncio.to_thread(run)
    found = await asyncio.to_thread(history.verdict, STUCK_SECONDS)
    (finding,) = found.findings
    assert found.aborted_read == [finding]
    assert (finding.topic, finding.partition, finding.offset) == ("recorded-aborted", 0, 0)
    assert finding.value == "aborted"
    assert finding.time is not None
    with pytest.raises(AssertionError, match=r"aborted_read recorded-aborted-0 offset 0 at .* UTC"):
        await asyncio.to_thread(history.assert_ok, STUCK_SECONDS)


async def test_send_that_is_never_flushed_is_stuck_when_its_producer_is_gone(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    producer = Producer(confluent(cluster, linger_ms=60_000))
    producer.produce("recorded-stuck", "v", key="k")
    del producer
    found = await asyncio.to_thread(history.verdict)
    (finding,) = found.stuck
    assert (finding.value, finding.client) == ("v", "producer-1")
    assert finding.detail == "a send to recorded-stuck has no outcome: its client was closed"


class Shouting(Producer):
    """A producer of a program, which was defined before any history."""

    def produce(self, topic: str, text: str) -> None:  # type: ignore[override]
        super().produce(topic, text.upper())


async def test_own_subclass_is_recorded_with_what_it_passes_on(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    def run() -> None:
        producer = Shouting(confluent(cluster))
        producer.produce("recorded-subclass", "loud")
        producer.flush(30)
        assert isinstance(producer, Shouting)

    await asyncio.to_thread(run)
    assert [event.value for event in history.events] == ["LOUD", "LOUD"]
    await asyncio.to_thread(history.assert_ok, STUCK_SECONDS)


async def test_existing_producer_in_c_gets_a_stand_in_that_keeps_its_callback(
    cluster: LocalCluster,
) -> None:
    reported: list[Any] = []
    conf = {"on_delivery": lambda *report: reported.append(report)}
    producer = Producer(confluent(cluster) | conf)
    with minikafka.history(cluster) as history:
        wrapped = history.wrap(producer)
        wrapped.produce("recorded-existing", b"v")
        assert len(wrapped) == 1
        await asyncio.to_thread(wrapped.flush, 30)
        assert history.wrap(wrapped) is wrapped
        assert isinstance(wrapped, Producer)
    assert [error for error, _ in reported] == [None]
    await asyncio.to_thread(history.assert_ok, STUCK_SECONDS)
    assert [event.kind for event in history.events] == ["write", "write"]
    assert confluent_kafka.Producer is confluent_kafka.cimpl.Producer


async def created(cluster: LocalCluster, topic: str) -> int:
    """Create a topic with one partition, and return its leader."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(topic, 1, 3))
    await known_everywhere(cluster, topic)
    return await cluster.leader_of(topic, 0)


async def test_record_sent_without_acknowledgement_to_a_broker_that_is_killed_is_lost(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    leader = await created(cluster, "recorded-lost")
    producer = Producer(confluent(cluster, acks=0))
    producer.produce("recorded-lost", "before", partition=0)
    assert await asyncio.to_thread(producer.flush, 30) == 0
    async with Client(cluster.bootstrap) as client:
        await client.fetch("recorded-lost", 0, 0, max_wait_ms=30_000)  # it has arrived
    await cluster.pause(leader)
    producer.produce("recorded-lost", "after", partition=0, key="k")
    assert await asyncio.to_thread(producer.flush, 30) == 0
    await cluster.kill(leader)
    found = await asyncio.to_thread(history.verdict, STUCK_SECONDS)
    assert [(one.kind, one.key, one.value) for one in found.findings] == [("lost", "k", "after")]
    [finding] = found.lost
    assert finding.topic == "recorded-lost"
    assert any("elected leader" in line for line in finding.ledger)


async def test_retry_of_a_producer_that_is_not_idempotent_is_duplicated(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    leader = await created(cluster, "recorded-twice")
    patience = {"request_timeout_ms": 300, "socket_timeout_ms": 1_000}
    producer = Producer(confluent(cluster, **patience, enable_idempotence=False, retries=50))
    producer.produce("recorded-twice", "first", partition=0)
    assert await asyncio.to_thread(producer.flush, 30) == 0
    await cluster.pause(leader)  # it has connections, and reads the request when it continues
    producer.produce("recorded-twice", "again", partition=0)
    await asyncio.to_thread(producer.flush, 2.5)
    await cluster.resume(leader)
    assert await asyncio.to_thread(producer.flush, 30) == 0
    found = await asyncio.to_thread(history.verdict, STUCK_SECONDS)
    assert {finding.value for finding in found.duplicated} == {"again"}
    assert found.counts.keys() == {"duplicated"}


async def test_consumer_that_commits_what_it_has_not_read_loses_it(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    await created(cluster, "recorded-skipped")
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in (b"a", b"b", b"c"):
            await producer.send_and_wait("recorded-skipped", value)
    conf = {"group_id": "recorded-skipped", "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer("recorded-skipped", bootstrap_servers=cluster.bootstrap, **conf)
    async with consumer:
        record = await consumer.getone()
        await consumer.commit({AioPartition(record.topic, record.partition): 2})
    found = history.verdict(STUCK_SECONDS)
    (finding,) = found.findings
    assert found.lost == [finding]
    assert (finding.offset, finding.value) == (1, "b")
    assert (
        finding.detail == "no member of group recorded-skipped received it, but the group went on"
    )


async def test_client_that_sends_its_second_record_first_reorders(cluster: LocalCluster) -> None:
    await created(cluster, "recorded-reversed")
    lines: list[str] = []
    recorder = Recorder("reverser", None, lines.append, time.time)
    first, second = recorder.write("recorded-reversed", b"1"), 0
    recorder.returned(first)
    async with Client(cluster.bootstrap) as client:
        second = recorder.write("recorded-reversed", b"2")
        for number, value in ((second, b"2"), (first, b"1")):
            (made,) = await client.produce("recorded-reversed", [Record(value=value)])
            recorder.ended(number, partition=made.partition, offset=made.offset)
    found = verdict_on(list(parse(lines)), cluster_in(cluster.directory.path), STUCK_SECONDS)
    (finding,) = found.findings
    assert found.reordered == [finding]
    assert (finding.offset, finding.value) == (0, "2")


async def test_open_transaction_and_paused_consumer_are_stuck(
    cluster: LocalCluster, history: ClientHistory
) -> None:
    await created(cluster, "recorded-still")
    servers = cluster.bootstrap
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="recorded-still")
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    async with producer, consumer:
        async with producer.transaction():
            await producer.send_and_wait("recorded-still", b"committed")
        partition = AioPartition("recorded-still", 0)
        consumer.assign([partition])
        consumer.pause(partition)
        assert await consumer.getmany(timeout_ms=300) == {}
        await producer.begin_transaction()
        await producer.send_and_wait("recorded-still", b"open")
        assert history.verdict(STUCK_SECONDS).ok
        found = history.verdict(0.2)
        await producer.abort_transaction()
    details = sorted(finding.detail.partition(" for ")[0] for finding in found.stuck)
    assert details[0] == "consumer-1 has not read on"
    await asyncio.to_thread(history.assert_ok, STUCK_SECONDS)


def test_history_without_clients_has_no_verdict() -> None:
    with (
        minikafka.history() as history,
        pytest.raises(AssertionError, match="has recorded no client"),
    ):
        history.assert_ok()


def test_history_refuses_to_wrap_another_object() -> None:
    with minikafka.history() as history, pytest.raises(TypeError, match="list is no producer or"):
        history.wrap([])
