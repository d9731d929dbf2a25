"""Several requests in flight: their number, and failures, which lose, repeat and reorder no row."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from support.failing_brokers import FailingBrokers
from support.produce_brokers import ProduceBrokers

from minikafka.base.model import TopicPartition
from minikafka.spark.sink import producer, sending
from minikafka.spark.sink.options import parse
from minikafka.spark.sink.writers import write_rows
from minikafka.spark.source.options import Mode
from minikafka.spark.source.options import parse as parse_read
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.readers import read_ranges
from minikafka.spark.wire import deadline
from minikafka.spark.wire.connection import BlockingConnection

PARTITIONS = 4
ROWS = 3_000
FAILURES = 40


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(deadline, "_FIRST_PAUSE_MS", 1)
    monkeypatch.setattr(deadline, "_LONGEST_PAUSE_MS", 1)


def tables(rng: random.Random, partitions: int = PARTITIONS) -> Iterator[pa.RecordBatch]:
    """Yield `ROWS` numbered rows in Arrow batches of random size, in random partitions."""
    first = 0
    while first < ROWS:
        count = min(rng.randrange(1, 700), ROWS - first)
        numbers = [rng.randrange(partitions) for _ in range(count)]
        values = [b"%0*d" % (rng.choice([6, 60]), first + index) for index in range(count)]
        columns = {"value": values, "partition": pa.array(numbers, pa.int32())}
        yield pa.RecordBatch.from_pydict(columns)
        first += count


def written(brokers: ProduceBrokers, partition: int) -> list[int]:
    """Return the numbers of the rows in the log of a partition, in offset order."""
    given = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "lines"}
    end = brokers.topics["lines"][partition].high_watermark
    options = parse_read(given, Mode.STREAM)
    batches = read_ranges(options, [OffsetRange(TopicPartition("lines", partition), 0, end)])
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def wanted(seed: int) -> list[list[int]]:
    """Return the numbers of the rows of each partition, in the order of the rows."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for batch in tables(random.Random(seed)):
        pairs = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for value, partition in pairs:
            found[partition].append(int(value))
    return found


@pytest.mark.parametrize(("seed", "in_flight"), [*((seed, "5") for seed in range(8)), (8, "1")])
def test_every_row_is_written_once_and_in_order_through_failures(seed, in_flight, monkeypatch):
    monkeypatch.setattr("minikafka.spark.sink.routing._BUFFER_BYTES", 20_000)
    monkeypatch.setattr(sending, "REQUEST_BYTES", 4_000)
    monkeypatch.setattr(producer, "REQUEST_BYTES", 4_000)
    monkeypatch.setattr(sending, "_UNACKNOWLEDGED_BYTES", 60_000)
    brokers = FailingBrokers(3, seed, FAILURES)
    brokers.create("lines", PARTITIONS)
    brokers.max_message_bytes = random.Random(seed).choice([1_200, 1 << 20])
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "topic": "lines",
        "kafka.batch.size": "2000",
        "kafka.max.in.flight.requests.per.connection": in_flight,
    }
    try:
        assert write_rows(parse(given), tables(random.Random(seed))) == ROWS
        assert brokers.failures < FAILURES
        brokers.failures = 0
        found = [written(brokers, number) for number in range(PARTITIONS)]
    finally:
        brokers.close()
    assert found == wanted(seed)


@pytest.fixture
def in_flight(monkeypatch) -> list[int]:
    """Return a list of the number of requests in flight after each request that was sent."""
    found: list[int] = []
    send = BlockingConnection.send

    def counting(connection: BlockingConnection, api: tuple[int, int], body: bytes) -> None:
        send(connection, api, body)
        found.append(len(connection._waiting))

    monkeypatch.setattr(BlockingConnection, "send", counting)
    return found


@pytest.mark.parametrize(("option", "most"), [("5", 5), ("2", 2), ("1", 1), ("1000", 5)])
def test_option_sets_the_number_of_requests_in_flight_at_most_five(in_flight, option, most):
    brokers = ProduceBrokers()
    brokers.create("lines", 1)
    enough = threading.Event()

    def answer_late():
        """Answer all requests but the first one only after `most` requests were sent."""
        if brokers.sent:
            enough.wait(0.2)
            if max(in_flight) >= most:
                enough.set()

    brokers.on_produce = answer_late
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "topic": "lines",
        "kafka.batch.size": "2000",
        "kafka.max.in.flight.requests.per.connection": option,
    }
    try:
        write_rows(parse(given), tables(random.Random(1), 1))
    finally:
        brokers.close()
    assert max(in_flight) == most


def test_first_batch_of_a_partition_is_alone_until_it_is_acknowledged(in_flight):
    brokers = ProduceBrokers()
    brokers.create("lines", 1)
    brokers.produce_errors = [19, 19, 19]
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "topic": "lines",
        "kafka.batch.size": "2000",
    }
    try:
        write_rows(parse(given), tables(random.Random(1), 1))
    finally:
        brokers.close()
    assert [sent.sequence for sent in brokers.sent[:4]] == [0, 0, 0, 0]
    assert brokers.sent[4].sequence > 0


def test_rows_are_not_encoded_while_too_many_bytes_are_unacknowledged(monkeypatch):
    monkeypatch.setattr(sending, "REQUEST_BYTES", 4_000)
    monkeypatch.setattr(producer, "REQUEST_BYTES", 4_000)
    monkeypatch.setattr(sending, "_UNACKNOWLEDGED_BYTES", 20_000)
    most = 0
    encode = producer.IdempotentProducer._encode

    def measured(self, *arguments):
        nonlocal most
        encode(self, *arguments)
        most = max(most, self._sender._unacknowledged)

    monkeypatch.setattr(producer.IdempotentProducer, "_encode", measured)
    brokers = ProduceBrokers()
    brokers.create("lines", PARTITIONS)
    brokers.on_produce = lambda: time.sleep(0.002)
    given = {
        "kafka.bootstrap.servers": brokers.bootstrap,
        "topic": "lines",
        "kafka.batch.size": "2000",
    }
    try:
        write_rows(parse(given), tables(random.Random(3)))
    finally:
        brokers.close()
    assert 20_000 < most < 30_000
