"""The data source behind `format("minikafka")`, which serves batch reads.

Invariant: planning fixes one offset range per partition, and reading a range depends on nothing
else, so Spark may retry a task. Rows have the columns, names and types of Spark's own Kafka source.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark import checksum, offsets
from minikafka.spark.batches import grouped, sections
from minikafka.spark.deadline import Deadline
from minikafka.spark.decode import decode
from minikafka.spark.fetch import RangeReader
from minikafka.spark.offsets import OffsetRange
from minikafka.spark.options import ReadOptions, parse

FORMAT: Final = "minikafka"

_COLUMNS: Final = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA: Final = StructType(_COLUMNS)
SCHEMA_WITH_HEADERS: Final = StructType([*_COLUMNS, StructField("headers", ArrayType(_HEADER))])

_GROUP_BYTES: Final = 2 << 20
"""Decompressed bytes per Arrow batch: fastest size for processor caches in measurements; bounds memory."""


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Have a worker of Spark report an expected error as one line instead of a traceback.

    The worker ends with the error, so the variable affects nothing else.
    """
    try:
        yield
    except MinikafkaError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


class RangePartition(InputPartition):
    """The work of one task: one offset range of one partition."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class MinikafkaDataSource(DataSource):
    """The data source `minikafka`; Spark creates an instance from the options wherever it needs one."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns. Raises `ConfigError` for invalid options, so that `load()` reports them."""
        with _one_line_errors():
            return SCHEMA_WITH_HEADERS if parse(self.options).include_headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader. Raises `ConfigError` for invalid options or a schema given by
        the user.
        """
        with _one_line_errors():
            options = parse(self.options)
            if schema.simpleString() != self.schema().simpleString():
                raise ConfigError("the minikafka source has a fixed schema: remove schema(…)")
            return BatchReader(options)


class BatchReader(DataSourceReader):
    """Plans on the driver and reads in the tasks; keeps only the options in between."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one `RangePartition` per partition that has records to read.

        Spark turns an empty list into one `InputPartition(None)`.
        """
        with _one_line_errors():
            return [RangePartition(wanted) for wanted in offsets.plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range in offset order."""
        if isinstance(partition, RangePartition):
            with _one_line_errors():
                yield from read_range(self._options, partition.wanted)


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Fetch and decode a range; needs no Spark session. Raises the errors of `RangeReader.blocks`."""
    crc = checksum.find() if options.check_crcs else None
    leaders = offsets.connect(options, first=wanted.tp.partition)
    reader = RangeReader(
        leaders,
        wanted,
        Deadline(options.poll_timeout_ms / 1000),
        fetch_bytes=options.fetch_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    try:
        for block in reader.blocks():
            for group in grouped(sections(block, wanted.start, wanted.end, crc), _GROUP_BYTES):
                batch = decode(
                    group,
                    *wanted.tp,
                    wanted.start,
                    wanted.end,
                    with_headers=options.include_headers,
                )
                if batch.num_rows:
                    yield batch
    finally:
        leaders.close()
