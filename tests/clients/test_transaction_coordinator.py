"""The transaction coordinator core and Apache Kafka 3.9 give the same answers to the same requests.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.

The requests are random. Several producers use one transactional id. They send requests with the ids and epochs that
they, or others, have got, and with wrong ones. Producer ids differ between Kafka and our core, so labels replace them
for the comparison. After each end of a transaction, both coordinators get the time to write the markers, so that the
next answer is determined.

One request is not sent: InitProducerId with an old epoch while a transaction is open. Kafka 3.9 then aborts the
transaction of the successor, and our core does not. The start of an id without a transaction is not compared: until
its next load, Kafka's coordinator remembers the start of the transaction before.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.clusters.apache_kafka import apache_kafka, needs_kafka
from support.deciders.transaction_world import TransactionWorld

from benchmarks.kafka import Session
from minikafka.base.model import TopicPartition
from minikafka.kafka.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    CREATE_TOPICS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
)

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
STRANGER = 999_999_999
UNKNOWN_NAME = "nobody"
COMPLETE_SECONDS = 10


class Labels:
    """Labels of the producer ids that one of the two coordinators has given out, in the order of their appearance."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def label(self, producer_id: int) -> int:
        if producer_id in (-1, 0):
            return producer_id
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return 100 + self.ids.index(producer_id)

    def id_of(self, label: int) -> int:
        return self.ids[label - 100] if label >= 100 else label if label == -1 else STRANGER


class Twins:
    """The same transactional id on two coordinators: our core (`world`) and an Apache Kafka broker (`session`)."""

    def __init__(self, session: Session, name: str, seed: int) -> None:
        self.session, self.name = session, name
        self.rng = random.Random(seed)
        self.world = TransactionWorld()
        self.world.init(
            "another"
        )  # so that no producer id of this core has the label of an unknown one
        self.ours, self.theirs = Labels(), Labels()
        self.producers: list[tuple[int, int]] = []
        """Labels and epochs that were given out."""
        self.compared = 0
        self.answers: set[tuple[str, Any]] = set()
        """Kind and answer of all compared requests."""

    def step(self) -> None:
        """Send a random request to both, and compare the answers."""
        kind = self.rng.choice(
            ("init", "init", "add", "add", "add", "end", "end", "verify", "list")
        )
        getattr(self, f"send_{kind}")()
        self.complete()
        self.compare("describe", self.our_description(), self.their_description())

    def compare(self, kind: str, ours: Any, theirs: Any) -> None:
        assert ours == theirs, f"{kind} of {self.name}: here {ours}, Kafka {theirs}"
        self.compared += 1
        self.answers.add((kind, repr(ours)))

    def producer(self) -> tuple[int, int]:
        """Return label and epoch of a producer: mostly of the last one."""
        if not self.producers or self.rng.random() < 0.08:
            return (1, self.rng.randrange(3))
        if self.rng.random() < 0.75:
            return self.producers[-1]
        label, epoch = self.rng.choice(self.producers)
        return (label, epoch + self.rng.choice((-1, 0, 0, 1)) if epoch else epoch)

    def named(self) -> str:
        return self.rng.choice([self.name] * 30 + [UNKNOWN_NAME, ""])

    # Requests.

    def send_init(self) -> None:
        timeout_ms = self.rng.choice((60_000, 60_000, 60_000, 30_000, 0, -1, 900_001))
        producer = self.producer() if self.rng.random() < 0.5 else (-1, -1)
        if self.rng.random() < 0.05:
            producer = self.rng.choice(((-1, 3), (1, -1)))
        current = self.our_description()
        if current[1] == "Ongoing" and producer[0] != -1 and producer != current[2:4]:
            return
        ours = self.world.init(self.name, (self.ours.id_of(producer[0]), producer[1]), timeout_ms)
        theirs = self.session.ask(
            INIT_PRODUCER_ID,
            4,
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.theirs.id_of(producer[0]),
            producer_epoch=producer[1],
        )
        mine = (int(ours.error), self.ours.label(ours.producer_id), ours.producer_epoch)
        other = (
            int(theirs.error_code),
            self.theirs.label(theirs.producer_id),
            theirs.producer_epoch,
        )
        self.compare("init", mine, other)
        if not mine[0]:
            self.producers.append(mine[1:])

    def send_add(self) -> None:
        label, epoch = self.producer()
        tps = self.rng.sample(PARTITIONS, self.rng.randrange(1, 3))
        name = self.named()
        ours = self.world.add((self.ours.id_of(label), epoch), *tps, name=name)
        answer = self.session.ask(
            ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self.theirs.id_of(label),
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": "t", "partitions": [tp.partition for tp in tps]}],
        )
        (topic,) = answer.results_by_topic_v3_and_below
        theirs = {int(row.partition_error_code) for row in topic.results_by_partition}
        self.compare("add", {ours}, theirs)

    def send_verify(self) -> None:
        label, epoch = self.producer()
        name = self.named()
        ours = self.world.verify((self.ours.id_of(label), epoch), *PARTITIONS, name=name)
        answer = self.session.ask(
            ADD_PARTITIONS_TO_TXN,
            4,
            transactions=[
                {
                    "transactional_id": name,
                    "producer_id": self.theirs.id_of(label),
                    "producer_epoch": epoch,
                    "verify_only": True,
                    "topics": [{"name": "t", "partitions": [0, 1, 2]}],
                }
            ],
        )
        (result,) = answer.results_by_transaction
        theirs = {
            row.partition_index: int(row.partition_error_code)
            for row in result.topic_results[0].results_by_partition
        }
        mine = {tp.partition: int(error) for tp, error in ours.items()}
        self.compare("verify", mine, dict(sorted(theirs.items())))

    def send_end(self) -> None:
        label, epoch = self.producer()
        committed = self.rng.random() < 0.5
        name = self.named()
        ours = self.world.end((self.ours.id_of(label), epoch), committed, name)
        theirs = self.session.ask(
            END_TXN,
            3,
            transactional_id=name,
            producer_id=self.theirs.id_of(label),
            producer_epoch=epoch,
            committed=committed,
        )
        self.compare("end", ours, int(theirs.error_code))

    def send_list(self) -> None:
        states = self.rng.choice(([], ["Ongoing"], ["Empty", "CompleteCommit"], ["Nothing"]))
        is_empty = self.world.describe(self.name).state == "Empty"
        duration = -1 if is_empty else self.rng.choice((-1, 3_600_000))
        ours = self.world.list(states, [], duration)
        theirs = self.session.ask(
            LIST_TRANSACTIONS,
            1,
            state_filters=states,
            producer_id_filters=[],
            duration_filter=duration,
        )
        mine = [each.state for each in ours.transactions if each.transactional_id == self.name]
        other = [
            each.transaction_state
            for each in theirs.transaction_states
            if each.transactional_id == self.name
        ]
        self.compare(
            "list",
            (int(ours.error), list(ours.unknown_states), mine),
            (int(theirs.error_code), list(theirs.unknown_state_filters), other),
        )

    # States.

    def complete(self) -> None:
        """Let both write the markers of a transaction that is ending."""
        if self.world.describe(self.name).state.startswith("Prepare"):
            self.world.write_markers()
        deadline = time.monotonic() + COMPLETE_SECONDS
        while self.their_description()[1].startswith("Prepare"):
            assert time.monotonic() < deadline, "Kafka does not complete the transaction"
            time.sleep(0.002)

    def our_description(self) -> Any:
        found = self.world.describe(self.name)
        return (
            int(found.error),
            found.state,
            self.ours.label(found.producer_id),
            found.producer_epoch,
            found.timeout_ms,
            found.start_ms > 0 or found.state == "Empty",
            [tp.partition for tp in found.partitions],
        )

    def their_description(self) -> Any:
        answer = self.session.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.name])
        (found,) = answer.transaction_states
        return (
            int(found.error_code),
            found.transaction_state,
            self.theirs.label(found.producer_id),
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms > 0 or found.transaction_state == "Empty",
            sorted(number for topic in found.topics for number in topic.partitions),
        )


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
