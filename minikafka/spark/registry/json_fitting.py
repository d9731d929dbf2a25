"""The check that a JSON Schema allows the documents of a column, as Spark's to_json writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

from minikafka.spark.registry import json_schema
from minikafka.spark.registry.fitting import column_name, is_whole
from minikafka.spark.registry.records import RecordWriting


def misfits(work: RecordWriting, kind: pa.DataType) -> Iterator[str]:
    """Yield a text for each field that the schema does not allow."""
    if types.is_struct(kind):
        yield from _unknown(json_schema.document(work.schema), kind)
    yield from _misfits(json_schema.shape(work.schema).type, kind, "")


def _unknown(document: Any, kind: pa.DataType) -> Iterator[str]:
    """Yield a text for each column that the document does not allow, and for each one that it requires."""
    if not isinstance(document, Mapping):
        return
    columns = {one.name for one in kind}
    if document.get("additionalProperties") is False:
        for name in sorted(columns - {*document.get("properties", {})}):
            yield f"it has no property {name}"
    for name in document.get("required", ()):
        if name not in columns:
            yield f"the columns lack its property {name}"


def _misfits(field: pa.DataType, kind: pa.DataType, path: str) -> Iterator[str]:
    if types.is_struct(field) and types.is_struct(kind):
        known = {one.name: one.type for one in field}
        for one in kind:
            if one.name in known:
                name = f"{path}.{one.name}" if path else one.name
                yield from _misfits(known[one.name], one.type, name)
    elif types.is_list(field) and types.is_list(kind):
        yield from _misfits(field.value_type, kind.value_type, f"{path}[]")
    elif types.is_map(field) and types.is_map(kind):
        yield from _misfits(field.item_type, kind.item_type, f"{path}[]")
    elif not _holds(field, kind):
        yield f"{path or 'the value'} is {column_name(field)}, the column {column_name(kind)}"


def _holds(field: pa.DataType, kind: pa.DataType) -> bool:
    if types.is_int64(field):
        return is_whole(kind, 64)
    if types.is_floating(field):
        return bool(
            types.is_floating(kind) or types.is_signed_integer(kind) or types.is_decimal(kind)
        )
    if types.is_string(field):  # a time, a date and bytes are text in JSON
        return not (types.is_nested(kind) or types.is_boolean(kind) or types.is_integer(kind))
    return bool(field == kind)
