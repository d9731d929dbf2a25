"""End-to-end latency at a steady rate: from the first byte of a produce request to its record at a
consumer.

One thread, two sockets: a producer that sends a record at fixed intervals without waiting for
responses, and a consumer that always has one fetch waiting at the log end. The topic is new and has
no other producer, so the record at offset n is the n-th that was sent.
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
    """Latencies in milliseconds, sorted; `behind`: number of sends over a millisecond late."""

    rate: int
    latencies_ms: list[float]
    behind: int

    def percentile_ms(self, share: float) -> float:
        """Return the latency that this fraction of records did not exceed."""
        return self.latencies_ms[
            min(int(share * len(self.latencies_ms)), len(self.latencies_ms) - 1)
        ]


def next_offset(data: memoryview, start: int) -> int:
    """Return the offset after the last whole batch in the records; `start` if there is none."""
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
    """Return the send and arrival times of each record in nanoseconds, and the number of late sends."""
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
