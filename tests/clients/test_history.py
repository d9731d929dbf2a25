"""Histories of real clients on real brokers, and the verdicts on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, DeserializingConsumer, Producer, SerializingProducer
from confluent_kafka.serialization import StringDeserializer, StringSerializer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import minikafka
from minikafka.testing.history import ClientHistory
from minikafka.tools.cluster import LocalCluster

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


def test_history_without_clients_has_no_verdict() -> None:
    with (
        minikafka.history() as history,
        pytest.raises(AssertionError, match="has recorded no client"),
    ):
        history.assert_ok()


def test_history_refuses_to_wrap_another_object() -> None:
    with minikafka.history() as history, pytest.raises(TypeError, match="list is no producer or"):
        history.wrap([])
