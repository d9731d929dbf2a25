"""The types of the columns to which Avro values are decoded. They are those of Spark's from_avro.

Schemas are JSON. Every name of a type is replaced by its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact
from typing import Any, Final

import pyarrow as pa

from minikafka.base.errors import ConfigError
from minikafka.spark.registry.options import SCHEMA
from minikafka.spark.registry.shapes import UTC, ColumnShape, for_spark, list_of, map_of, struct_of

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
_WIDER: Final = {"int": "long", "float": "double"}
_NUMBERS: Final = {frozenset(pair): pair[1] for pair in _WIDER.items()}
"""Unions of numbers that are one column, as in Spark's from_avro."""
_BOX: Final = "minikafka.box_of_"
BOXES: Final = [
    {"type": "record", "name": _BOX + kind, "fields": [{"name": "value", "type": kind}]}
    for kind in ("int", "float")
]
"""Records that stand for a number in a union with a wider number, because Python has one type for both.

The bytes of such a record are those of the number.
"""
_DIGITS_MAX: Final = 38
_EXACT: Final = Context(prec=_DIGITS_MAX, traps=[Inexact])


def shape_of(schema: Any) -> ColumnShape:
    """Return the column of a type. Raises ConfigError if Spark has none for it."""
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
        return _logical(kind, schema) if isinstance(kind, str) else shape_of(kind)
    return _NAMED[kind](schema)


def logical_of(schema: Any) -> str:
    """Return the logical type that the column of a type has; "" if the column is that of the plain type."""
    name = str(schema.get("logicalType")) if isinstance(schema, Mapping) else ""
    is_decimal = name == "decimal" and name_of(schema) in ("bytes", "fixed") and _decimal(schema)
    return name if is_decimal or (name_of(schema), name) in _LOGICAL else ""


def _logical(kind: str, schema: Mapping[str, Any]) -> ColumnShape:
    name = logical_of(schema)
    if name == "decimal":
        return _decimal(schema) or shape_of(kind)
    return ColumnShape(_LOGICAL[kind, name]) if name else shape_of(kind)


def _decimal(schema: Mapping[str, Any]) -> ColumnShape | None:
    digits, scale = schema.get("precision"), schema.get("scale", 0)
    if (
        not isinstance(digits, int)
        or not isinstance(scale, int)
        or not 0 <= scale <= digits
        or not digits
    ):
        return None
    if digits > _DIGITS_MAX:
        return None

    def convert(value: bytes) -> Decimal:
        return _EXACT.create_decimal(int.from_bytes(value, "big", signed=True)).scaleb(
            -scale, _EXACT
        )

    return ColumnShape(pa.decimal128(digits, scale), convert)


def _record(schema: Mapping[str, Any]) -> ColumnShape:
    return _untagged(struct_of({one["name"]: shape_of(one["type"]) for one in schema["fields"]}))


def _fixed(schema: Mapping[str, Any]) -> ColumnShape:
    found = _decimal(schema) if logical_of(schema) == "decimal" else None
    return _untagged(found or ColumnShape(pa.binary()))


_NAMED: Final[dict[str, Callable[[Mapping[str, Any]], ColumnShape]]] = {
    "record": _record,
    "error": _record,
    "enum": lambda _: _untagged(ColumnShape(pa.string())),
    "fixed": _fixed,
    "array": lambda schema: list_of(shape_of(schema["items"])),
    "map": lambda schema: map_of(pa.string(), shape_of(schema["values"])),
}


def _union(branches: Sequence[Any]) -> ColumnShape:
    """Return the column of a union.

    It has the type of the only branch that is not null, or the wider type of two numbers. Otherwise it is a struct with
    a field for each branch.
    """
    others = [one for one in branches if name_of(one) != "null"]
    if not others:
        return ColumnShape(pa.null())
    if len(others) == 1:
        return shape_of(others[0])
    if wide := _NUMBERS.get(frozenset(map(name_of, others))):
        return ColumnShape(_PRIMITIVES[wide])
    return _members(others)


def name_of(branch: Any) -> str:
    """Return the name of a type; of a named type, its kind; "" for a union."""
    kind = branch["type"] if isinstance(branch, dict) else branch
    return kind if isinstance(kind, str) else ""


def boxed(branches: Sequence[Any]) -> list[Any]:
    """Return a union whose numbers have different types in Python: the narrower one of two is a record of `BOXES`."""
    narrow = _narrow(branches)
    return [_BOX + name_of(one) if name_of(one) in narrow else one for one in branches]


def _narrow(branches: Sequence[Any]) -> set[str]:
    names = {*map(name_of, branches)} - {"null"}
    return {one for one, wide in _WIDER.items() if {one, wide} < names}


def _untagged(found: ColumnShape) -> ColumnShape:
    """Return the shape of a named type. In a union, fastavro returns pairs of the name and the value."""
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
    """Return a struct with the fields member0, member1 and so on. One of them is not null."""
    shapes = [shape_of(one) for one in branches]
    kinds = {one.get("name"): index for index, one in enumerate(branches) if isinstance(one, dict)}
    names = [name_of(one) for one in branches]
    boxes = {_BOX + name: names.index(name) for name in _narrow(branches)}
    plain = [
        (_PYTHON.get(name), index) for index, name in enumerate(names) if _BOX + name not in boxes
    ]
    fields = [pa.field(f"member{index}", one.type) for index, one in enumerate(shapes)]

    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple) and value[0] in boxes:
            index, value = boxes[value[0]], value[1]["value"]
        elif isinstance(value, tuple):
            name, value = value
            index = kinds[name]
        else:
            index = next(index for kind, index in plain if kind is type(value))
        change = shapes[index].convert
        return {f"member{index}": value if change is None else change(value)}

    return ColumnShape(pa.struct(fields), convert)


def from_json(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:
    """Return the value of a default, as fastavro decodes it.

    In JSON, bytes are a text with a character for each byte, and a record may lack fields that have a default.
    `named`: the definitions of the types whose names the schema may use.
    """
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        return _of_union(schema, value, named)
    kind = name_of(schema)
    if kind in ("float", "double") and isinstance(value, int):
        return float(value)
    if kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1")
    if kind == "array" and isinstance(value, list):
        return [from_json(schema["items"], one, named) for one in value]
    if kind == "map" and isinstance(value, dict):
        return {name: from_json(schema["values"], one, named) for name, one in value.items()}
    if kind in ("record", "error") and isinstance(value, dict):
        return {
            one["name"]: from_json(one["type"], value.get(one["name"], one.get("default")), named)
            for one in schema["fields"]
        }
    return value


_JSON: Final[dict[str, Any]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "array": list,
    **dict.fromkeys(("bytes", "string", "fixed", "enum"), str),
    **dict.fromkeys(("map", "record", "error"), dict),
}
"""The Python type of a default in JSON."""


def _of_union(branches: Sequence[Any], value: Any, named: Mapping[str, Any]) -> Any:
    """Return a default as the first type that has such values. A named type is a pair of its name and the value."""
    for one in branches:
        branch = named.get(one, one) if isinstance(one, str) else one
        if isinstance(value, _JSON.get(name_of(branch), ())):
            found = from_json(branch, value, named)
            is_named = isinstance(branch, dict) and "name" in branch
            return (branch["name"], found) if is_named else found
    return value


def default_of(field: Mapping[str, Any]) -> pa.Array | None:
    """Return the default of a field as a column of one row. None if it has no default, or one that does not fit."""
    if "default" not in field:
        return None
    shape = shape_of(field["type"])
    try:
        value = from_json(field["type"], field["default"], {})
        if value is not None and shape.convert is not None:
            value = shape.convert(value)
        return pa.array([value], shape.type).cast(for_spark(shape.type))
    except Exception:  # noqa: BLE001  a default is any JSON
        return None
