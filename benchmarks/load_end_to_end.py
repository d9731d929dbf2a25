"""Measures the latency from the send of a record to its arrival at a consumer, at a steady rate.

One thread uses two sockets. The producer sends a record at fixed intervals without waiting for responses. The
consumer always has one fetch request waiting at the log end. The topic is new and has no other producer, so
the records have the offsets 0, 1, 2, … in the order of the sends.
"""

from __future__ import annotations

import os
import select
from struct import Struct
from time import perf_counter_ns
from typing import NamedTuple

from benchmarks.closed_loop import LoadError
from benchmarks.kafka import LENGTH, Leader, Session, batch_of, fetch_request, produce_request

BATCH_HEAD = Struct(">qi11xi")  # base offset, length, … last offset delta
BATCH_OVERHEAD = 12
FETCH_WAIT_MS = 500
WARM_UP_SECONDS = 0.5


class EndToEnd(NamedTuple):
    """The sorted latencies in milliseconds. `behind`: number of sends that were more than 1 ms late."""

    rate: int
    latencies_ms: list[float]
    behind: int

    def percentile_ms(self, share: float) -> float:
        """Return the latency in ms at a percentile. `share`: the percentile as a fraction, such as 0.99."""
        return self.latencies_ms[
            min(int(share * len(self.latencies_ms)), len(self.latencies_ms) - 1)
        ]


def next_offset(data: memoryview, start: int) -> int:
    """Return the offset after the last complete batch in `data`; `start` if no batch is complete."""
    position = 0
    while position + 61 <= len(data):
        base, length, last_delta = BATCH_HEAD.unpack_from(data, position)
        if position + BATCH_OVERHEAD + length > len(data):
            break
        start = base + last_delta + 1
        position += BATCH_OVERHEAD + length
    return start


def records_of(frame: bytes, topic: str) -> memoryview:
    """Return the records of a Fetch v11 response for one partition. Raises LoadError."""
    head = 4 + 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4
    partition = Struct(">ihqqqi").unpack_from(frame, head)
    if partition[1]:
        raise LoadError(f"fetch was answered with error {partition[1]}")
    aborted = max(partition[5], 0)
    position = head + 34 + 16 * aborted + 4
    (size,) = LENGTH.unpack_from(frame, position)
    return memoryview(frame)[position + 4 : position + 4 + max(size, 0)]


def run(topic: str, leader: Leader, *, rate: int, count: int, size: int) -> EndToEnd:
    """Send `count` records of about `size` bytes at `rate` per second. Raises LoadError, OSError."""
    with (
        Session(leader.host, leader.port) as producer,
        Session(leader.host, leader.port) as consumer,
    ):
        request = produce_request(7, topic, leader.partition, batch_of(size), 1)
        sent, received, behind = _exchange(producer, consumer, topic, leader, request, rate, count)
    skip = min(int(WARM_UP_SECONDS * rate), count // 2)
    latencies = sorted(
        (there - here) / 1e6 for here, there in zip(sent[skip:], received[skip:], strict=True)
    )
    return EndToEnd(rate, latencies, behind)


def _exchange(
    producer: Session,
    consumer: Session,
    topic: str,
    leader: Leader,
    request: bytes,
    rate: int,
    count: int,
) -> tuple[list[int], list[int], int]:
    """Send all records; return their send times and arrival times in nanoseconds, and the number of late sends."""
    sent: list[int] = []
    received: list[int] = []
    behind = 0
    period = 1_000_000_000 // rate
    consumer.socket.sendall(_fetch(topic, leader, 0))
    due = perf_counter_ns()
    while len(received) < count:
        wait = (due - perf_counter_ns()) / 1e9 if len(sent) < count else 5.0
        ready, _, _ = select.select([producer.socket, consumer.socket], [], [], max(wait, 0))
        if consumer.socket in ready:
            frame = consumer.receive()
            now = perf_counter_ns()
            offset = next_offset(records_of(frame, topic), len(received))
            received.extend([now] * (offset - len(received)))
            consumer.socket.sendall(_fetch(topic, leader, offset))
        if producer.socket in ready and not os.read(producer.socket.fileno(), 1 << 16):
            raise LoadError("the server closed the connection")
        if not ready and len(sent) == count:
            raise LoadError(f"{count - len(received)} records did not arrive")
        now = perf_counter_ns()
        if len(sent) < count and now >= due:
            behind += now - due > 1_000_000
            due += period
            sent.append(perf_counter_ns())
            producer.socket.sendall(request)
    return sent, received, behind


def _fetch(topic: str, leader: Leader, offset: int) -> bytes:
    return fetch_request(
        topic,
        {leader.partition: offset},
        wait_ms=FETCH_WAIT_MS,
        partition_bytes=1 << 20,
        total_bytes=1 << 20,
    )
