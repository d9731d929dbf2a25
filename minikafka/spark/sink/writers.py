"""Writers of batches and streams to topics, for Spark.

Without `exactlyOnce`, delivery is at-least-once: each task writes with acks=all and its own producer id, and succeeds
when every row is acknowledged, so `commit` does nothing. If Spark runs a task or a micro-batch again, all its rows are
written again. With `exactlyOnce`, the tasks only stage their rows, and `commit` writes them in one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from minikafka.base.errors import ConfigError
from minikafka.spark import QUERY_ID, RUN_ID
from minikafka.spark.sink.once.commit import commit_staged
from minikafka.spark.sink.once.staged import SinkWrite, StagedRows, stage_rows
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.producer import IdempotentProducer
from minikafka.spark.sink.routing import client, needed_checksum, routed
from minikafka.spark.sink.rows import Origin
from minikafka.spark.workers import Shipped, one_line_errors

_BATCH_ID: Final = "streaming.sql.batchId"
"""The property in which the tasks of a stream have the number of the micro-batch."""


@dataclass
class WrittenRows(WriterCommitMessage):
    """The number of rows that one task has written."""

    rows: int


class _Writer:
    """Writes the rows of a task.

    Spark sends the writer from the driver to executors, so the writer holds only the options, and a name that is the
    same in all tasks of a write.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._name = os.urandom(16).hex()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows, and return when every row is acknowledged. With `exactlyOnce`, only stage the rows."""
        with one_line_errors():
            origin = _origin(self._options)
            if self._options.exactly_once:
                return stage_rows(self._options, _write(self._name), iterator, origin)
            return WrittenRows(write_rows(self._options, iterator, origin))

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged = [message for message in messages if isinstance(message, StagedRows)]
        if staged:
            with one_line_errors():
                commit_staged(self._options, staged)


class BatchWriter(_Writer, DataSourceArrowWriter, metaclass=Shipped):
    """Appends a table to topics. Without `exactlyOnce`, records that a failed attempt wrote stay in the topics."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """With `exactlyOnce`, write the staged rows in one transaction."""
        self._commit(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter, metaclass=Shipped):
    """Appends each micro-batch of a stream to topics."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """With `exactlyOnce`, write the staged rows in one transaction. Spark calls this after each micro-batch."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: Spark calls this also after an error in `commit`, when the transaction may be committed."""


def _write(name: str) -> SinkWrite:
    """Return the write of the running task."""
    task = TaskContext.get()
    if task is None:
        raise ConfigError("option exactlyOnce works only in a Spark task")
    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(_BATCH_ID)
    if query is None or batch is None:
        return SinkWrite(name, None, None, None, task.partitionId())
    return SinkWrite(name, query, int(batch), task.getLocalProperty(RUN_ID), task.partitionId())


def _origin(options: WriteOptions) -> Origin | None:
    """Return the query, micro-batch and running task as an `Origin`; None if the option `originHeader` is not set."""
    if options.origin is None:
        return None
    task = TaskContext.get()
    if task is None:
        raise ConfigError("option originHeader works only in a Spark task")
    batch = task.getLocalProperty(_BATCH_ID)
    query = task.getLocalProperty(QUERY_ID)
    return Origin(options.origin, query, None if batch is None else int(batch), task.partitionId())


def write_rows(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], origin: Origin | None = None
) -> int:
    """Write all rows of a task, and return the number of rows. Needs no Spark session.

    Raises `RowRefused`, `WriteFailed`, `Unreachable`, `KafkaError`, and `ConfigError` if CRC-32C is not available.
    """
    crc = needed_checksum()
    total = 0
    with client(options) as leaders:
        producer = IdempotentProducer(leaders, options, crc)

        for tables in routed(options, leaders, batches, origin):
            total += producer.send(tables)
        producer.flush()
    return total
