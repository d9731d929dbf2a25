"""Measures a producer's latency while a lagging consumer reads old records of another topic from the same broker.

Three loads take turns: without a consumer, with a consumer that reads from a stand-in process, and with a consumer
that reads from the broker. The stand-in sends the same response from a file, so the second load shows the cost of
the machine's processors and network. The third load shows what the broker adds. The consumer runs in a separate
process, and reads at most READ_BYTES_PER_SECOND, which is nearly 1 Gbit/s. The consumer runs only when processors
are idle (SCHED_IDLE), because a consumer on another machine would not use the brokers' processors.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from tempfile import TemporaryFile
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
TURNS = 4
"""Turns of the three loads in one round. Short turns reduce the effect of changes in the machine's speed."""
FETCH_BYTES = 1 << 20
READ_BYTES_PER_SECOND = 100_000_000
PIECE_BYTES = 256 << 10
"""Number of bytes that the stand-in process reads and sends at once."""


class Lagging(NamedTuple):
    """The p99 latency (ms) of the three loads, and the number of bytes read from the broker.

    `alone`: without a consumer. `elsewhere`: with a consumer that reads from the stand-in process. `beside`: with
    a consumer that reads from the broker.
    """

    alone: float
    elsewhere: float
    beside: float
    bytes: int

    @property
    def ratio(self) -> float:
        """The p99 latency with a consumer of the broker, divided by the p99 latency with a consumer of the stand-in."""
        return self.beside / self.elsewhere

    @property
    def ratio_to_alone(self) -> float:
        """The p99 while the consumer reads from the broker, divided by the p99 without a consumer."""
        return self.beside / self.alone


def run(
    old: str, topic: str, read_at: Leader, leader: Leader, end: int, *, rounds: int, count: int
) -> Lagging:
    """Measure the latency of produce requests to `topic` under the three loads that `Lagging` describes.

    In each round, each load has `count` produce requests. The consumer repeatedly reads the records of the topic `old`
    below offset `end`.

    `read_at` (the leader of `old`) and `leader` (the leader of `topic`) must be the same broker. Raises LoadError.
    """
    alone, elsewhere, beside, total = list[int](), list[int](), list[int](), 0
    count //= TURNS
    _produce(topic, leader, count)
    for _ in range(rounds * TURNS):
        alone += _produce(topic, leader, count)
        with _stand_in(old, read_at) as other, _consumer(old, other, end):
            elsewhere += _produce(topic, leader, count)
        with _consumer(old, read_at, end) as read:
            beside += _produce(topic, leader, count)
        total += read.value
    return Lagging(_p99(alone), _p99(elsewhere), _p99(beside), total)


def _p99(latencies: list[int]) -> float:
    """Return the 99th percentile, in ms, of latencies in nanoseconds."""
    return sorted(latencies)[int(0.99 * (len(latencies) - 1))] / 1e6


@contextmanager
def _stand_in(topic: str, leader: Leader) -> Iterator[Leader]:
    """Run a process that stands in for the leader, and yield the address of the process.

    The process answers every fetch with the response that the leader returned for offset 0.
    """
    with Session(leader.host, leader.port) as session:
        session.socket.sendall(_fetch(topic, leader, 0))
        data = session.receive()
    spawned = get_context("spawn")
    port, ready = spawned.Value("i", 0), spawned.Event()
    process = spawned.Process(target=_serve, args=(LENGTH.pack(len(data)) + data, port, ready))
    process.start()
    try:
        if not ready.wait(30):
            raise LoadError("the process that stands in for the leader did not start")
        yield leader._replace(host="127.0.0.1", port=port.value)
    finally:
        process.kill()
        process.join()


def _serve(answer: bytes, port: Any, ready: Any) -> None:
    """Send `answer` for each request of one client. As in a broker, it is read from a file and sent in pieces."""
    with TemporaryFile() as file, socket.create_server(("127.0.0.1", 0)) as listener:
        file.write(answer)
        file.flush()
        port.value = listener.getsockname()[1]
        ready.set()
        client, _ = listener.accept()
        with client:
            while client.recv(4096):  # the client sends one small request at a time
                for position in range(0, len(answer), PIECE_BYTES):
                    client.sendall(os.pread(file.fileno(), PIECE_BYTES, position))


def _produce(topic: str, leader: Leader, count: int) -> list[int]:
    """Send produce requests one by one, with pauses, and return the latencies in ns."""
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
    return latencies


@contextmanager
def _consumer(topic: str, leader: Leader, end: int) -> Iterator[Any]:
    """Run a consumer in another process during the `with` body, and yield the counter of the bytes read."""
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
    """Read a partition repeatedly until `stop` is set. Add the number of received bytes to the counter `read`."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    offset, began = 0, perf_counter()
    with Session(leader.host, leader.port) as session:
        while not stop.is_set():
            session.socket.sendall(_fetch(topic, leader, offset))
            data = session.receive()
            offset = next_offset(records_of(data, topic), offset)
            offset = 0 if offset >= end else offset
            read.value += len(data)
            started.set()
            ahead = read.value / READ_BYTES_PER_SECOND - (perf_counter() - began)
            if ahead > 0:
                sleep(ahead)


def _fetch(topic: str, leader: Leader, offset: int) -> bytes:
    return fetch_request(
        topic,
        {leader.partition: offset},
        wait_ms=500,
        partition_bytes=FETCH_BYTES,
        total_bytes=FETCH_BYTES,
    )
