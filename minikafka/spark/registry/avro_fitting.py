"""The check that an Avro schema can hold a column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from minikafka.spark.registry.avro import expanded
from minikafka.spark.registry.avro_shapes import logical_of
from minikafka.spark.registry.fitting import column_name, is_bytes, is_text, is_whole, missing
from minikafka.spark.registry.records import RecordWriting

_WIDTHS: Final = {"int": 32, "long": 64, "double": 32}
"""Avro's types of numbers, each with the bits of the whole numbers that it can hold."""


def misfits(work: RecordWriting, kind: pa.DataType) -> Iterator[str]:
    """Yield a text for each field that the schema cannot hold."""
    yield from _misfits(expanded(work.schema), kind, "")


def _misfits(schema: Any, kind: pa.DataType, path: str) -> Iterator[str]:
    if isinstance(schema, list):
        yield from _of_union(schema, kind, path)
        return
    name = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(name, str):
        yield from _misfits(name, kind, path)
    elif name in ("record", "error") and types.is_struct(kind):
        yield from _of_record(schema, kind, path)
    elif name == "array" and types.is_list(kind):
        yield from _misfits(schema["items"], kind.value_type, f"{path}[]")
    elif name == "map" and types.is_map(kind) and is_text(kind.key_type):
        yield from _misfits(schema["values"], kind.item_type, f"{path}[]")
    elif not _holds(name, schema, kind):
        yield f"{path or 'the value'} is {logical_of(schema) or name}, the column {column_name(kind)}"


def _of_union(branches: Sequence[Any], kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the misfits of the type next to null. Of several types, one must hold the column."""
    others = [one for one in branches if one != "null"]
    found: list[str] = []
    for one in others:
        texts = [*_misfits(one, kind, path)]
        if not texts:
            return
        found = found or texts
    yield from (
        found
        if len(others) == 1
        else [f"{path or 'the value'} is a union without {column_name(kind)}"]
    )


def _of_record(schema: Mapping[str, Any], kind: pa.DataType, path: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    fields = {one["name"]: one for one in schema["fields"]}
    columns = {one.name: one.type for one in kind}
    yield from missing(kind, [*fields], prefix)
    for name, one in fields.items():
        if name in columns:
            yield from _misfits(one["type"], columns[name], f"{prefix}{name}")
        elif "default" not in one:
            yield f"the columns lack its field {prefix}{name}, which has no default"


def _holds(name: str, schema: Any, kind: pa.DataType) -> bool:
    """True if a schema that is no record, array or map can hold every value of a column."""
    logical = logical_of(schema)
    if types.is_timestamp(kind):
        return "timestamp" in logical and logical.startswith("local-") == (kind.tz is None)
    if types.is_date(kind):
        return logical == "date"
    if types.is_decimal(kind):
        return logical == "decimal" and _holds_decimal(schema, kind)
    if logical:
        return False
    if is_text(kind):
        return name in ("string", "enum")
    if is_bytes(kind):
        return name in ("bytes", "fixed")
    if types.is_signed_integer(kind):
        return is_whole(kind, _WIDTHS.get(name, 0))
    if types.is_floating(kind):
        return name == "double" or (name == "float" and kind.bit_width == 32)
    return bool((name == "boolean" and types.is_boolean(kind)) or types.is_null(kind))


def _holds_decimal(schema: Mapping[str, Any], kind: pa.DataType) -> bool:
    scale = schema.get("scale", 0)
    return bool(
        scale >= kind.scale and schema.get("precision", 0) - scale >= kind.precision - kind.scale
    )
