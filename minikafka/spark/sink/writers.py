"""Writers of batches and streams to topics, for Spark. Delivery is at-least-once.

Each task writes with acks=all and its own producer id, and succeeds when every row is acknowledged. So `commit`
does nothing. If Spark runs a task again, or runs a micro-batch again after a crash, all rows are written again.
Transactions are not used: they would have to begin in `write` and end in `commit`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.spark.errors import one_line_errors
from minikafka.spark.records import checksum
from minikafka.spark.sink.options import CREATE, TOPIC, WriteOptions
from minikafka.spark.sink.producer import IdempotentProducer
from minikafka.spark.sink.rows import Origin, Router
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.kept import kept_client
from minikafka.spark.wire.leaders import Leaders
from minikafka.spark.workers import Shipped

_BUFFER_BYTES: Final = 8 << 20
"""Bytes of rows to collect before sending. A large buffer gives large batches even with many partitions."""
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Names of the properties with the query id and the micro-batch id, which Spark sets for tasks of a stream."""

_NO_TOPIC: Final = f"correct option {TOPIC}, create the topic, or set option {CREATE} to true"
_NOT_CREATED: Final = (
    "create it: the brokers did not, maybe because auto.create.topics.enable is false"
)


@dataclass
class Written(WriterCommitMessage):
    """The number of rows that one task has written."""

    rows: int


class _Writer:
    """Writes the rows of a task.

    Spark sends the writer from the driver to executors, so the writer holds only the options.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows, and return when every row is acknowledged."""
        with one_line_errors():
            return Written(write_rows(self._options, iterator, _origin(self._options)))


class BatchWriter(_Writer, DataSourceArrowWriter, metaclass=Shipped):
    """Appends a table to topics. Records that a failed attempt wrote stay in the topics."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter, metaclass=Shipped):
    """Appends each micro-batch of a stream to topics."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: all rows were acknowledged before the tasks succeeded."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: records that the tasks wrote stay in the topics, and Spark retries the micro-batch."""


def _origin(options: WriteOptions) -> Origin | None:
    """Return the query, micro-batch and running task as an `Origin`; None if the option `originHeader` is not set."""
    if options.origin is None:
        return None
    task = TaskContext.get()
    if task is None:
        raise ConfigError("option originHeader works only in a Spark task")
    batch = task.getLocalProperty(_BATCH_ID)
    query = task.getLocalProperty(_QUERY_ID)
    return Origin(options.origin, query, None if batch is None else int(batch), task.partitionId())


def write_rows(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], origin: Origin | None = None
) -> int:
    """Write all rows of a task, and return the number of rows. Needs no Spark session.

    Raises `RowRefused`, `WriteFailed`, `Unreachable`, `KafkaError`, and `ConfigError` if CRC-32C is not available.
    """
    crc = checksum.find()
    if crc is None:
        raise ConfigError(
            "writing needs CRC-32C: pip install fastcrc in the environment of the executors"
        )
    key = "write", options.servers, options.client_id, options.request_timeout_ms
    with kept_client(key, partial(_connect, options)) as leaders:
        leaders.forget()  # a topic may have been created again since the last task
        producer = IdempotentProducer(leaders, options, crc)
        topics = _Topics(leaders, options)
        router = Router(options.topic, origin, topics.partition_count, _wall_ms)
        total = 0
        for gathered in _gathered(batches):
            producer.send(router.divide(gathered))
            total += sum(batch.num_rows for batch in gathered)
        producer.flush()
    return total


def _connect(options: WriteOptions) -> Leaders:
    return Leaders(options.servers, options.client_id, options.request_timeout_ms / 1000)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield lists of Arrow batches, in order. A list ends when it has `_BUFFER_BYTES`.

    An Arrow batch that is much larger is alone in its list, because a column of joined batches must not have more
    than 2 GiB.
    """
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if found and size + batch.nbytes > 2 * _BUFFER_BYTES:
            yield found
            found, size = [], 0
        found.append(batch)
        size += batch.nbytes
        if size >= _BUFFER_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found


class _Topics:
    """The number of partitions of each topic. The cluster is asked once per topic."""

    def __init__(self, leaders: Leaders, options: WriteOptions) -> None:
        self._leaders = leaders
        self._options = options
        self._counts: dict[str, int] = {}

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises `KafkaError` if the topic does not exist."""
        if topic not in self._counts:
            self._counts[topic] = self._ask(topic)
        return self._counts[topic]

    def _ask(self, topic: str) -> int:
        creates = self._options.creates_topics

        def count() -> tuple[int, list[str]]:
            self._leaders.refresh([topic], creates=creates)
            found = len(self._leaders.partitions([topic]))
            return found, [] if found else [topic]

        deadline = Deadline(self._options.delivery_timeout_ms / 1000)
        found, missing = self._leaders.find(count, deadline, creates=creates)
        if missing:
            fix = _NOT_CREATED if creates else _NO_TOPIC
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}: no such topic; {fix}")
        return found


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
