"""The group coordinator core and Apache Kafka 3.9 give the same answers to the same requests.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.apache_kafka import apache_kafka, needs_kafka
from support.group_twins import DESCRIBE_VERSION, Twins

from benchmarks.kafka import Session
from minikafka.base.errors import ErrorCode
from minikafka.kafka.wire.versions import CREATE_TOPICS, DESCRIBE_GROUPS, FIND_COORDINATOR, METADATA

pytestmark = [pytest.mark.clients, needs_kafka]
SEQUENCES, STEPS = 20, 60


async def test_coordinator_core_gives_the_same_answers_as_apache_kafka(tmp_path: Path) -> None:
    settings = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}
    async with apache_kafka(tmp_path, group_initial_rebalance_delay_ms=0, **settings) as kafka:
        host, _, port = kafka.bootstrap.partition(":")
        await asyncio.to_thread(compare, host, int(port))


def compare(host: str, port: int) -> None:
    prepare(host, port)
    compared = stable = 0
    for seed in range(SEQUENCES):
        twins = Twins(host, port, f"g{seed}", seed)
        try:
            for _ in range(STEPS):
                twins.step()
                stable += twins.is_stable
        finally:
            twins.close()
        compared += twins.compared
    assert compared > SEQUENCES * STEPS * 0.7
    assert stable > SEQUENCES


def prepare(host: str, port: int) -> None:
    """Create the topic whose offsets are committed, and `__consumer_offsets`."""
    with Session(host, port) as session:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        wait(
            session,
            CREATE_TOPICS,
            2,
            lambda a: a.topics[0].error_code,
            topics=[topic],
            timeout_ms=10_000,
        )
        session.ask(FIND_COORDINATOR, 0, key="g0")
        wait(
            session,
            DESCRIBE_GROUPS,
            DESCRIBE_VERSION,
            lambda a: a.groups[0].error_code,
            groups=["g0"],
        )
        wait(session, METADATA, 1, lambda a: a.topics[0].error_code, topics=[{"name": "t"}])


def wait(
    session: Session, api: int, version: int, error_of: Callable[[Any], int], **values: Any
) -> None:
    """Repeat a request until it succeeds or is answered with TOPIC_ALREADY_EXISTS."""
    deadline = time.monotonic() + 30
    while error_of(session.ask(api, version, **values)) not in (
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
