"""Real clients over listeners with TLS and SASL, between brokers that encrypt and authenticate too."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.security.metrics_page import read_page
from support.security.secured_brokers import LISTENERS, SecuredBrokers

COUNT = 300


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    with SecuredBrokers(tmp_path_factory.mktemp("secured"), "SASL_SSL") as started:
        yield started


def create(brokers: SecuredBrokers, topic: str) -> None:
    admin = AdminClient(brokers.properties("PLAINTEXT"))
    for outcome in admin.create_topics([NewTopic(topic, 3)]).values():
        outcome.result(30)


def read(properties: dict[str, Any], topic: str, count: int) -> list[bytes]:
    """Return the values of all records of a topic with three partitions, sorted."""
    consumer = Consumer({**properties, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count, 30)
            assert messages, f"{count - len(found)} records never came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message.value())
        return sorted(found)
    finally:
        consumer.close()


def produce(properties: dict[str, Any], topic: str, values: list[bytes]) -> list[bytes]:
    """Return the values that were acknowledged."""
    acked: list[bytes] = []

    def report(error: KafkaError | None, message: Any) -> None:
        if error is None:
            acked.append(message.value())

    producer = Producer({**properties, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, on_delivery=report)
        producer.poll(0)
    producer.flush(60)
    return sorted(acked)


VALUES = sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("listener", LISTENERS)
def test_confluent_kafka_writes_and_reads_over_each_listener(
    brokers: SecuredBrokers, listener: str
) -> None:
    topic = f"confluent-{listener}"
    create(brokers, topic)
    properties = brokers.properties(listener)
    ports = {
        (node.host, node.port)
        for node in AdminClient(properties).list_topics(timeout=30).brokers.values()
    }
    assert {f"{host}:{port}" for host, port in ports} == set(brokers.bootstrap(listener).split(","))
    assert produce(properties, topic, VALUES) == VALUES
    assert read(properties, topic, COUNT) == VALUES


def test_kafka_python_writes_and_aiokafka_reads_over_sasl_ssl(brokers: SecuredBrokers) -> None:
    create(brokers, "python")
    context = ssl.create_default_context(cafile=str(brokers.authority.pem))
    login: dict[str, Any] = {
        "bootstrap_servers": brokers.bootstrap("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_context": context,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    writer = kafka.KafkaProducer(**login, acks="all")
    sent = [writer.send("python", value) for value in VALUES]
    writer.flush(60)
    assert all(future.is_done and future.succeeded() for future in sent)
    writer.close()

    async def read_all() -> list[bytes]:
        reader = aiokafka.AIOKafkaConsumer("python", **login, auto_offset_reset="earliest")
        await reader.start()
        try:
            return sorted([(await reader.getone()).value for _ in range(COUNT)])
        finally:
            await reader.stop()

    assert asyncio.run(read_all()) == VALUES


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sasl.password": "wrong"}, "Authentication failed: Invalid username or password"),
        ({"sasl.username": "nobody"}, "Authentication failed: Invalid username or password"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "broker's supported mechanisms: PLAIN"),
    ],
)
def test_client_that_cannot_prove_who_it_is_learns_no_more_than_that(
    brokers: SecuredBrokers, change: dict[str, str], reason: str
) -> None:
    errors: list[str] = []
    properties = {**brokers.properties("SASL_PLAINTEXT"), **change, "log_level": 0}
    producer = Producer({**properties, "error_cb": lambda error: errors.append(error.str())})
    for _ in range(300):
        producer.poll(0.1)
        if any(reason in error for error in errors):
            return
    raise AssertionError(errors)


def test_client_with_a_foreign_certificate_is_not_served(brokers: SecuredBrokers) -> None:
    own = brokers.foreign.client("alice")
    properties = brokers.properties("SSL") | {
        "ssl.certificate.location": str(own.chain_file),
        "ssl.key.location": str(own.key_file),
        "log_level": 0,
    }
    with pytest.raises(KafkaException):
        AdminClient(properties).list_topics(timeout=3)


def test_metrics_of_secured_brokers_are_served_to_users_under_tls(brokers: SecuredBrokers) -> None:
    port = brokers.control_port(1)
    page = read_page(f"https://localhost:{port}/metrics", brokers.authority, "alice:alice-secret")
    assert "socket_server_metrics" in page
    for credential in ("", "alice:wrong", "nobody:alice-secret"):
        for path in ("", "metrics"):
            with pytest.raises(HTTPError) as refused:
                read_page(f"https://localhost:{port}/{path}", brokers.authority, credential)
            assert refused.value.code == 401
            assert refused.value.headers["WWW-Authenticate"].startswith("Basic realm=")
            assert refused.value.read() == b""
    with pytest.raises(OSError, match=r"."):
        urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10).read()


def test_no_acknowledged_record_is_lost_when_a_broker_is_killed(brokers: SecuredBrokers) -> None:
    create(brokers, "killed")
    properties = brokers.properties("SASL_SSL")
    first = produce(properties, "killed", VALUES)
    brokers.kill(2)
    second = produce(properties, "killed", [b"second-" + value for value in VALUES])
    brokers.start(2)
    brokers.wait_until_ready(2)
    assert len(second) == COUNT
    assert read(properties, "killed", 2 * COUNT) == sorted(first + second)


def test_secrets_are_in_no_log(brokers: SecuredBrokers) -> None:
    for id_ in (1, 2, 3):
        assert "-secret" not in brokers.log(id_)


def test_damaged_keystore_stops_the_start_with_the_key(tmp_path: Path) -> None:
    damaged = SecuredBrokers(tmp_path, "PLAINTEXT", brokers=1)
    damaged.write_file(1, {"ssl.keystore.password": "wrong"})
    damaged.start_zookeeper()
    try:
        damaged.start(1)
        assert damaged.wait(1) != 0
    finally:
        damaged.__exit__()
    log = damaged.log(1)
    assert "ssl.keystore.password" in log
    assert "the password is wrong, or the file is damaged" in log
    assert "Traceback" not in log
