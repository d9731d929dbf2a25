"""The beans whose names minikafka's metrics have are beans of Apache Kafka 3.9.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer
from support.clusters.apache_kafka import apache_kafka, needs_kafka, run_java
from support.kafka.beans import ON_DEMAND, recorded

pytestmark = [pytest.mark.clients, needs_kafka]

PROGRAM: Final = Path(__file__).parents[1] / "support/java/Beans.java"
LIMITS: Final = "producer_byte_rate=9999999,consumer_byte_rate=9999999,request_percentage=99"


def write_and_read(servers: str) -> None:
    """Let the broker have a partition, a group, and requests of a client with a quota."""
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("events", b"x")
    assert producer.flush(30) == 0
    keys = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(keys)
    consumer.subscribe(["events"])
    assert consumer.poll(30) is not None
    consumer.close()


async def test_recorded_beans_are_those_of_a_running_kafka(tmp_path: Path) -> None:
    async with apache_kafka(tmp_path, offsets_topic_replication_factor=1) as kafka:
        command = ("--alter", "--entity-type", "clients", "--entity-default", "--add-config")
        where = ("--bootstrap-server", kafka.bootstrap)
        await run_java("kafka.admin.ConfigCommand", *where, *command, LIMITS)
        await asyncio.to_thread(write_and_read, kafka.bootstrap)
        found = (await run_java(PROGRAM, str(kafka.pid))).splitlines()
    assert sorted(recorded() - ON_DEMAND - set(found)) == []
