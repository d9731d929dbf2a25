"""Kafka requests: encoded in advance for a load, or sent one by one over a blocking connection.

The requests work with any Kafka broker that serves Metadata v1, CreateTopics v2, DeleteTopics v1, Produce v7
and v9, Fetch v11 and ListOffsets v1. The functions for topics, leaders and end offsets are never part of a
measurement.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import Any, NamedTuple

from benchmarks.closed_loop import Answer, Load, LoadError
from minikafka.kafka.records import batch
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)

CLIENT_ID = "load"
PRODUCE_TIMEOUT_MS = 30_000
DELETE_TIMEOUT_MS = 10_000
DELETED_SECONDS = 1.0
"""Time after which every broker has deleted the files of a deleted topic."""
MANY_BYTES = 64 << 20
FLEXIBLE_PRODUCE = 9
ONE_RECORD_OVERHEAD = 70
"""Size of a batch with one record minus the size of the value, for values of 64 to 8191 bytes."""
LENGTH = Struct(">i")


class Leader(NamedTuple):
    """The leader of a partition, with its address."""

    partition: int
    host: str
    port: int


def batch_of(size: int) -> bytes:
    """Return a batch of one record with a total length of `size` bytes and timestamps of 0."""
    value_bytes = size - ONE_RECORD_OVERHEAD
    while True:
        data = batch.build([batch.Record(0, 0, None, b"x" * value_bytes, ())])
        if len(data) == size:
            return data
        value_bytes += size - len(data)


def produce_request(
    version: int, topic: str, partition: int, data: bytes, correlation: int
) -> bytes:
    """Return a complete encoded Produce request with acks=all."""
    partitions = [{"index": partition, "records": data}]
    body = codec.request(
        PRODUCE,
        version,
        acks=-1,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[{"name": topic, "partition_data": partitions}],
    )
    return codec.encode_request(PRODUCE, version, correlation, CLIENT_ID, body)


def produce_answer(version: int, topic: str) -> Answer:
    """Return the size of a successful response with one partition, and the bytes by which it is recognized.

    Offsets and times in the response may have any value.
    """
    name = len(topic.encode())
    if version >= FLEXIBLE_PRODUCE:
        # The fields before the error code: length, correlation, tags, topics, name, partitions, index. The fields
        # after it: base offset, append time, log start offset, record errors, message, tags of the partition, tags of
        # the topic, throttle time, tags of the response.
        before, after = 4 + 4 + 1 + 1 + 1 + name + 1 + 4, 8 + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1
    else:
        before, after = 4 + 4 + 4 + 2 + name + 4 + 4, 8 + 8 + 8 + 4
    size = before + 2 + after
    return Answer(size, Struct(f">i{before - 4}xh{after}x"), (size - 4, 0))


def produce_loads(
    leaders: Sequence[Leader], topic: str, size: int, *, version: int, in_flight: int, total: int
) -> list[Load]:
    """Return one load per leading broker. Each load produces in turn to the partitions that its broker leads.

    `total`: the number of requests of all loads together.
    """
    data = batch_of(size)
    brokers = sorted({leader[1:] for leader in leaders})
    loads = []
    for host, port in brokers:
        mine = [leader.partition for leader in leaders if leader[1:] == (host, port)]
        requests = [produce_request(version, topic, partition, data, 1) for partition in mine]
        answer = produce_answer(version, topic)
        loads.append(Load(host, port, requests, answer, in_flight, total // len(brokers)))
    return loads


Secure = Callable[[socket.socket], Any]
"""A function that encrypts a new connection and logs in, and returns an object with the methods of the socket."""


class Session:
    """A blocking connection with one request at a time."""

    def __init__(self, host: str, port: int, secure: Secure | None = None) -> None:
        plain = socket.create_connection((host, port), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain if secure is None else secure(plain)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, api: int, version: int, **values: Any) -> Any:
        """Send a request and return the decoded response."""
        body = codec.request(api, version, **values)
        self.socket.sendall(codec.encode_request(api, version, 1, CLIENT_ID, body))
        return codec.decode_response(api, version, self.receive())

    def receive(self) -> bytes:
        """Receive one frame, and return the frame without the length field."""
        (size,) = LENGTH.unpack(self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise LoadError("the server closed the connection")
            data += more
        return bytes(data)


def leaders_of(bootstrap: tuple[str, int], topic: str) -> list[Leader]:
    """Wait until every partition has a leader and a full ISR, and return the leaders.

    Raises LoadError after 30 s.
    """
    deadline = time.monotonic() + 30
    while True:
        with Session(*bootstrap) as session:
            metadata = session.ask(METADATA, 1, topics=[{"name": topic}])
        addresses = {item.node_id: (item.host, item.port) for item in metadata.brokers}
        partitions = sorted(metadata.topics[0].partitions, key=lambda item: item.partition_index)
        if partitions and all(
            item.leader_id in addresses and set(item.isr_nodes) == set(item.replica_nodes)
            for item in partitions
        ):
            return [Leader(item.partition_index, *addresses[item.leader_id]) for item in partitions]
        if time.monotonic() > deadline:
            raise LoadError(
                f"a partition of {topic} has no live leader or lacks in-sync replicas after 30 s"
            )
        time.sleep(0.05)


@asynccontextmanager
async def new_topic(
    bootstrap: tuple[str, int], partitions: int, stored: int = 0
) -> AsyncIterator[tuple[str, list[Leader]]]:
    """Create a topic with three replicas, yield the topic's name and leaders, then delete the topic.

    `stored`: number of bytes that the topic will hold. For a large topic, wait until the files are deleted.
    """
    topic = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    loop = asyncio.get_running_loop()
    creating = loop.run_in_executor(None, create_topic, bootstrap, topic, partitions)
    try:
        yield topic, await asyncio.shield(creating)
    finally:
        with suppress(OSError, LoadError):  # the cluster may be down after a failure or a signal
            await creating
            await loop.run_in_executor(None, delete_topic, bootstrap, topic)
            await asyncio.sleep(DELETED_SECONDS if stored >= MANY_BYTES else 0)


def delete_topic(bootstrap: tuple[str, int], topic: str) -> None:
    """Delete a topic. Brokers delete the topic's files about a second later. Raises LoadError."""
    with Session(*_controller(bootstrap)) as session:
        answer = session.ask(DELETE_TOPICS, 1, topic_names=[topic], timeout_ms=DELETE_TIMEOUT_MS)
    if code := int(answer.responses[0].error_code):
        raise LoadError(f"{topic} was not deleted: error {code}")


def _controller(bootstrap: tuple[str, int]) -> tuple[str, int]:
    with Session(*bootstrap) as session:
        metadata = session.ask(METADATA, 1, topics=[])
    return next(
        (item.host, item.port)
        for item in metadata.brokers
        if item.node_id == metadata.controller_id
    )


def create_topic(bootstrap: tuple[str, int], topic: str, partitions: int) -> list[Leader]:
    """Create a topic with three replicas, wait until every leader serves its partition, and return the leaders.

    Raises LoadError.
    """
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 3,
        "configs": [
            {"name": "file.delete.delay.ms", "value": "0"},
            {"name": "retention.ms", "value": "-1"},  # the loads write timestamp 0
        ],
    }
    with Session(*_controller(bootstrap)) as session:
        answer = session.ask(CREATE_TOPICS, 2, topics=[wanted], timeout_ms=30_000)
    if code := int(answer.topics[0].error_code):
        raise LoadError(f"{topic} was not created: error {code}")
    leaders = leaders_of(bootstrap, topic)
    deadline = time.monotonic() + 30
    while any(end_offset(leader, topic) < 0 for leader in leaders):
        if time.monotonic() > deadline:
            raise LoadError(
                f"a leader of {topic} in the metadata does not lead its partition after 30 s"
            )
        time.sleep(0.02)
    return leaders


def end_offset(leader: Leader, topic: str, secure: Secure | None = None) -> int:
    """Return the partition's high watermark; -1 if the broker does not lead the partition."""
    with Session(leader.host, leader.port, secure) as session:
        partition = {"partition_index": leader.partition, "timestamp": -1}
        answer = session.ask(
            LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": topic, "partitions": [partition]}]
        )
    return int(answer.topics[0].partitions[0].offset)


def fetch_request(
    topic: str, offsets: dict[int, int], *, wait_ms: int, partition_bytes: int, total_bytes: int
) -> bytes:
    """Return a complete encoded Fetch v11 request without a fetch session."""
    partitions = [
        {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": partition_bytes,
        }
        for partition, offset in offsets.items()
    ]
    body = codec.request(
        FETCH,
        11,
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=total_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": partitions}],
        forgotten_topics_data=[],
        rack_id="",
    )
    return codec.encode_request(FETCH, 11, 1, CLIENT_ID, body)
