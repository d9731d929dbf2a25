"""Several requests in flight: their number, and failures, which lose, repeat and reorder no row.

`FailingBrokers` fail at random: they cause lost answers and requests, leader changes, lost batches and errors.

The brokers keep the promise of acks=all and no other: a batch whose answer was sent is never lost. A batch that was
appended, but whose answer was not sent yet, may be lost with its leader. So a new leader may have any number of the
batches in flight.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from support.spark.produce_brokers import ProduceBrokers, Sent

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

PRODUCE = 0
RETRIABLE = (5, 6, 7, 19, 20)


class FailingBrokers(ProduceBrokers):
    """Brokers that fail `failures` times in total, and work after that."""

    def __init__(self, count: int, seed: int, failures: int) -> None:
        self.failures = failures
        self.random = random.Random(seed)
        self.answered: set[tuple[str, int, int, int]] = set()
        """Topic, partition, producer id and sequence of every batch whose acknowledgement was sent."""
        self.held: dict[socket.socket, list[tuple[list[Sent], bytes]]] = {}
        """The answers of each connection that are not sent yet, with the batches that they acknowledge."""
        self._own = threading.local()
        super().__init__(count)

    def _happens(self, probability: float) -> bool:
        if not self.failures or self.random.random() >= probability:
            return False
        self.failures -= 1
        return True

    def _produce(self, index: int, body):
        self._own.written = []
        if self._happens(0.05):
            raise ConnectionAbortedError
        return super()._produce(index, body)

    def _append(self, sent: Sent, batch: bytes) -> int:
        if self._happens(0.05):
            return self.random.choice(RETRIABLE)
        code = super()._append(sent, batch)
        if not code:
            self._own.written.append(sent)
        return code

    def deliver(self, index: int, connection: socket.socket, api: int, frame: bytes) -> bool:
        """Hold the answers to Produce requests while the client sends further requests."""
        if api != PRODUCE:
            return super().deliver(index, connection, api, frame)
        with self.lock:
            held = self.held.setdefault(connection, [])
            held.append((self._own.written, frame))
            is_dead = self._happens(0.15)
            if is_dead:
                self._fail_over(index, held)
            elif not select.select([connection], [], [], 0)[0]:
                while held:
                    written, one = held.pop(0)
                    if not all(map(self._is_in_log, written)):
                        return False
                    self.answered.update(map(_key, written))
                    connection.sendall(one)
            return not is_dead

    def _fail_over(self, index: int, held: list[tuple[list[Sent], bytes]]) -> None:
        """Move some partitions of a broker. Their new leaders have only some of the batches in flight."""
        if len(self.live) > 1 and self.random.random() < 0.7:
            survivors = self.random.randrange(len(held) + 1)
            for written, _ in reversed(held[survivors:]):
                for sent in reversed(written):
                    self._lose(sent)
            for topic, partitions in self.topics.items():
                for number, partition in enumerate(partitions):
                    if partition.leader == index and self.random.random() < 0.7:
                        others = sorted(self.live - {index})
                        self.move(topic, number, self.random.choice(others))

    def _lose(self, sent: Sent) -> None:
        known = self.acknowledged[sent.topic, sent.partition, sent.producer]
        is_last = known and known[-1] == (sent.sequence, sent.count)
        if is_last and _key(sent) not in self.answered:
            known.pop()
            partition = self.topics[sent.topic][sent.partition]
            partition.truncate(partition.batches[-1][0])

    def _is_in_log(self, sent: Sent) -> bool:
        known = self.acknowledged[sent.topic, sent.partition, sent.producer]
        return (sent.sequence, sent.count) in known


def _key(sent: Sent) -> tuple[str, int, int, int]:
    return sent.topic, sent.partition, sent.producer[0], sent.sequence


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
