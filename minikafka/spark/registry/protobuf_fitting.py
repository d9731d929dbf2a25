"""The check that a Protobuf message can hold a column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types

from minikafka.spark.registry import protobuf
from minikafka.spark.registry.fitting import column_name, is_bytes, is_text, is_whole, missing
from minikafka.spark.registry.records import RecordWriting


def misfits(work: RecordWriting, kind: pa.DataType) -> Iterator[str]:
    """Yield a text for each field that the message cannot hold."""
    message = protobuf.message_type(work.schema, work.options.message)
    yield from _misfits(protobuf.arrow_type(message), kind, "")


def _misfits(field: pa.DataType, kind: pa.DataType, path: str) -> Iterator[str]:
    if types.is_struct(field) and types.is_struct(kind):
        prefix = f"{path}." if path else ""
        known: dict[str, Any] = {one.name: one.type for one in field}
        yield from missing(kind, [*known], prefix)
        for one in kind:
            if one.name in known:
                yield from _misfits(known[one.name], one.type, f"{prefix}{one.name}")
    elif types.is_list(field) and types.is_list(kind):
        yield from _misfits(field.value_type, kind.value_type, f"{path}[]")
    elif types.is_map(field) and types.is_map(kind):
        yield from _misfits(field.key_type, kind.key_type, f"{path}[]")
        yield from _misfits(field.item_type, kind.item_type, f"{path}[]")
    elif not _holds(field, kind):
        yield f"{path or 'the value'} is {column_name(field)}, the column {column_name(kind)}"


def _holds(field: pa.DataType, kind: pa.DataType) -> bool:
    """True if a field whose columns are of this type can hold every value of another type."""
    if types.is_decimal(field):  # uint64
        return is_whole(kind, 64) or (types.is_decimal(kind) and kind.scale == 0)
    if types.is_integer(field):
        return is_whole(kind, field.bit_width)
    if types.is_floating(field):
        is_exact = is_whole(kind, 32) and field.bit_width == 64
        return bool(is_exact or (types.is_floating(kind) and kind.bit_width <= field.bit_width))
    if types.is_timestamp(field):
        return bool(types.is_timestamp(kind))
    if is_text(field):
        return is_text(kind)
    return is_bytes(kind) if is_bytes(field) else bool(field == kind)
