"""The encoded rows of a task on their way to the driver: few rows in the task's message, many in a staged topic.

A staged topic has the rows in chunks, one record for each. The key of a chunk names the task's attempt and the number
of the chunk, so the driver notices if another record is at the offset of a chunk, for example because the topic was
deleted and created again. Chunks of attempts that failed stay in the topic until they are deleted with the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from minikafka.base.errors import ErrorCode, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.records.batches import sections
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.decode import decode
from minikafka.spark.records.encode import Rows, encode
from minikafka.spark.sink.backlog import Batch
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.producer import new_producer, raise_if_refused
from minikafka.spark.sink.routing import client
from minikafka.spark.sink.sending import Sender
from minikafka.spark.source.fetch import RangesReader
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.wire import topics
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, Unreachable, raise_if_final

INLINE_BYTES: Final = 128 << 10
"""Maximum size of the encoded rows in a task's message. Spark's driver has the messages of all tasks in memory."""
CHUNK_BYTES: Final = 512 << 10
_FETCH_BYTES: Final = 8 << 20
_PARTITIONS: Final = 8
_MOST_REPLICAS: Final = 3
_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(24 * 60 * 60 * 1000),
    "max.message.bytes": str(1 << 20),
}
_EXISTS: Final = ErrorCode.TOPIC_ALREADY_EXISTS


class StagedRowsLost(MinikafkaError):
    """Rows that a task has left in a staged topic are no longer there."""


@dataclass(frozen=True)
class Chunks:
    """Where a task has left its encoded rows. `attempt`: the beginning of the keys of its chunks."""

    tp: TopicPartition
    attempt: bytes
    offsets: tuple[int, ...]


class ChunkStage:
    """Collects the encoded rows of a task. `topic`: the staged topic, which is created if it is needed."""

    def __init__(
        self,
        leaders: LeaderConnections,
        options: WriteOptions,
        topic: str,
        task: int,
        crc: Checksum,
    ) -> None:
        self._leaders = leaders
        self._options = options
        self._topic = topic
        self._task = task
        self._crc = crc
        self._waiting = bytearray()
        self._writer: _ChunkWriter | None = None

    def add(self, data: bytes) -> None:
        """Add bytes after the others."""
        self._waiting += data
        if len(self._waiting) >= CHUNK_BYTES:
            self._write(CHUNK_BYTES)

    def end(self) -> tuple[bytes, Chunks | None]:
        """Return the staged bytes themselves if they are few, else their place in the staged topic."""
        if self._writer is None and len(self._waiting) <= INLINE_BYTES:
            return bytes(self._waiting), None
        self._write(1)
        assert self._writer is not None
        return b"", self._writer.end()

    def _write(self, least: int) -> None:
        """Write the bytes in chunks, as long as at least `least` bytes are left."""
        if self._writer is None:
            deadline = Deadline(self._options.delivery_timeout_ms / 1000)
            tp = _open(self._leaders, self._topic, self._task, deadline)
            self._writer = _ChunkWriter(self._leaders, self._options, tp, self._crc)
        while len(self._waiting) >= least:
            self._writer.write(bytes(self._waiting[:CHUNK_BYTES]))
            del self._waiting[:CHUNK_BYTES]


class _ChunkWriter:
    """Writes chunks to a partition, with a producer of its own."""

    def __init__(
        self, leaders: LeaderConnections, options: WriteOptions, tp: TopicPartition, crc: Checksum
    ) -> None:
        self._tp = tp
        self._crc = crc
        self._attempt = os.urandom(16)
        self._producer = new_producer(leaders, Deadline(options.delivery_timeout_ms / 1000))
        self._sender = Sender(leaders, options, refused=raise_if_refused, halves=lambda _: None)
        self._written: list[Batch] = []

    def write(self, chunk: bytes) -> None:
        """Send a chunk when there is room for it."""
        number = len(self._written)
        row = Rows(
            pa.array([_key(self._attempt, number)], pa.binary()),
            pa.array([chunk], pa.binary()),
            np.array([time.time_ns() // 1_000_000]),
            None,
            np.array([number]),
        )
        data = encode(row, 0, self._producer, number, self._crc)
        self._written.append(Batch(number, len(data), data, row))
        self._sender.restart()
        self._sender.make_room()
        self._sender.add(self._tp, self._written[-1])
        self._sender.exchange()

    def end(self) -> Chunks:
        """Wait until all chunks are acknowledged."""
        self._sender.flush()
        return Chunks(self._tp, self._attempt, tuple(one.base_offset for one in self._written))


def _key(attempt: bytes, number: int) -> bytes:
    return attempt + number.to_bytes(4, "big")


def _open(leaders: LeaderConnections, topic: str, task: int, deadline: Deadline) -> TopicPartition:
    """Create the staged topic if it does not exist. Return the partition for a task."""

    def count() -> tuple[int, list[str]]:
        leaders.refresh([topic])
        found = len(leaders.partitions([topic]))
        return found, [] if found else [topic]

    found, _ = count()
    if not found:
        _create(leaders, topic, deadline)
        found, _ = leaders.find(count, deadline, creates=True)
    if not found:
        raise Unreachable(f"topic {topic} was not created in time")
    return TopicPartition(topic, task % found)


def _create(leaders: LeaderConnections, topic: str, deadline: Deadline) -> None:
    timeout_ms = 10_000
    while True:
        replicas = min(_MOST_REPLICAS, leaders.broker_count())
        body = topics.create_topic_request(topic, _PARTITIONS, replicas, _SETTINGS, timeout_ms)
        code = leaders.call_controller(topics.CREATE_TOPICS, body, topics.parse_create_topic)
        if code in (ErrorCode.NONE, _EXISTS):
            return
        if code is not None:
            raise_if_final(code, topic, topics.CREATE_TOPICS, topic)
        if not deadline.wait_to_retry():
            raise Unreachable(f"no controller creates topic {topic}")


def pieces(options: WriteOptions, chunks: Chunks, crc: Checksum) -> Iterator[bytes]:
    """Yield the chunks of a task in order. Raises `StagedRowsLost`, `Unreachable` and `KafkaError`."""
    number = 0
    with client(options, "staged") as leaders:
        leaders.forget()
        reader = RangesReader(
            leaders,
            list(_ranges(chunks)),
            Deadline(options.delivery_timeout_ms / 1000),
            fetch_bytes=_FETCH_BYTES,
            fail_on_data_loss=True,
        )
        for block in reader.blocks():
            start, end = block.start, block.wanted.end
            for section in sections(block.response.records, start, end, crc):
                found = decode([section], *chunks.tp, start, end, with_headers=False)
                for key, value in zip(found.column("key"), found.column("value"), strict=True):
                    if key.as_py() != _key(chunks.attempt, number):
                        raise _lost(chunks)
                    yield value.as_py()
                    number += 1
    if number != len(chunks.offsets):
        raise _lost(chunks)


def _lost(chunks: Chunks) -> StagedRowsLost:
    return StagedRowsLost(
        f"{chunks.tp} no longer has the rows that a task has left in it; the micro-batch must run again"
    )


def _ranges(chunks: Chunks) -> Iterator[OffsetRange]:
    """Yield the ranges of consecutive offsets."""
    start = end = chunks.offsets[0]
    for offset in chunks.offsets:
        if offset != end:
            yield OffsetRange(chunks.tp, start, end)
            start = offset
        end = offset + 1
    yield OffsetRange(chunks.tp, start, end)


def delete_chunks(
    leaders: LeaderConnections, done: Sequence[Chunks], request_timeout_ms: int
) -> None:
    """Delete the records up to the last chunks of a micro-batch, if the leaders answer. Retention deletes the rest."""
    below: dict[TopicPartition, int] = {}
    for chunks in done:
        below[chunks.tp] = max(below.get(chunks.tp, 0), chunks.offsets[-1] + 1)
    leaders.try_to_refresh(below)
    by_leader: dict[tuple[str, int], dict[TopicPartition, int]] = {}
    for tp, offset in below.items():
        if address := leaders.address(tp):
            by_leader.setdefault(address, {})[tp] = offset
    for address, offsets in by_leader.items():
        try:
            body = topics.delete_records_request(offsets, request_timeout_ms)
            leaders.connection(address).call(topics.DELETE_RECORDS, body)
        except OSError:
            leaders.drop(address)


def delete_topic(leaders: LeaderConnections, topic: str) -> None:
    """Delete the staged topic of a write that is not repeated, if the controller answers."""
    with suppress(Unreachable):
        body = topics.delete_topic_request(topic, 10_000)
        leaders.call_controller(topics.DELETE_TOPICS, body, topics.parse_delete_topic)
