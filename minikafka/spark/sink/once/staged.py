"""What a task passes to the driver: its encoded rows, and the write to which they belong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from minikafka.base.model import TopicPartition
from minikafka.spark.records.encode import NO_PRODUCER, sizes
from minikafka.spark.sink.backlog import Batch
from minikafka.spark.sink.once.chunks import Chunks, Stage
from minikafka.spark.sink.once.frames import Frame, pack
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.producer import encoded, windows
from minikafka.spark.sink.routing import client, needed_checksum, routed
from minikafka.spark.sink.rows import Origin
from minikafka.spark.staged_topics import staged_topic


@dataclass(frozen=True)
class Write:
    """A write of a table or of a micro-batch, as the tasks see it. The numbers and names come from Spark."""

    name: str
    """A name that the driver makes up for each run of the write, and that all its tasks know."""
    query: str | None
    batch: int | None
    run: str | None
    task: int


@dataclass
class Staged(WriterCommitMessage):
    """The encoded rows of one task."""

    write: Write
    rows: int
    partitions: tuple[TopicPartition, ...]
    data: bytes
    """The encoded rows, if they are few."""
    chunks: Chunks | None
    """Where the encoded rows are, if they are many."""


def stage_rows(
    options: WriteOptions,
    write: Write,
    batches: Iterator[pa.RecordBatch],
    origin: Origin | None = None,
) -> Staged:
    """Encode all rows of a task. Needs no Spark session. Raises the errors of `write_rows`."""
    crc = needed_checksum()
    partitions = set[TopicPartition]()
    rows = 0
    with client(options) as leaders:
        topic = staged_topic(transactional_id(options, write))
        stage = Stage(leaders, options, topic, write.task, crc)
        for table in chain.from_iterable(routed(options, leaders, batches, origin)):
            rows += len(table.order)
            size = sizes(table.rows)
            for pieces in windows(table, size, options.batch_bytes):
                nothing = [0] * len(pieces)
                for tp, batch in encoded(
                    table, pieces, size, nothing, options.codec, NO_PRODUCER, crc
                ):
                    partitions.add(tp)
                    stage.add(pack(_frame(tp, batch)))
        data, chunks = stage.end()
    return Staged(write, rows, tuple(sorted(partitions)), data, chunks)


def transactional_id(options: WriteOptions, write: Write) -> str:
    """Return the transactional id of a query, or of a write outside of queries."""
    return f"{options.id_prefix}-{write.query or write.name}"


def _frame(tp: TopicPartition, batch: Batch) -> Frame:
    assert batch.rows is not None
    numbers = batch.rows.numbers
    return Frame(tp, int(numbers[0]), int(numbers[-1]), batch.size, batch.data)
