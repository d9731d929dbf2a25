"""The latency of a producer while a consumer that lags reads old records of another topic from the same broker.

Rounds without and with the consumer alternate, so that their ratio says more than either figure. The consumer is a
process of its own and reads at most READ_BYTES_PER_SECOND, what a network of 1 Gbit/s carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from statistics import median
from time import perf_counter, perf_counter_ns, sleep
from typing import Any, NamedTuple

from benchmarks.closed_loop import LoadError
from benchmarks.kafka import (
    LENGTH,
    Leader,
    Session,
    batch_of,
    fetch_request,
    produce_answer,
    produce_request,
)
from benchmarks.load_end_to_end import next_offset, records_of

PRODUCE_VERSION = 7
PRODUCE_BYTES = 1024
PAUSE_SECONDS = 0.002
FETCH_BYTES = 1 << 20
READ_BYTES_PER_SECOND = 125_000_000


class Lagging(NamedTuple):
    """The p99 (ms) of each round without and with the consumer, and the bytes that it read."""

    alone: list[float]
    beside: list[float]
    bytes: int

    @property
    def ratio(self) -> float:
        """The median p99 with the consumer by the one without."""
        return median(self.beside) / median(self.alone)


def run(
    old: str, topic: str, read_at: Leader, leader: Leader, end: int, *, rounds: int, count: int
) -> Lagging:
    """Produce `count` requests per round to `topic`; read `old` up to `end` in every second round.

    `read_at` and `leader`, the leaders of both, are the same broker. Raises LoadError.
    """
    alone, beside, total = [], [], 0
    _produce(topic, leader, count)
    for _ in range(rounds):
        alone.append(_produce(topic, leader, count))
        with _consumer(old, read_at, end) as read:
            beside.append(_produce(topic, leader, count))
        total += read.value
    return Lagging(alone, beside, total)


def _produce(topic: str, leader: Leader, count: int) -> float:
    """Send requests one by one, with a pause in between; return the p99 of their latencies in ms."""
    frame = produce_request(
        PRODUCE_VERSION, topic, leader.partition, batch_of(PRODUCE_BYTES), correlation=1
    )
    answer = produce_answer(PRODUCE_VERSION, topic)
    latencies = []
    with Session(leader.host, leader.port) as session:
        for _ in range(count):
            began = perf_counter_ns()
            session.socket.sendall(frame)
            data = session.receive()
            latencies.append(perf_counter_ns() - began)
            if next(answer.fields.iter_unpack(LENGTH.pack(len(data)) + data)) != answer.expected:
                raise LoadError("a produce request was refused")
            sleep(PAUSE_SECONDS)
    return sorted(latencies)[int(0.99 * (count - 1))] / 1e6


@contextmanager
def _consumer(topic: str, leader: Leader, end: int) -> Iterator[Any]:
    """Read in another process until the block ends; yield the counter of the bytes read."""
    spawned = get_context("spawn")
    read, stop, started = spawned.Value("q", 0), spawned.Event(), spawned.Event()
    process = spawned.Process(target=_read, args=(topic, leader, end, read, stop, started))
    process.start()
    try:
        if not started.wait(30):
            raise LoadError("the consumer did not start")
        yield read
    finally:
        stop.set()
        process.join()
    if process.exitcode:
        raise LoadError(f"the consumer ended with exit code {process.exitcode}")


def _read(topic: str, leader: Leader, end: int, read: Any, stop: Any, started: Any) -> None:
    """Read a partition again and again until `stop`, and count the bytes in `read`."""
    offset, began = 0, perf_counter()
    with Session(leader.host, leader.port) as session:
        while not stop.is_set():
            session.socket.sendall(
                fetch_request(
                    topic,
                    {leader.partition: offset},
                    wait_ms=500,
                    partition_bytes=FETCH_BYTES,
                    total_bytes=FETCH_BYTES,
                )
            )
            data = session.receive()
            offset = next_offset(records_of(data, topic), offset)
            offset = 0 if offset >= end else offset
            read.value += len(data)
            started.set()
            ahead = read.value / READ_BYTES_PER_SECOND - (perf_counter() - began)
            if ahead > 0:
                sleep(ahead)
