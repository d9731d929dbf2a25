"""A running cluster of PLAINTEXT listeners becomes one of SASL_SSL listeners, broker by broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.security.secured_brokers import SecuredBrokers

TOPIC = "moved"
IN_SYNC_SECONDS = 60.0
PLAINTEXT = {"security.inter.broker.protocol": "PLAINTEXT"}
SASL_SSL = {"security.inter.broker.protocol": "SASL_SSL"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[SecuredBrokers]:
    with SecuredBrokers(tmp_path, "PLAINTEXT", listeners=("PLAINTEXT",)) as started:
        yield started


class Writer:
    """A thread that writes numbers until it is stopped. `acked` has the numbers that brokers have acknowledged."""

    def __init__(self, properties: Mapping[str, Any], first: int) -> None:
        self.acked: list[int] = []
        self.failed: list[str] = []
        self.count = first
        self._properties = properties
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> int:
        """Stop writing; return the next number."""
        self._stop.set()
        self._thread.join()
        return self.count

    def _run(self) -> None:
        producer = Producer({**self._properties, "acks": "all", "enable.idempotence": True})
        while not self._stop.is_set():
            producer.produce(TOPIC, b"%d" % self.count, on_delivery=self._report)
            self.count += 1
            producer.poll(0.01)
        producer.flush(60)

    def _report(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acked.append(int(message.value()))
        else:
            self.failed.append(error.str())


def wait_until_in_sync(admin: AdminClient) -> None:
    """Wait until every partition of the topic has all replicas in its ISR."""
    deadline = time.monotonic() + IN_SYNC_SECONDS
    while True:
        partitions = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        if all(len(partition.isrs) == 3 for partition in partitions):
            return
        assert time.monotonic() < deadline, [partition.isrs for partition in partitions]
        time.sleep(0.1)


def restart_each(
    brokers: SecuredBrokers,
    listeners: tuple[str, ...],
    between: Mapping[str, str],
    admin: AdminClient,
) -> None:
    """Restart one broker after the other with these listeners and this inter-broker protocol."""
    brokers.listeners = listeners
    for id_ in brokers.ids:
        brokers.stop(id_)
        brokers.write_file(id_, between)
        brokers.start(id_)
        brokers.wait_until_ready(id_)
        wait_until_in_sync(admin)


def read_all(properties: Mapping[str, Any], count: int) -> list[int]:
    """Return the numbers of the topic, at least `count`, in the order of each partition."""
    consumer = Consumer({**properties, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(3)])
        found: list[int] = []
        while len(found) < count:
            messages = consumer.consume(1_000, 30)
            assert messages, f"{count - len(found)} records never came"
            found += [int(message.value()) for message in messages]
        return found
    finally:
        consumer.close()


def test_cluster_moves_to_sasl_ssl_by_rolling_restarts_without_losing_a_record(
    brokers: SecuredBrokers,
) -> None:
    plain = AdminClient(brokers.properties("PLAINTEXT"))
    [created] = plain.create_topics([NewTopic(TOPIC, 3)]).values()
    created.result(30)
    old = Writer(brokers.properties("PLAINTEXT"), 0)
    both = ("PLAINTEXT", "SASL_SSL")
    restart_each(brokers, both, PLAINTEXT, plain)
    # Clients move.
    new = Writer(brokers.properties("SASL_SSL"), old.stop())
    secure = AdminClient(brokers.properties("SASL_SSL"))
    restart_each(brokers, both, SASL_SSL, secure)
    restart_each(brokers, ("SASL_SSL",), SASL_SSL, secure)
    new.stop()
    assert (old.failed, new.failed) == ([], [])
    acked = old.acked + new.acked
    assert len(acked) == new.count
    assert sorted(read_all(brokers.properties("SASL_SSL"), len(acked))) == list(range(new.count))
