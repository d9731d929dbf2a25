"""The rows of a task, divided by topic and partition, in portions that are large enough to encode."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import pyarrow as pa

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.spark.records import checksum
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.sink.options import CREATE, TOPIC, WriteOptions
from minikafka.spark.sink.rows import Divided, Origin, Router
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.kept import kept_client
from minikafka.spark.wire.leaders import LeaderConnections

_BUFFER_BYTES: Final = 8 << 20
"""Bytes of rows to collect before sending. A large buffer gives large batches even with many partitions."""
_NO_TOPIC: Final = f"correct option {TOPIC}, create the topic, or set option {CREATE} to true"
_NOT_CREATED: Final = (
    "create it: the brokers did not, maybe because auto.create.topics.enable is false"
)


def routed(
    options: WriteOptions,
    leaders: LeaderConnections,
    batches: Iterator[pa.RecordBatch],
    origin: Origin | None = None,
) -> Iterator[Iterator[Divided]]:
    """Yield the rows of a task in portions, each divided by topic and partition.

    Raises `RowRefused`, `Unreachable` and `KafkaError`.
    """
    leaders.forget()  # a topic may have been created again since the last task
    topics = _Topics(leaders, options)
    router = Router(options.topic, origin, topics.partition_count, _wall_ms)
    for gathered in _gathered(batches):
        yield router.divide(gathered)


def needed_checksum() -> Checksum:
    """Return the function for CRC-32C. Raises `ConfigError` if there is none."""
    crc = checksum.find()
    if crc is None:
        raise ConfigError(
            "writing needs CRC-32C: pip install fastcrc in the environment of the executors"
        )
    return crc


def client(options: WriteOptions, use: str = "write") -> AbstractContextManager[LeaderConnections]:
    """Return a context manager of a client that the process keeps. Clients for different uses are different."""
    key = use, options.servers, options.client_id, options.request_timeout_ms, options.security
    return kept_client(key, partial(_connect, options))


def _connect(options: WriteOptions) -> LeaderConnections:
    return LeaderConnections(
        options.servers,
        options.client_id,
        options.request_timeout_ms / 1000,
        security=options.security,
    )


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

    def __init__(self, leaders: LeaderConnections, options: WriteOptions) -> None:
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
