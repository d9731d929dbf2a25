"""Columns encoded as Avro records, without a Python statement per row: the reverse of `avro_decode`.

A record is a sequence of parts: short ones, such as numbers and lengths, and binary columns of Arrow. Each schema adds
the parts of its column, for all rows at once. A row in which the column is absent (null, where the schema is a union
with null) has no bytes in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from minikafka.spark.records.varints import Numbers, Piece, packed, varint
from minikafka.spark.registry.avro_shapes import default_of, logical_of, name_of
from minikafka.spark.registry.cursor import Mask, equal_keys

_Parts = list[Piece | pa.Array]
_NOTHING: Final = pa.scalar(b"", pa.binary())
_DECIMAL_BYTES: Final = 16


class _Unfit(Exception):
    """The schema is unusual, or a row does not fit it."""


def column_writer(schema: Any, head: bytes) -> Callable[[pa.Array], pa.Array | None]:
    """Return a function that encodes a column of rows, each after the bytes `head`; a null row is null.

    `schema`: JSON as of `avro.expanded`. The function returns None if `avro.writer` must encode the rows one by one:
    it knows unusual schemas, and why a row does not fit.
    """

    def write(rows: pa.Array) -> pa.Array | None:
        present = np.asarray(rows.is_valid())
        parts: _Parts = [_bytes_of_all(np.frombuffer(head, np.uint8)[None, :], present)]
        try:
            _add(schema, rows, present, parts)
        except _Unfit:
            return None
        found = _joined(parts)
        return pc.if_else(pa.array(present), found, None) if rows.null_count else found

    return write


def _joined(parts: Sequence[Piece | pa.Array]) -> pa.Array:
    """Return one binary value per row: the row's bytes from each part."""
    columns: list[pa.Array] = []
    for is_short, group in groupby(parts, lambda one: isinstance(one, Piece)):
        if is_short:
            columns.append(packed([*group]))
        else:
            columns += group
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, _NOTHING)


def _add(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    """Add the parts of a column. It is null where it is not present."""
    if not present.any():
        return
    if isinstance(schema, list):
        _add_union(schema, column, present, parts)
        return
    add = _ADDERS.get(name_of(schema))
    is_null_where_present = column.null_count > len(present) - np.count_nonzero(present)
    if add is None or is_null_where_present:
        raise _Unfit
    add(schema, column, present, parts)


def _present(piece: Piece, present: Mask) -> Piece:
    return piece._replace(lengths=piece.lengths * present)


def _bytes_of_all(grid: npt.NDArray[np.uint8], present: Mask) -> Piece:
    """Return a row of bytes for each present row. A grid of one row is that of all."""
    width = grid.shape[1]

    def write(place: npt.NDArray[np.uint8]) -> None:
        place[:] = grid

    return Piece(present * np.int64(width), width, write)


def _add_union(branches: Sequence[Any], column: pa.Array, present: Mask, parts: _Parts) -> None:
    names = [name_of(one) for one in branches]
    if len(names) != 2 or "null" not in names:
        raise _Unfit
    index = 1 - names.index("null")
    is_some = present & np.asarray(column.is_valid())
    parts.append(_present(varint(np.where(is_some, index, 1 - index)), present))
    _add(branches[index], column, is_some, parts)


def _add_whole(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    logical = logical_of(schema)
    if types.is_timestamp(column.type) and "timestamp" in logical:
        numbers = _instants(column, "ms" if logical.endswith("millis") else "us")
    elif types.is_date(column.type) and logical == "date":
        numbers = column.cast(pa.int32())
    elif types.is_signed_integer(column.type) and not logical:
        numbers = column
    else:
        raise _Unfit
    parts.append(_present(varint(_filled(numbers)), present))


def _instants(column: pa.Array, unit: str) -> pa.Array:
    instants = column.cast(pa.timestamp("us"))
    if unit == "ms":
        instants = pc.floor_temporal(instants, 1, "millisecond").cast(pa.timestamp("ms"))
    return instants.cast(pa.int64())


def _filled(column: pa.Array) -> Numbers:
    wide = column.cast(pa.int64())
    return np.asarray(pc.fill_null(wide, 0) if wide.null_count else wide)


def _add_float(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    kind = pa.float32() if name_of(schema) == "float" else pa.float64()
    if not (types.is_floating(column.type) or types.is_signed_integer(column.type)):
        raise _Unfit
    numbers = np.asarray(pc.fill_null(column.cast(kind), 0))
    parts.append(_bytes_of_all(numbers.view(np.uint8).reshape(len(numbers), -1), present))


def _add_boolean(_: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    if not types.is_boolean(column.type):
        raise _Unfit
    bits = np.asarray(pc.fill_null(column, False)).astype(np.uint8)
    parts.append(_bytes_of_all(bits[:, None], present))


def _add_enum(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    found = pc.index_in(_text(column), value_set=pa.array(schema["symbols"], pa.string()))
    if found.null_count > column.null_count:
        raise _Unfit
    parts.append(_present(varint(_filled(found)), present))


def _text(column: pa.Array) -> pa.Array:
    """Return a column of text. Raises _Unfit if it is none, or has damaged text, which Spark allows."""
    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        raise _Unfit
    text = column.cast(pa.string())
    try:
        return text.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise _Unfit from None


def _add_bytes(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    if types.is_decimal(column.type):
        _add_decimal(schema, column, present, parts)
        return
    is_text = name_of(schema) == "string"
    if not is_text and not (types.is_binary(column.type) or types.is_large_binary(column.type)):
        raise _Unfit
    data = (_text(column) if is_text else column).cast(pa.binary())
    lengths = pc.fill_null(pc.binary_length(data), 0)
    if name_of(schema) != "fixed":
        parts.append(_present(varint(_filled(lengths)), present))
    elif not np.array_equal(np.asarray(lengths), present * schema["size"]):
        raise _Unfit
    parts.append(pc.fill_null(data, _NOTHING) if data.null_count else data)


def _add_decimal(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    """Add numbers of several bytes, the highest first: as many as the schema says, or as fastavro writes."""
    low_first = _decimal_bytes(schema, column) * present[:, None]  # the bytes of a null are any
    size = schema.get("size")
    if size is not None:
        if size > _DECIMAL_BYTES or 10 ** schema["precision"] > 2 ** (8 * size - 1):
            raise _Unfit
        parts.append(
            _bytes_of_all(
                low_first[:, size - 1 :: -1] if size < 16 else low_first[:, ::-1], present
            )
        )
        return
    lengths = _decimal_lengths(low_first)
    width = int(lengths.max())
    places = np.maximum(lengths[:, None] - 1 - np.arange(width), 0)
    grid = np.take_along_axis(low_first, places, axis=1)
    parts.append(_present(varint(lengths), present))
    parts.append(_bytes_of_all(grid, present)._replace(lengths=lengths * present))


def _decimal_bytes(schema: Any, column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the 16 bytes of each decimal, the lowest first, with the digits after the point that the schema has."""
    try:
        if logical_of(schema) != "decimal":
            raise _Unfit
        fitting = column.cast(pa.decimal128(schema["precision"], schema.get("scale", 0)))
    except (pa.ArrowInvalid, ValueError):
        raise _Unfit from None
    data = np.frombuffer(fitting.buffers()[1], np.uint8)
    return data.reshape(-1, _DECIMAL_BYTES)[fitting.offset : fitting.offset + len(fitting)]


def _decimal_lengths(low_first: npt.NDArray[np.uint8]) -> Numbers:
    """Return how many bytes each number needs, with a bit for its sign."""
    low, high = np.ascontiguousarray(low_first).view("<u8").T
    is_negative = low_first[:, -1] > 0x7F
    size = np.stack(
        (np.where(is_negative, ~low + 1, low), np.where(is_negative, ~high + (low == 0), high)),
        axis=1,
    )
    digits = np.ascontiguousarray(size).view(np.uint8)
    last = np.where(
        digits.any(axis=1), _DECIMAL_BYTES - 1 - np.argmax(digits[:, ::-1] != 0, axis=1), 0
    )
    return last + 1 + (digits[np.arange(len(digits)), last] > 0x7F)


def _add_record(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    names = {one["name"] for one in schema["fields"]}
    if not types.is_struct(column.type) or not {one.name for one in column.type} <= names:
        raise _Unfit
    columns = dict(zip((one.name for one in column.type), column.flatten(), strict=True))
    for one in schema["fields"]:
        found = columns.get(one["name"])
        if found is None:
            found = default_of(one)
            if found is None:
                raise _Unfit
            found = found.take(pa.array(np.zeros(len(present), dtype=np.int32), mask=~present))
        _add(one["type"], found, present, parts)


def _add_array(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    if not types.is_list(column.type):
        raise _Unfit
    items = column.flatten()
    found: _Parts = []
    _add(schema["items"], items, np.ones(len(items), dtype=np.bool_), found)
    _add_blocks(column, found, present, parts)


def _add_map(schema: Any, column: pa.Array, present: Mask, parts: _Parts) -> None:
    if not types.is_map(column.type):
        raise _Unfit
    pairs = pa.struct(
        [pa.field("key", column.type.key_type), pa.field("value", column.type.item_type)]
    )
    lists = column.cast(pa.list_(pairs))
    keys, values = lists.flatten().flatten()
    counts = _filled(pc.list_value_length(lists))
    if equal_keys(np.concatenate(([0], np.cumsum(counts))), keys).size:
        raise _Unfit
    found: _Parts = []
    is_entry = np.ones(len(keys), dtype=np.bool_)
    _add("string", keys, is_entry, found)
    _add(schema["values"], values, is_entry, found)
    _add_blocks(lists, found, present, parts)


def _add_blocks(lists: pa.Array, items: _Parts, present: Mask, parts: _Parts) -> None:
    """Add a block with the items of each list, unless it is empty, and the block without items that ends it."""
    counts = _filled(pc.list_value_length(lists))
    parts.append(_present(varint(counts), counts > 0))
    if items:
        joined = _joined(items)
        _, borders, data = joined.buffers()
        ends = np.frombuffer(borders, np.int32)[joined.offset :]
        rows = np.ascontiguousarray(ends[np.concatenate(([0], np.cumsum(counts)))])
        parts.append(
            pa.Array.from_buffers(pa.binary(), len(lists), [None, pa.py_buffer(rows), data])
        )
    parts.append(_bytes_of_all(np.zeros((1, 1), dtype=np.uint8), present))


_ADDERS: Final[dict[str, Callable[[Any, pa.Array, Mask, _Parts], None]]] = {
    "boolean": _add_boolean,
    "int": _add_whole,
    "long": _add_whole,
    "float": _add_float,
    "double": _add_float,
    "bytes": _add_bytes,
    "string": _add_bytes,
    "fixed": _add_bytes,
    "enum": _add_enum,
    "array": _add_array,
    "map": _add_map,
    "record": _add_record,
    "error": _add_record,
}
