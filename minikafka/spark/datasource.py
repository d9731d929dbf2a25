"""The data source for `format("minikafka")`: reads and writes of batches and streams.

The columns of the rows read have the names and types of Spark's own Kafka source.
"""

from __future__ import annotations

import sys
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
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
from minikafka.spark.key_stores import prepared
from minikafka.spark.option_map import warn_of_ignored
from minikafka.spark.sink import options as sink_options
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.rows import check_schema
from minikafka.spark.sink.writers import BatchWriter, StreamWriter
from minikafka.spark.source.options import Mode, ReadOptions, parse
from minikafka.spark.source.readers import (
    BatchReader,
    FilteringReader,
    RefusedStream,
    StreamReader,
)
from minikafka.spark.workers import Shipped, one_line_errors

FORMAT: Final = "minikafka"
_COMMITS: Final = "python_streaming_sink_runner"
"""Spark's program that commits micro-batches. It creates a second writer, which need not warn of options again."""

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


class MinikafkaDataSource(DataSource, metaclass=Shipped):
    """The data source `minikafka`. Spark creates the instances, with the user's options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of this data source for `format()`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns. Raises `ConfigError` for invalid options, so that `load()` reports them."""
        with one_line_errors():
            options = prepared(parse(self.options))
        warn_of_ignored("source", options.ignored)
        return _columns(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader. Raises `ConfigError` for invalid options, or if the user sets another schema."""
        options = self._options(schema, Mode.BATCH)
        return FilteringReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Its methods raise the errors of `reader`."""
        try:
            return StreamReader(self._options(schema, Mode.STREAM))
        except MinikafkaError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a table. Raises `ConfigError` for invalid options or columns."""
        with one_line_errors():
            if overwrite:
                raise ConfigError('a topic cannot be overwritten: use mode("append")')
            return BatchWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream. Raises `ConfigError` for invalid options or columns.

        In the output mode complete (`overwrite`), each micro-batch appends the whole result to the topic.
        Spark's own Kafka sink does the same.
        """
        with one_line_errors():
            return StreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = prepared(sink_options.parse(self.options))
        check_schema(schema, options.topic)
        if not any(_COMMITS in argument for argument in sys.argv):
            warn_of_ignored("sink", options.ignored)
        return options

    def _options(self, schema: StructType, mode: Mode) -> ReadOptions:
        with one_line_errors():
            options = prepared(parse(self.options, mode))
            if schema.simpleString() != _columns(options).simpleString():
                raise ConfigError("the minikafka source has a fixed schema: remove schema(…)")
        told = parse(self.options).ignored
        """The ignored options that `schema` has already warned of."""
        warn_of_ignored(
            "source", {name: text for name, text in options.ignored.items() if name not in told}
        )
        return options


def _columns(options: ReadOptions) -> StructType:
    is_included = {
        "key": options.include_key,
        "value": options.include_value,
        "headers": options.include_headers,
    }
    return StructType([field for field in SCHEMA_WITH_HEADERS if is_included.get(field.name, True)])
