"""The transaction coordinator core and Apache Kafka 3.9 give the same answers to the same requests.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from support.apache_kafka import apache_kafka, needs_kafka
from support.transaction_twins import Twins

from benchmarks.kafka import Session
from minikafka.kafka.wire.versions import CREATE_TOPICS, FIND_COORDINATOR, INIT_PRODUCER_ID

pytestmark = [pytest.mark.clients, needs_kafka]
SEQUENCES, STEPS = 20, 60
SMALL = {
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


async def test_coordinator_core_gives_the_same_answers_as_apache_kafka(tmp_path: Path) -> None:
    async with apache_kafka(tmp_path, **SMALL) as kafka:
        host, _, port = kafka.bootstrap.partition(":")
        await asyncio.to_thread(compare, host, int(port))


def compare(host: str, port: int) -> None:
    answers: Counter[str] = Counter()
    with Session(host, port) as session:
        prepare(session)
        for seed in range(SEQUENCES):
            twins = Twins(session, f"tx{seed}", seed)
            for _ in range(STEPS):
                twins.step()
            answers.update(kind for kind, _ in twins.answers)
            assert twins.compared > STEPS
    assert answers["describe"] > 200
    assert min(answers[kind] for kind in ("init", "add", "end", "verify", "list")) > 40


def prepare(session: Session) -> None:
    """Create a topic, and wait until the coordinator serves."""
    topic = {"name": "t", "num_partitions": 3, "replication_factor": 1}
    session.ask(CREATE_TOPICS, 2, topics=[topic], timeout_ms=10_000)
    deadline = time.monotonic() + 30
    while True:
        found = session.ask(FIND_COORDINATOR, 2, key="first", key_type=1)
        started = session.ask(
            INIT_PRODUCER_ID, 4, transactional_id="first", transaction_timeout_ms=60_000
        )
        if not found.error_code and not started.error_code:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)
