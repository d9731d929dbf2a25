"""Times from Spark: they stay integers until they are printed, and are printed in UTC.

Spark's `collect` turns a timestamp into a datetime in the local time zone, without the zone, and raises an error for
a year that Python's datetime does not have. Pipelines therefore collect timestamps with this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from minikafka.spark.pipelines.session.report import Fact

MICROS_MAX: Final = 2**63 - 1
"""Spark's greatest timestamp, in Unix microseconds."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def date_of(micros: int) -> datetime | None:
    """Return the date of a time in Unix microseconds; None outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def printed(micros: int) -> str | int:
    """Return a time as text, such as `2026-03-01T10:00:00.000Z`.

    A time outside the years 1 to 9999 is returned as a number, in Unix milliseconds.
    """
    date = date_of(micros)
    if date is None:
        return micros // 1000
    digits = "milliseconds" if micros % 1000 == 0 else "microseconds"
    return date.replace(tzinfo=None).isoformat(timespec=digits) + "Z"


def timestamp_of(millis: Column) -> Column:
    """Return a column of Unix milliseconds as timestamps. A time that Spark's timestamps cannot hold becomes null."""
    limit = MICROS_MAX // 1000
    return f.when(millis.between(-limit, limit), f.timestamp_millis(millis))


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of a frame. Each timestamp in them is a text or a number, as in `printed`."""
    fields = frame.schema.fields
    names = [f"_{number}" for number in range(len(fields))]  # two columns may have the same name
    plain = [_plain(f.col(name), field.dataType) for name, field in zip(names, fields, strict=True)]
    return [
        tuple(_shown(cell, field.dataType) for cell, field in zip(row, fields, strict=True))
        for row in frame.toDF(*names).select(*plain).collect()
    ]


def _has_times(kind: DataType) -> bool:
    return isinstance(kind, TimestampType | TimestampNTZType | DateType) or any(
        map(_has_times, _parts(kind))
    )


def _parts(kind: DataType) -> Sequence[DataType]:
    if isinstance(kind, ArrayType):
        return [kind.elementType]
    if isinstance(kind, MapType):
        return [kind.keyType, kind.valueType]
    return [field.dataType for field in kind.fields] if isinstance(kind, StructType) else []


def _plain(column: Column, kind: DataType) -> Column:
    """Return the column with Unix microseconds for each timestamp, and text for each time without a zone."""
    if not _has_times(kind):
        return column
    if isinstance(kind, TimestampType):
        return f.unix_micros(column)
    if isinstance(kind, ArrayType):
        return f.transform(column, lambda one: _plain(one, kind.elementType))
    if isinstance(kind, MapType):
        keys = f.transform(f.map_keys(column), lambda one: _plain(one, kind.keyType))
        values = f.transform(f.map_values(column), lambda one: _plain(one, kind.valueType))
        return f.map_from_arrays(keys, values)
    if isinstance(kind, StructType):
        fields = [
            _plain(column.getField(field.name), field.dataType).alias(field.name)
            for field in kind.fields
        ]
        return f.when(column.isNotNull(), f.struct(*fields))
    return column.cast("string")


def _shown(value: Any, kind: DataType) -> Any:
    if value is None or not _has_times(kind):
        return value
    if isinstance(kind, TimestampType):
        return printed(value)
    if isinstance(kind, ArrayType):
        return [_shown(one, kind.elementType) for one in value]
    if isinstance(kind, MapType):
        return {
            _shown(key, kind.keyType): _shown(one, kind.valueType) for key, one in value.items()
        }
    if isinstance(kind, StructType):
        cells = (_shown(one, field.dataType) for one, field in zip(value, kind.fields, strict=True))
        return Row(*kind.names)(*cells)
    return value


def facts_of(frame: DataFrame) -> tuple[tuple[Fact, ...], ...]:
    """Return the rows of a frame for a table of a summary."""
    return tuple(tuple(_fact(cell) for cell in row) for row in rows_of(frame))


def _fact(value: Any) -> Fact:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return str(value)
