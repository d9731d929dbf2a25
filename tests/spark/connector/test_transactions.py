"""Transactions on a topic of Apache Kafka 3.9, read by Spark's own connector and by `format("minikafka")`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.clusters.apache_kafka import apache_kafka, needs_kafka
from support.spark.spark_connector import Formats, needs_connector

pytestmark = [needs_connector, needs_kafka]

TOPIC = "transactions"
PARTITIONS = 3
KEYS = {
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "auto_create_topics_enable": "true",
}
CODECS = "none", "lz4", "zstd", "gzip"
ROUNDS = 12


class Transactions(NamedTuple):
    """A topic with plain records and with committed, aborted and open transactions."""

    bootstrap: str
    committed: list[bytes]
    """Values of plain records and of records of committed transactions, all before the open transaction."""
    aborted: list[bytes]


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transactions]:
    with asyncio.Runner() as runner:
        running = apache_kafka(tmp_path_factory.mktemp("kafka"), **KEYS)
        kafka = runner.run(running.__aenter__())
        try:
            yield Transactions(kafka.bootstrap, *fill(kafka.bootstrap))
        finally:
            runner.run(running.__aexit__(None, None, None))


def fill(bootstrap: str) -> tuple[list[bytes], list[bytes]]:
    """Write plain records and transactions of several producers, so that their batches alternate.

    Return the committed values, plain records included, and the aborted values.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    plain = Producer({"bootstrap.servers": bootstrap})
    producers = [transactional(bootstrap, codec) for codec in CODECS]
    chance = random.Random(14)
    committed, aborted = [], []
    for number in range(ROUNDS):
        for producer in producers:
            producer.begin_transaction()
        written: list[list[bytes]] = [[] for _ in producers]
        for _ in range(3):
            for index, producer in enumerate(producers):
                written[index] += write(producer, chance, b"%d by %d " % (number, index))
            committed += write(plain, chance, b"%d plain " % number)
        for producer, values in chance.sample([*zip(producers, written, strict=True)], len(CODECS)):
            if chance.random() < 0.5:
                producer.commit_transaction()
                committed += values
            else:
                producer.abort_transaction()
                aborted += values
    producers[0].begin_transaction()
    for partition in range(PARTITIONS):
        producers[0].produce(TOPIC, b"open", partition=partition)
    producers[0].flush()
    for partition in range(PARTITIONS):
        plain.produce(TOPIC, b"behind the open transaction", partition=partition)
    plain.flush()
    return committed, aborted


def transactional(bootstrap: str, codec: str) -> Producer:
    """Return a transactional producer that has called `init_transactions`."""
    keys = {
        "transactional.id": f"by {codec}",
        "compression.type": codec,
        "transaction.timeout.ms": 900_000,  # the last transaction stays open during all tests
    }
    producer = Producer({"bootstrap.servers": bootstrap, **keys})
    producer.init_transactions()
    return producer


def write(producer: Producer, chance: random.Random, name: bytes) -> list[bytes]:
    """Write up to five records to random partitions, in new batches; return their values."""
    values = [name + b"%d" % chance.getrandbits(60) for _ in range(chance.randrange(6))]
    for value in values:
        producer.produce(TOPIC, value, value[:3], chance.randrange(PARTITIONS))
    producer.flush()
    return values


@pytest.mark.parametrize("given", [{}, {"minPartitions": "17"}], ids=["whole", "split"])
async def test_kafka_and_minikafka_formats_skip_the_same_aborted_transactions(
    spark, transactions, given
):
    formats = Formats(spark, transactions.bootstrap)
    options = {"subscribe": TOPIC, "includeHeaders": "true", **given}
    committed = options | {"kafka.isolation.level": "read_committed"}
    theirs = await asyncio.to_thread(formats.rows, "kafka", **committed)
    ours = await asyncio.to_thread(formats.rows, "minikafka", **committed)
    assert ours == theirs
    assert sorted(row["value"] for row in ours) == sorted(transactions.committed)
    everything = await asyncio.to_thread(formats.rows, "minikafka", **options)
    assert everything == await asyncio.to_thread(formats.rows, "kafka", **options)
    behind = {b"open", b"behind the open transaction"}
    assert {row["value"] for row in everything} >= {*transactions.aborted, *behind}


def test_kafka_and_minikafka_streams_skip_the_same_aborted_transactions(
    spark, transactions, tmp_path
):
    formats = Formats(spark, transactions.bootstrap)
    given = {
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": "150",
    }
    batches = {
        name: formats.copy(name, "kafka", tmp_path / name, given, f"by-{name}")
        for name in ("kafka", "minikafka")
    }
    assert batches["minikafka"] == batches["kafka"]
    for name in batches:
        rows = formats.rows("kafka", subscribe=f"by-{name}")
        assert sorted(row["value"] for row in rows) == sorted(transactions.committed)
