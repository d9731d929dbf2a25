"""What a task passes to the driver: its encoded rows, and the write to which they belong.

The rows are a stream of bytes with one frame per encoded batch, which a task writes and the driver reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.spark.micro_batches import read_plan
from minikafka.spark.records.encode import NO_PRODUCER, Rows, sizes
from minikafka.spark.sink.backlog import Batch
from minikafka.spark.sink.once.chunks import Chunks, ChunkStage
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.producer import encoded, windows
from minikafka.spark.sink.routing import client, needed_checksum, routed
from minikafka.spark.sink.rows import Origin
from minikafka.spark.staged_topics import staged_topic

_HEAD: Final = Struct(">Hiqqqi")


class Frame(NamedTuple):
    """An encoded batch without a producer, and its partition."""

    tp: TopicPartition
    first: int
    """Number of the first row in the task."""
    last: int
    size: int
    """Approximate number of bytes before compression."""
    data: bytearray


def pack(frame: Frame) -> bytes:
    """Return a frame as bytes."""
    topic = frame.tp.topic.encode()
    head = _HEAD.pack(
        len(topic), frame.tp.partition, frame.first, frame.last, frame.size, len(frame.data)
    )
    return b"".join((head, topic, frame.data))


def unpack(pieces: Iterable[bytes]) -> Iterator[Frame]:
    """Yield the frames of a stream that arrives in pieces of any size. Raises `ProtocolViolation`."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        at = 0
        while (found := _next_frame(waiting, at)) is not None:
            frame, at = found
            yield frame
        del waiting[:at]
    if waiting:
        raise ProtocolViolation("the encoded rows of a task are cut off")


def _next_frame(data: bytearray, at: int) -> tuple[Frame, int] | None:
    """Return the frame at a position, and the position after it; None if a part of the frame is missing."""
    if len(data) - at < _HEAD.size:
        return None
    topic_size, partition, first, last, size, batch_size = _HEAD.unpack_from(data, at)
    name_at = at + _HEAD.size
    batch_at = name_at + topic_size
    end = batch_at + batch_size
    if end > len(data):
        return None
    tp = TopicPartition(data[name_at:batch_at].decode(), partition)
    return Frame(tp, first, last, size, data[batch_at:end]), end


_MODULUS: Final = 1 << 128


@dataclass(frozen=True)
class SinkWrite:
    """A write of a table or of a micro-batch, as the tasks see it. The numbers and names come from Spark."""

    name: str
    """A name that the driver makes up for each run of the write, and that all its tasks know."""
    query: str | None
    batch: int | None
    run: str | None
    task: int


@dataclass
class StagedRows(WriterCommitMessage):
    """The encoded rows of one task."""

    write: SinkWrite
    rows: int
    partitions: tuple[TopicPartition, ...]
    data: bytes
    """The encoded rows, if they are few."""
    chunks: Chunks | None
    """Where the encoded rows are, if they are many."""
    digest: int | None = None
    """The sum of the digests of the rows, in any order; None if the plan of the micro-batch is known instead."""


def stage_rows(
    options: WriteOptions,
    write: SinkWrite,
    batches: Iterator[pa.RecordBatch],
    origin: Origin | None = None,
) -> StagedRows:
    """Encode all rows of a task. Needs no Spark session. Raises the errors of `write_rows`."""
    crc = needed_checksum()
    partitions = set[TopicPartition]()
    rows = 0
    is_planned = write.batch is None or read_plan(options.checkpoint, write.batch) is not None
    digest = None if is_planned else 0
    with client(options) as leaders:
        topic = staged_topic(transactional_id(options, write))
        stage = ChunkStage(leaders, options, topic, write.task, crc)
        for table in chain.from_iterable(routed(options, leaders, batches, origin)):
            rows += len(table.order)
            if digest is not None:
                digest += _digest(table.rows)
            size = sizes(table.rows)
            for pieces in windows(table, size, options.batch_bytes):
                nothing = [0] * len(pieces)
                for tp, batch in encoded(
                    table, pieces, size, nothing, options.codec, NO_PRODUCER, crc
                ):
                    partitions.add(tp)
                    stage.add(pack(_frame(tp, batch)))
        data, chunks = stage.end()
    return StagedRows(write, rows, tuple(sorted(partitions)), data, chunks, digest)


def content_of(options: WriteOptions, staged: Sequence[StagedRows]) -> str | None:
    """Return what identifies the content of a micro-batch: its plan in the checkpoint, or else its rows.

    Rows identify a micro-batch only if they are the same whenever it runs, so the plan is preferred.
    """
    batch = staged[0].write.batch
    if batch is not None and (plan := read_plan(options.checkpoint, batch)):
        return f"plan {plan.digest}"
    digests = [one.digest for one in staged if one.digest is not None]
    return f"rows {sum(digests) % _MODULUS:032x}" if len(digests) == len(staged) else None


def _digest(rows: Rows) -> int:
    """Return the sum of the digests of the keys and values."""
    found = 0
    for pair in zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True):
        found += int.from_bytes(blake2b(repr(pair).encode(), digest_size=16).digest())
    return found % _MODULUS


def transactional_id(options: WriteOptions, write: SinkWrite) -> str:
    """Return the transactional id of a query, or of a write outside of queries."""
    return f"{options.id_prefix}-{write.query or write.name}"


def _frame(tp: TopicPartition, batch: Batch) -> Frame:
    assert batch.rows is not None
    numbers = batch.rows.numbers
    return Frame(tp, int(numbers[0]), int(numbers[-1]), batch.size, batch.data)
