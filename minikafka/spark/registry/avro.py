"""Avro: the columns of a schema, and records decoded and encoded with fastavro.

Logical types are left to pyarrow, which converts whole columns: fastavro reads a timestamp as a number.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.base.errors import ConfigError
from minikafka.spark.registry.client import Schema
from minikafka.spark.registry.framing import HEADER_BYTES, Undecodable
from minikafka.spark.registry.options import SCHEMA
from minikafka.spark.registry.shapes import UTC, ColumnShape, list_of, map_of, struct_of

_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", UTC),
    ("long", "timestamp-micros"): pa.timestamp("us", UTC),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_NUMBERS: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
"""Unions of numbers that are one column, as in Spark's from_avro."""
_DIGITS_MAX: Final = 38
_EXACT: Final = Context(prec=_DIGITS_MAX, traps=[Inexact])
_OF_LOGICAL: Final = ("logicalType", "precision", "scale")

Read = Callable[[bytes], Any]


def shape(schema: Schema) -> ColumnShape:
    """Return the columns of a schema. Raises ConfigError if Spark has none for it."""
    return _shape(expanded(schema))


def expanded(schema: Schema) -> Any:
    """Return the schema as JSON, with the definition of a named type wherever its name is used. Raises ConfigError."""
    return fastavro.schema.expand_schema(_parsed(schema, keeps_logical=True))


def reader(schema: Schema, columns: Schema) -> Read:
    """Return a function that decodes a record written with `schema` to the columns of the schema `columns`.

    The function raises Undecodable.
    """
    writer = _parsed(schema)
    target = None if _is_same(schema, columns) else _parsed(columns)

    def read(data: bytes) -> Any:
        stream = io.BytesIO(data)
        stream.seek(HEADER_BYTES)
        try:
            found = fastavro.schemaless_reader(
                stream, writer, target, return_named_type=True, return_record_name_override=True
            )
        except EOFError:
            raise Undecodable("its bytes end too early") from None
        except fastavro.read.SchemaResolutionError as error:
            raise Undecodable(f"its schema cannot be read as the columns: {_line(error)}") from None
        except Exception as error:  # noqa: BLE001  fastavro raises many types for damaged bytes
            raise Undecodable(f"its bytes do not fit its schema: {_line(error)}") from None
        if stream.tell() != len(data):
            raise Undecodable(f"{len(data) - stream.tell()} bytes follow the end of its data")
        return found

    return read


def writer(schema: Schema) -> Callable[[Any], bytes]:
    """Return a function that encodes a value without the header. It raises ValueError, TypeError and others."""
    parsed = fastavro.parse_schema(*_texts(schema))

    def write(value: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value, strict_allow_default=True)
        return stream.getvalue()

    return write


def with_numbers(schema: Schema) -> Callable[[pa.Array], pa.Array]:
    """Return a function that turns the columns of time of a struct into the numbers that the schema stands for.

    Arrow does so for whole columns, many times as fast as `writer` does for each datetime.
    """
    parsed = expanded(schema)
    fields = parsed["fields"] if _name(parsed) == "record" else ()
    kinds = {one["name"]: _only(one["type"]) for one in fields}
    units = {name: _UNITS[kind] for name, kind in kinds.items() if kind in _UNITS}

    def convert(rows: pa.Array) -> pa.Array:
        if not units or not pa.types.is_struct(rows.type):
            return rows
        names = [one.name for one in rows.type]
        columns = [
            _numbers(column, units[name]) if name in units else column
            for name, column in zip(names, rows.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(columns, names, mask=rows.is_null())

    return convert


_UNITS: Final = {
    name: kind.unit for (_, name), kind in _LOGICAL.items() if pa.types.is_timestamp(kind)
}


def _only(schema: Any) -> str:
    """Return the logical type of a schema, or of the only type next to null; "" if there is none."""
    others = [one for one in schema if one != "null"] if isinstance(schema, list) else [schema]
    only = others[0] if len(others) == 1 else None
    return str(only.get("logicalType", "")) if isinstance(only, dict) else ""


def _numbers(column: pa.Array, unit: str) -> pa.Array:
    instants = column.cast(pa.timestamp("us"))
    if unit == "ms":
        instants = pc.floor_temporal(instants, 1, "millisecond").cast(pa.timestamp("ms"))
    return instants.cast(pa.int64())


def _is_same(one: Schema, other: Schema) -> bool:
    return (one.text, one.references) == (other.text, other.references)


def _texts(schema: Schema, *, keeps_logical: bool = True) -> tuple[Any, dict[str, Any]]:
    """Return the schema and the named schemas that it refers to, parsed from JSON."""
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(_json(text, keeps_logical=keeps_logical), named)
        return _json(schema.text, keeps_logical=keeps_logical), named
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise _invalid(error) from None


def _parsed(schema: Schema, *, keeps_logical: bool = False) -> Any:
    found, named = _texts(schema, keeps_logical=keeps_logical)
    try:
        return fastavro.parse_schema(found, named)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise _invalid(error) from None


def _invalid(error: Exception) -> ConfigError:
    return ConfigError(f"{SCHEMA}: it is no valid Avro schema: {_line(error)}; correct it")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _json(text: str, *, keeps_logical: bool) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        if text.strip().isidentifier():  # registries return a primitive type as a plain word
            return text.strip()
        raise ConfigError(f"{SCHEMA}: an Avro schema must be JSON: {text[:40]}") from None
    return found if keeps_logical else _without_logical(found)


def _without_logical(schema: Any) -> Any:
    """Return the schema without logical types, so that fastavro decodes the values that they stand for."""
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    hidden = _OF_LOGICAL if isinstance(schema.get("logicalType"), str) else ()
    return {
        name: _without_logical(part) if name in ("type", "fields", "items", "values") else part
        for name, part in schema.items()
        if name not in hidden
    }


def _shape(schema: Any) -> ColumnShape:
    if isinstance(schema, list):
        return _union(schema)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise ConfigError(
                f"{SCHEMA}: the record {schema} contains itself, which no column can; name a schema without it"
            )
        return ColumnShape(_PRIMITIVES[schema])
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in _NAMED:
        return _logical(kind, schema) if isinstance(kind, str) else _shape(kind)
    return _NAMED[kind](schema)


def _logical(kind: str, schema: Mapping[str, Any]) -> ColumnShape:
    name = str(schema.get("logicalType"))
    if name == "decimal":
        return _decimal(schema) or _shape(kind)
    return ColumnShape(_LOGICAL[kind, name]) if (kind, name) in _LOGICAL else _shape(kind)


def _decimal(schema: Mapping[str, Any]) -> ColumnShape | None:
    digits, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(digits, int) or not isinstance(scale, int) or not 0 <= scale <= digits:
        return None
    if digits > _DIGITS_MAX:
        return None

    def convert(value: bytes) -> Decimal:
        return _EXACT.create_decimal(int.from_bytes(value, "big", signed=True)).scaleb(
            -scale, _EXACT
        )

    return ColumnShape(pa.decimal128(digits, scale), convert)


def _record(schema: Mapping[str, Any]) -> ColumnShape:
    return struct_of({one["name"]: _shape(one["type"]) for one in schema["fields"]})


def _fixed(schema: Mapping[str, Any]) -> ColumnShape:
    found = _decimal(schema) if schema.get("logicalType") == "decimal" else None
    return found or ColumnShape(pa.binary())


_NAMED: Final[dict[str, Callable[[Mapping[str, Any]], ColumnShape]]] = {
    "record": _record,
    "error": _record,
    "enum": lambda _: ColumnShape(pa.string()),
    "fixed": _fixed,
    "array": lambda schema: list_of(_shape(schema["items"])),
    "map": lambda schema: map_of(pa.string(), _shape(schema["values"])),
}


def _union(branches: Sequence[Any]) -> ColumnShape:
    """Return the column of a union: the type next to null, a wider number, or a struct with a field for each type."""
    others = [one for one in branches if _name(one) != "null"]
    if not others:
        return ColumnShape(pa.null())
    if len(others) == 1:
        found = _shape(others[0])
        return found if _name(others[0]) not in _TAGGED else _untagged(found)
    if wide := _NUMBERS.get(frozenset(map(_plain, others))):
        return ColumnShape(_PRIMITIVES[wide])
    return _members(others)


_TAGGED: Final = ("record", "error", "enum", "fixed")
"""Types that fastavro returns with their names, also if they are the only type next to null."""


def _name(branch: Any) -> str:
    kind = branch["type"] if isinstance(branch, dict) else branch
    return kind if isinstance(kind, str) else ""


def _plain(branch: Any) -> str:
    is_logical = isinstance(branch, dict) and "logicalType" in branch
    return "" if is_logical else _name(branch)


def _untagged(found: ColumnShape) -> ColumnShape:
    change = found.convert

    def convert(value: Any) -> Any:
        bare = value[1] if isinstance(value, tuple) else value
        return bare if change is None else change(bare)

    return ColumnShape(found.type, convert)


_PYTHON: Final = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}


def _members(branches: Sequence[Any]) -> ColumnShape:
    """Return a struct with the fields member0, member1 and so on, of which one is not null, as from_avro has it."""
    shapes = [_shape(one) for one in branches]
    kinds = {one.get("name"): index for index, one in enumerate(branches) if isinstance(one, dict)}
    plain = [(_PYTHON.get(_name(one)), index) for index, one in enumerate(branches)]
    fields = [pa.field(f"member{index}", one.type) for index, one in enumerate(shapes)]

    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple):
            name, value = value
            index = kinds[name]
        else:
            index = next(index for kind, index in plain if kind is type(value))
        change = shapes[index].convert
        return {f"member{index}": value if change is None else change(value)}

    return ColumnShape(pa.struct(fields), convert)
