"""The functions with which programs decode and encode columns of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from minikafka.base.errors import ConfigError
from minikafka.spark.registry import fitting, json_schema
from minikafka.spark.registry.framing import header
from minikafka.spark.registry.options import parse_decode, parse_encode
from minikafka.spark.registry.records import (
    REASON,
    VALUE,
    RecordReading,
    RecordWriting,
    columns_of,
    decoder_of,
    encoder_of,
    reading,
    writing,
)
from minikafka.spark.registry.shapes import UTC, for_spark
from minikafka.spark.workers import Shipped, one_line_errors

MALFORMED: Final = "_malformed"
"""Name of the column that says why a record cannot be decoded; null if it can."""
_udf: Final[Any] = arrow_udf
"""PySpark's type of this function requires an argument that it deprecates."""
_PLACE: Final = ("topic", "partition", "offset")


def decoded(
    frame: DataFrame, format: str, options: Mapping[str, str], column: str = "value"
) -> DataFrame:
    """Return the frame with a column decoded, as the package documents it."""
    if MALFORMED in frame.columns:
        raise ConfigError(
            f"the frame has a column {MALFORMED} already: decode one column after the other, and rename it"
        )
    _check_column(frame, column)
    work = reading(parse_decode(format, options, _part(column)))
    found = frame.withColumn(column, decoded_column(work, frame, column))
    if work.options.is_permissive:
        found = found.withColumn(MALFORMED, f.col(column).getField(REASON))
    return found.withColumn(column, f.col(column).getField(VALUE))


def encoded(
    frame: DataFrame, format: str, options: Mapping[str, str], column: str = "value"
) -> DataFrame:
    """Return the frame with a column encoded, as the package documents it."""
    _check_column(frame, column)
    work = writing(parse_encode(format, options, _part(column)))
    return frame.withColumn(column, encoded_column(work, frame, column))


def _check_column(frame: DataFrame, column: str) -> None:
    if column not in frame.columns:
        raise ConfigError(
            f"there is no column {column}: the columns are {', '.join(frame.columns)}"
        )


def _part(column: str) -> str:
    return "key" if column == "key" else "value"


def decoded_column(work: RecordReading, frame: DataFrame, column: str) -> Column:
    """Return a column with structs of the fields `value` and `reason`.

    Errors name the topic, partition and offset of a record if the frame has these columns.
    """
    kind = pa.struct(
        [pa.field(VALUE, for_spark(columns_of(work).type)), pa.field(REASON, pa.string())]
    )
    place = [f.col(name) for name in _PLACE] if {*_PLACE} <= {*frame.columns} else []
    task = _Decoding(work)

    def run(*columns: pa.Array) -> pa.Array:
        return task(*columns)

    # Spark would call a deterministic function again for each filter on its result.
    call = _udf(run, from_arrow_type(kind)).asNondeterministic()
    found: Column = call(f.col(column), *place)
    return found


def encoded_column(work: RecordWriting, frame: DataFrame, column: str) -> Column:
    """Return a binary column with the rows of a struct column. Raises ConfigError if the schema cannot hold them."""
    kind = to_arrow_type(frame.select(column).schema.fields[0].dataType, timezone=UTC)
    fitting.check(work, kind)
    value = f.col(column)
    if work.options.format == "confluent_json":
        value = _json_of(column, kind)
        if json_schema.shape(work.schema).embed is None:
            head = f.lit(header(int(work.schema.id or 0)))
            return f.concat(head, value.cast("binary"))
    task = _Encoding(work)

    def run(rows: pa.Array) -> pa.Array:
        return task(rows)

    found: Column = _udf(run, "binary")(value)
    return found


def _json_of(column: str, kind: pa.DataType) -> Column:
    """Return a column as JSON text; null for null."""
    value = f.col(column)
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind):
        return f.to_json(value)
    # Spark writes a plain value only within an array.
    found = f.regexp_replace(f.to_json(f.array(value)), r"^\[|\]$", "")
    return f.when(value.isNotNull(), found)


class _Decoding(metaclass=Shipped):
    """A task that decodes records."""

    def __init__(self, work: RecordReading) -> None:
        self._work = work

    def __call__(self, values: pa.Array, *place: pa.Array) -> pa.Array:
        with one_line_errors():
            return decoder_of(self._work).decode(values, place)


class _Encoding(metaclass=Shipped):
    """A task that encodes rows."""

    def __init__(self, work: RecordWriting) -> None:
        self._work = work

    def __call__(self, rows: pa.Array) -> pa.Array:
        with one_line_errors():
            return encoder_of(self._work)(rows)
