"""Conversion of rows to records: column types, default values, and the topic and partition of each row.

A key gets the same partition as in the Java client: the key's 32-bit murmur2 hash with the sign bit cleared,
modulo the number of partitions. Rows without a key fill one partition at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.records.encode import Rows
from minikafka.spark.sink.options import TOPIC

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that are written, with the allowed types. Other columns are ignored, as in Spark's Kafka sink."""


class RowRefused(MinikafkaError):
    """A row cannot be written. The error text names the row."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise `ConfigError` if rows with this schema cannot be written to a topic."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in found:
        raise ConfigError(f"a column value is needed; the table has {', '.join(found)}")
    if topic is None and "topic" not in found:
        raise ConfigError(f"option {TOPIC} or a column topic must name the topic")
    for name, types in _TYPES.items():
        if name in found and found[name] not in types:
            raise ConfigError(
                f"column {name} must be {' or '.join(types)}, not {found[name]}: cast it"
            )


@dataclass(frozen=True)
class Origin:
    """The origin of a task's rows, written as a header of each record if the option `originHeader` is set.

    Example of a header value: `{"query":"…","batch":3,"task":0,"sequence":17}`. `sequence` is the number of
    the row in the task. A task or micro-batch that runs again writes the same values if its rows are the same
    and in the same order.
    """

    header: str
    query: str | None
    batch: int | None
    task: int

    def values(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Return the header value of each row. `numbers`: the number of each row in the task."""
        facts = {"query": self.query, "batch": self.batch, "task": self.task}
        start = json.dumps(facts, separators=(",", ":"))[:-1] + ',"sequence":'
        texts = pa.array(numbers).cast(pa.string())
        joined = pc.binary_join_element_wise(start, texts, "}", "")
        return joined.cast(pa.binary())


@dataclass(frozen=True)
class Divided:
    """Rows of one topic, divided by partition."""

    rows: Rows
    order: npt.NDArray[np.int64]
    """Indexes of the rows, ordered by partition. Rows of a partition keep their order."""
    parts: Sequence[tuple[TopicPartition, int, int]]
    """Each partition, with the start and the end of its indexes in `order`."""


class Router:
    """Divides the rows of a task by topic and partition. Rows of a partition keep their order.

    `partition_count(topic)` returns the number of partitions, and raises `KafkaError` for a missing topic.
    """

    def __init__(
        self,
        topic: str | None,
        origin: Origin | None,
        partition_count: Callable[[str], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._origin = origin
        self._partition_count = partition_count
        self._now_ms = now_ms
        self._next = 0
        """Number of the next row of the task."""
        self._batches = 0

    def divide(self, batches: Sequence[pa.RecordBatch]) -> Iterator[Divided]:
        """Yield the rows of each topic, with their partitions. Raises `RowRefused`."""
        names = [name for name in batches[0].schema.names if name in _TYPES]
        columns = {name: _joined([batch.column(name) for batch in batches]) for name in names}
        counts = [batch.num_rows for batch in batches]
        numbers = np.arange(self._next, self._next + sum(counts))
        turns = np.repeat(np.arange(len(batches)) + self._batches + 1, counts)
        self._next += len(numbers)
        self._batches += len(batches)
        if not len(numbers):
            return
        rows = self._rows(columns, numbers)
        wanted = columns.get("partition")
        for topic, chosen in self._by_topic(columns.get("topic"), numbers):
            if chosen is None:
                yield self._by_partition(topic, rows, wanted, turns)
            else:
                own = None if wanted is None else wanted.take(pa.array(chosen))
                yield self._by_partition(topic, rows.taken(chosen), own, turns[chosen])

    def _rows(self, columns: Mapping[str, pa.Array], numbers: npt.NDArray[np.int64]) -> Rows:
        count = len(numbers)
        keys = columns.get("key", pa.nulls(count, pa.binary()))
        return Rows(
            keys.cast(pa.binary()),
            columns["value"].cast(pa.binary()),
            self._timestamps(columns.get("timestamp"), count),
            self._headers(columns.get("headers"), numbers),
            numbers,
        )

    def _timestamps(self, column: pa.Array | None, count: int) -> npt.NDArray[np.int64]:
        """Return the timestamp of each row in Unix milliseconds. A null timestamp becomes the current time."""
        if column is None:
            return np.full(count, self._now_ms(), dtype=np.int64)
        micros = pc.fill_null(column.cast(pa.int64()), self._now_ms() * 1000)
        return np.asarray(micros) // 1000

    def _headers(self, column: pa.Array | None, numbers: npt.NDArray[np.int64]) -> pa.Array | None:
        if column is not None:
            column = column.cast(HEADERS)
            names = column.flatten().field("key")
            if names.null_count:
                at = int(np.flatnonzero(np.asarray(names.is_null()))[0])
                row = numbers[pc.list_parent_indices(column)[at].as_py()]
                raise RowRefused(f"row {row} of the task has a header without a key")
        if self._origin is None:
            return column
        return _with_origin(column, self._origin, numbers)

    def _by_topic(
        self, column: pa.Array | None, numbers: npt.NDArray[np.int64]
    ) -> Iterator[tuple[str, npt.NDArray[np.int64] | None]]:
        """Yield each topic with the indexes of its rows. None instead of indexes means all rows."""
        if self._topic is not None:
            yield self._topic, None
            return
        assert column is not None
        if column.null_count:
            row = numbers[int(np.flatnonzero(np.asarray(column.is_null()))[0])]
            raise RowRefused(
                f"row {row} of the task has no topic; set option {TOPIC}, or drop such rows"
            )
        encoded = column.dictionary_encode()
        codes = np.asarray(encoded.indices)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, np.flatnonzero(codes == code)

    def _by_partition(
        self, topic: str, rows: Rows, wanted: pa.Array | None, turns: npt.NDArray[np.int64]
    ) -> Divided:
        count = self._partition_count(topic)
        chosen = partitions(rows.keys, count, turns)
        if wanted is not None:
            given = np.asarray(pc.fill_null(wanted, -1))
            _check_partitions(topic, count, given, wanted, rows)
            chosen = np.where(np.asarray(wanted.is_valid()), given, chosen)
        # Numbers of at most 16 bits are sorted by radix, about eight times as fast as longer numbers.
        order = np.argsort(chosen.astype(np.min_scalar_type(count)), kind="stable")
        ordered = chosen[order]
        borders = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        parts = [
            (TopicPartition(topic, int(ordered[start])), start, end)
            for start, end in pairwise(borders)
        ]
        return Divided(rows, order, parts)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _check_partitions(
    topic: str, count: int, given: npt.NDArray[np.int32], wanted: pa.Array, rows: Rows
) -> None:
    wrong = np.asarray(wanted.is_valid()) & ((given < 0) | (given >= count))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise RowRefused(
            f"row {rows.numbers[at]} of the task names partition {given[at]} of {topic},"
            f" which has the partitions 0 to {count - 1}: add partitions to it, or leave out the"
            " column partition"
        )


def _with_origin(
    column: pa.Array | None, origin: Origin, numbers: npt.NDArray[np.int64]
) -> pa.Array:
    """Return the header list of each row. The last header of each list states the origin of the row.

    `column`: the rows' own header lists, or None. `origin`: the origin of the task's rows. `numbers`: the
    number of each row in the task.
    """
    count = len(numbers)
    values = origin.values(numbers)
    names = pa.repeat(pa.scalar(origin.header, pa.string()), count)
    own = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    if column is None:
        return pa.ListArray.from_arrays(
            pa.array(np.arange(count + 1, dtype=np.int32)), own, type=HEADERS
        )
    sizes = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    both = pa.concat_arrays([column.flatten(), own])
    ends = np.cumsum(sizes + 1)
    order = np.empty(int(ends[-1]) if count else 0, dtype=np.int64)
    is_last = np.zeros(len(order), dtype=np.bool_)
    is_last[ends - 1] = True
    order[is_last] = np.arange(count) + int(sizes.sum())
    order[~is_last] = np.arange(int(sizes.sum()))
    borders = np.concatenate(([0], ends)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(borders), both.take(pa.array(order)), type=HEADERS)


Words = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)
_PADDING: Final = 4


def partitions(keys: pa.Array, count: int, first: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the partition of each record. `keys`: binary or null. `count`: the number of partitions.

    A record without a key gets the partition of its number in `first`, modulo `count`. Records of one Arrow batch
    have equal numbers. This is like Kafka's sticky partitioner, which fills one partition at a time.
    """
    if keys.null_count == len(keys):
        return (first % count).astype(np.int32)
    hashes = murmur2(keys) & np.uint32(0x7FFFFFFF)
    found = (hashes % np.uint32(count)).astype(np.int32)
    if keys.null_count:
        is_null = np.asarray(keys.is_null())
        found[is_null] = first[is_null] % count
    return found


def murmur2(keys: pa.Array) -> Words:
    """Return the murmur2 hash of each key, with Kafka's seed. A null key is hashed like an empty key."""
    starts, lengths, data = _bytes(keys)
    values = _SEED ^ lengths.astype(np.uint32)
    rows = np.arange(len(keys))
    whole = lengths & ~np.int64(3)
    for position in range(0, int(whole.max(initial=0)), 4):
        rows = rows[whole[rows] > position]
        mixed = _word(data, starts[rows] + position) * _FACTOR
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _FACTOR
        values[rows] = (values[rows] * _FACTOR) ^ mixed
    rows = np.flatnonzero(whole < lengths)
    left = lengths[rows] - whole[rows]
    kept = np.uint32(0xFFFFFFFF) >> (np.uint32(32) - 8 * left.astype(np.uint32))
    tails = _word(data, starts[rows] + whole[rows]) & kept
    values[rows] = (values[rows] ^ tails) * _FACTOR
    values = (values ^ (values >> np.uint32(13))) * _FACTOR
    return values ^ (values >> np.uint32(15))


def _bytes(
    keys: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the start and the length (0 for null) of each key, and the bytes of all keys followed by padding."""
    _, borders, content = keys.buffers()
    offsets = np.frombuffer(borders, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    positions = offsets.astype(np.int64)
    lengths = np.diff(positions)
    if keys.null_count:
        lengths[np.asarray(keys.is_null())] = 0
    data = np.zeros((content.size if content is not None else 0) + _PADDING, dtype=np.uint8)
    if content is not None:
        data[:-_PADDING] = np.frombuffer(content, np.uint8)
    return positions[:-1], lengths, data


def _word(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> Words:
    """Return the four bytes at each position as a little-endian number."""
    word = data[positions].astype(np.uint32)
    for index in range(1, 4):
        word |= data[positions + index].astype(np.uint32) << np.uint32(8 * index)
    return word
