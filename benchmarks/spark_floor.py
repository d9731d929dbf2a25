"""A data source with prepared rows, which shows the time that Spark itself needs for rows from Python.

The rows have the columns of a topic. Every task builds one Arrow batch and yields the same batch repeatedly. So
only the transfer of Arrow batches to Spark and the query itself take time. A write receives its rows and drops them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from minikafka.spark.datasource import SCHEMA
from minikafka.spark.records import decode

KEY_BYTES: Final = 12
VALUE_BYTES: Final = 88
"""Size of a record's value. Key and value take 100 bytes together."""
BATCH_ROWS: Final = 20_000
"""Rows per Arrow batch. The source `minikafka` has the same number for records of 100 bytes."""
_CONSTANT: Final = b'{"user":"someone","action":"view","page":"/'


def contents(first: int, count: int) -> tuple[pa.Array, pa.Array]:
    """Return keys and values of records. Keys are numbers, values are text that is half random."""
    rng = np.random.default_rng(first)
    values = np.empty((count, VALUE_BYTES), dtype=np.uint8)
    values[:, : len(_CONSTANT)] = np.frombuffer(_CONSTANT, np.uint8)
    values[:, len(_CONSTANT) :] = rng.integers(97, 113, (count, VALUE_BYTES - len(_CONSTANT)))
    keys = b"".join(b"%0*d" % (KEY_BYTES, number) for number in range(first, first + count))
    return _fixed(keys, KEY_BYTES), _fixed(values.tobytes(), VALUE_BYTES)


def _fixed(data: bytes, width: int) -> pa.Array:
    borders = np.arange(0, len(data) + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(data) // width, buffers)


def _batch() -> pa.RecordBatch:
    numbers = np.arange(BATCH_ROWS)
    columns = [
        *contents(0, BATCH_ROWS),
        pa.repeat(pa.scalar("topic", pa.string()), BATCH_ROWS),
        pa.array(np.zeros(BATCH_ROWS, dtype=np.int32)),
        pa.array(numbers),
        pa.array(numbers).cast(pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(BATCH_ROWS, dtype=np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=decode.SCHEMA)


class ReadyRows(DataSource):
    """The data source `format("ready")`, with the options `rows` and `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["partitions"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        rows = int(self.options["rows"])
        limit = int(self.options.get("maxOffsetsPerTrigger", rows))
        return _StreamReader(rows, int(self.options["partitions"]), limit)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class _Tasks:
    def __init__(self, rows: int, partitions: int) -> None:
        self._rows = rows
        self._partitions = partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        batch, left = _batch(), int(partition.value)
        while left > 0:
            yield batch.slice(0, min(left, BATCH_ROWS))
            left -= BATCH_ROWS

    def tasks(self, rows: int) -> list[InputPartition]:
        return [InputPartition(rows // self._partitions) for _ in range(self._partitions)]


class _Reader(_Tasks, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self.tasks(self._rows)


class _StreamReader(_Tasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader that ends each micro-batch after `limit` rows."""

    def __init__(self, rows: int, partitions: int, limit: int) -> None:
        super().__init__(rows, partitions)
        self._limit = limit

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"rows": min(start["rows"] + self._limit, self._rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.tasks(end["rows"] - start["rows"])
