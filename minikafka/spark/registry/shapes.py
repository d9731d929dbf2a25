"""The columns that a schema has, and the conversion of decoded values to them.

A value that a library has decoded is a Python object: a dict for a record, a list, a number and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

UTC: Final = "UTC"
Convert = Callable[[Any], Any]


class ColumnShape(NamedTuple):
    """The type of a column while values are collected, and a function that prepares a value for pyarrow.

    `type`: may have units of time that Spark does not know; `for_spark` gives Spark's. `convert`: None if pyarrow
    takes the decoded values as they are. `embed`: changes a value of Spark's `to_json` to the value of the document;
    None if they are equal. A value is never None in both functions.
    """

    type: pa.DataType
    convert: Convert | None = None
    embed: Convert | None = None


def for_spark(kind: pa.DataType) -> pa.DataType:
    """Return the type with microseconds as the unit of all timestamps, as Spark has it."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, for_spark(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(for_spark(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(for_spark(kind.key_type), for_spark(kind.item_type))
    return kind


def struct_of(fields: Mapping[str, ColumnShape]) -> ColumnShape:
    """Return the shape of a record, whose decoded value is a dict."""
    kind = pa.struct([pa.field(name, one.type) for name, one in fields.items()])
    changed = [(name, one.convert) for name, one in fields.items() if one.convert is not None]
    if not changed:
        return ColumnShape(kind)

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        found = dict(value)  # the value may be the default of a field, which other records share
        for name, change in changed:
            if found.get(name) is not None:
                found[name] = change(found[name])
        return found

    return ColumnShape(kind, convert)


def list_of(item: ColumnShape) -> ColumnShape:
    """Return the shape of a list."""
    change = item.convert
    if change is None:
        return ColumnShape(pa.list_(item.type))
    return ColumnShape(
        pa.list_(item.type),
        lambda value: [None if one is None else change(one) for one in value],
    )


def map_of(key: pa.DataType, item: ColumnShape) -> ColumnShape:
    """Return the shape of a map, whose decoded value is a dict."""
    change = item.convert
    if change is None:
        return ColumnShape(pa.map_(key, item.type), lambda value: list(value.items()))
    return ColumnShape(
        pa.map_(key, item.type),
        lambda value: [(name, None if one is None else change(one)) for name, one in value.items()],
    )
