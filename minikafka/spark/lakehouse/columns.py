"""The columns of a table, and how a table may change when the rows of a query have other columns."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as st

from minikafka.base.errors import ConfigError, MinikafkaError

_SIMPLE: Final[dict[type[st.DataType], pa.DataType]] = {
    st.StringType: pa.string(),
    st.BinaryType: pa.binary(),
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int32(),
    st.ShortType: pa.int32(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", tz="UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
}
"""Both formats have these types. Iceberg has no whole numbers below 32 bits."""


class SchemaNarrows(MinikafkaError):
    """The rows of a query do not have a column of the table, or have it with another type."""


def arrow_schema(struct: st.StructType) -> pa.Schema:
    """Return the columns of a table for the rows of a query. Raises `ConfigError` for a type that tables lack."""
    lowered = [name.lower() for name in struct.names]
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise ConfigError(f"the result has two columns {twice[0]}: rename one in the step")
    return pa.schema(
        [pa.field(one.name, _arrow_type(one.dataType, one.name)) for one in struct.fields]
    )


def _arrow_type(kind: st.DataType, name: str) -> pa.DataType:
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, st.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType, name)))
    if isinstance(kind, st.MapType):
        return pa.map_(_arrow_type(kind.keyType, name), _arrow_type(kind.valueType, name))
    if isinstance(kind, st.StructType):
        fields = [
            (one.name, _arrow_type(one.dataType, f"{name}.{one.name}")) for one in kind.fields
        ]
        return pa.struct(fields)
    for known, found in _SIMPLE.items():
        if isinstance(kind, known):
            return found
    text = f"column {name} is of the type {kind.simpleString()}, which a table cannot hold"
    raise ConfigError(f"{text}: cast it to string, or leave it out")


class Evolution(NamedTuple):
    """How a table must change before the rows can be added: the new columns, and the columns with wider types."""

    added: tuple[pa.Field, ...] = ()
    widened: tuple[pa.Field, ...] = ()


def evolution(
    table: pa.Schema, rows: pa.Schema, place: str, *, can_widen: bool, may_lack: bool
) -> Evolution:
    """Return the change of a table that the columns of the rows need.

    `table`: the columns of the table that are not computed by the writer. `may_lack`: the rows may lack columns that
    may be null. Raises `SchemaNarrows` if another column is missing in the rows, or if its type cannot hold what the
    table holds.
    """
    has = {field.name.lower(): field for field in rows}
    known = {field.name.lower() for field in table}
    added = tuple(field for lowered, field in has.items() if lowered not in known)
    widened = []
    for field in table:
        other = has.get(field.name.lower())
        if other is None:
            if not (may_lack and field.nullable):
                raise _missing(field, place)
        elif not _same(field.type, other.type):
            if not (can_widen and _is_wider(field.type, other.type)):
                raise _changed(field, other, place)
            widened.append(pa.field(field.name, other.type))
    return Evolution(added, tuple(widened))


def _missing(field: pa.Field, place: str) -> SchemaNarrows:
    if not _is_of_spark(field.type):
        return SchemaNarrows(
            f"the rows have no column {field.name}, which {place} has with the type {field.type}, which Spark does not"
            " have: drop the column from the table, or name a new table"
        )
    if not field.nullable:
        return SchemaNarrows(
            f"the rows have no column {field.name}, which must not be null in {place}: add it to the query, or name a"
            " new table"
        )
    return SchemaNarrows(
        f"the rows have no column {field.name}, which {place} has: add cast(null as {_sql(field.type)})"
        f" {field.name} to the query, or name a new table"
    )


def _changed(field: pa.Field, other: pa.Field, place: str) -> SchemaNarrows:
    kind = _sql(field.type)
    remedy = (
        f"cast it to {kind} in the query" if _is_of_spark(field.type) else "rename it in the query"
    )
    return SchemaNarrows(
        f"column {field.name} is {_sql(other.type)} now, and {kind} in {place}: {remedy}, or name a new table"
    )


def _is_of_spark(kind: pa.DataType) -> bool:
    """True if Spark has the type. It has no uuid, no bytes of a fixed length and, for tables, no time of day."""
    plain = _plain(kind)
    return isinstance(plain, str | tuple) or pa.types.is_decimal(kind) or plain in _NAMES


def _same(one: pa.DataType, other: pa.DataType) -> bool:
    """True if two types are equal, apart from the sizes of offsets in memory and from which parts may be null."""
    return _plain(one) == _plain(other)


def _plain(kind: pa.DataType) -> object:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_map(kind):
        return ("map", _plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", _plain(kind.value_type))
    if pa.types.is_struct(kind):
        return ("struct", *((one.name, _plain(one.type)) for one in kind))
    return kind


def _is_wider(before: pa.DataType, now: pa.DataType) -> bool:
    """True if Iceberg can promote the type: int to long, float to double, a decimal to more digits."""
    if pa.types.is_decimal(before) and pa.types.is_decimal(now):
        return bool(now.scale == before.scale and now.precision > before.precision)
    return (before, now) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


_NAMES: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
}


def _sql(kind: pa.DataType) -> str:
    """Return the name of a type in Spark's SQL."""
    plain = _plain(kind)
    if isinstance(plain, str):
        return plain
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{_sql(kind.key_type)},{_sql(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_sql(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{one.name}:{_sql(one.type)}' for one in kind)}>"
    return _NAMES.get(plain, str(kind))
