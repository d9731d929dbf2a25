"""Avro records decoded as columns, without a Python statement per record.

The fields of a schema are read one after the other, each for all records at once. `avro.reader` decodes the records
that are refused, and has the reason for those that cannot be decoded. Invariant: both return the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from minikafka.spark.records.starts import Positions
from minikafka.spark.registry.avro_shapes import default_of, name_of, shape_of
from minikafka.spark.registry.cursor import Cursor, Mask, equal_keys
from minikafka.spark.registry.framing import HEADER_BYTES, Frames
from minikafka.spark.registry.shapes import for_spark

ColumnRead = Callable[[Frames, Positions], tuple[pa.Array, Mask]]
_Step = Callable[[Cursor], pa.Array]
"""Reads a value of each record."""
_PROMOTED: Final = (
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
)
"""Types whose values can be read as those of another type."""
_INT_MAX: Final = 2**31 - 1
_MILLIS_MAX: Final = (2**63 - 1) // 1000


class _Unusual(Exception):
    """Schemas whose records are decoded one by one."""


def column_reader(written: Any, wanted: Any) -> ColumnRead | None:
    """Return a function that decodes records of the schema `written` to the column of the schema `wanted`.

    The schemas are JSON as of `avro.expanded`. The function gets frames and the rows to decode, and returns the column
    of these rows, and which of its values are decoded. Returns None if the schemas are unusual.
    """
    try:
        step = _step(written, wanted)
    except _Unusual:
        return None

    def read(frames: Frames, rows: Positions) -> tuple[pa.Array, Mask]:
        cursor = Cursor(frames.data, frames.starts[rows] + HEADER_BYTES, frames.ends[rows])
        column = step(cursor)
        return column, ~cursor.refused & (cursor.at == cursor.ends)

    return read


def _step(written: Any, wanted: Any) -> _Step:
    if isinstance(written, list) or isinstance(wanted, list):
        return _union(written, wanted)
    before, after = name_of(written), name_of(wanted)
    if before not in _STEPS or (before != after and (before, after) not in _PROMOTED):
        raise _Unusual
    return _STEPS[before](written, wanted)


def _union(written: Any, wanted: Any) -> _Step:
    """Return the step of a type that may be null on one side or on both."""
    step = _step(_only(written), _only(wanted))
    if not isinstance(written, list):
        return step
    index = written.index(_only(written))
    may_be_null = len(written) > 1 and isinstance(wanted, list) and len(wanted) > 1

    def read(cursor: Cursor) -> pa.Array:
        chosen = cursor.varints()
        is_some = chosen == index
        if is_some.all():
            return step(cursor)
        cursor.refused |= ~(is_some | (may_be_null & (chosen == 1 - index)))
        found = cursor.of(np.flatnonzero(is_some), step)
        return found.take(pa.array(np.cumsum(is_some) - 1, mask=~is_some))

    return read


def _only(branches: Any) -> Any:
    """Return the type of a union next to null. A type that is no union is its own."""
    if not isinstance(branches, list):
        return branches
    others = [one for one in branches if name_of(one) != "null"]
    if len(others) != 1:
        raise _Unusual
    return others[0]


def _number(written: Any, wanted: Any) -> _Step:
    kind, name = shape_of(wanted).type, name_of(written)
    if name in ("int", "long"):
        return lambda cursor: _whole(cursor, kind)
    width = "<f4" if name == "float" else "<f8"
    return lambda cursor: pa.array(cursor.numbers(width)).cast(kind)


def _whole(cursor: Cursor, kind: pa.DataType) -> pa.Array:
    """Read whole numbers as a column of numbers or times."""
    values = cursor.varints()
    if pa.types.is_floating(kind):
        return pa.array(values.astype(np.float64)).cast(kind)
    if pa.types.is_timestamp(kind):
        if kind.unit == "ms":
            values = cursor.accepted(values, -_MILLIS_MAX, _MILLIS_MAX) * 1000
        return pa.array(values).view(for_spark(kind))
    if kind.bit_width == 32:
        values = cursor.accepted(values, -_INT_MAX - 1, _INT_MAX)
        return pa.array(values.astype(np.int32)).view(kind)
    return pa.array(values)


def _boolean(_: Any, __: Any) -> _Step:
    def read(cursor: Cursor) -> pa.Array:
        found = cursor.numbers("u1")
        cursor.refused |= found > 1
        return pa.array(found == 1)

    return read


def _binary(written: Any, wanted: Any) -> _Step:
    """Return the step of text, bytes and decimals, whose length is in the schema or before each value."""
    kind = shape_of(wanted).type
    size = None
    if name_of(written) == "fixed":
        _check_names(written, wanted)
        size = written["size"]
        if size != wanted["size"]:
            raise _Unusual

    def read(cursor: Cursor) -> pa.Array:
        lengths = cursor.varints() if size is None else size
        if pa.types.is_decimal(kind):
            return cursor.decimals(lengths, kind)
        return cursor.text(lengths) if pa.types.is_string(kind) else cursor.binary(lengths)

    return read


def _check_names(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise _Unusual for types of different names, which match only by an alias."""
    before, after = (one["name"].rpartition(".")[2] for one in (written, wanted))
    if before != after:
        raise _Unusual


def _enum(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> _Step:
    _check_names(written, wanted)
    if not {*written["symbols"]} <= {*wanted["symbols"]}:
        raise _Unusual
    symbols = pa.array(written["symbols"], pa.string())

    def read(cursor: Cursor) -> pa.Array:
        return symbols.take(pa.array(cursor.accepted(cursor.varints(), 0, len(symbols) - 1)))

    return read


def _record(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> _Step:
    """Return the step of a record. Fields that are not wanted are read too; defaults fill those that are new."""
    _check_names(written, wanted)
    columns = {one["name"]: one for one in wanted["fields"]}
    if not columns or any("aliases" in one for one in wanted["fields"]):
        raise _Unusual
    steps = {
        one["name"]: _step(one["type"], columns.get(one["name"], one)["type"])
        for one in written["fields"]
    }
    defaults = {name: _default(one) for name, one in columns.items() if name not in steps}
    fields = [*for_spark(shape_of(wanted).type)]

    def read(cursor: Cursor) -> pa.Array:
        found = {name: step(cursor) for name, step in steps.items()}
        firsts = pa.array(np.zeros(len(cursor), dtype=np.int32))
        found |= {name: one.take(firsts) for name, one in defaults.items()}
        return pa.StructArray.from_arrays([found[name] for name in columns], fields=fields)

    return read


def _default(field: Mapping[str, Any]) -> pa.Array:
    found = default_of(field)
    if found is None:
        raise _Unusual
    return found


def _array(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> _Step:
    step = _step(written["items"], wanted["items"])
    kind = for_spark(shape_of(wanted).type)

    def read(cursor: Cursor) -> pa.Array:
        borders, items = cursor.items(step, kind.value_type)
        return pa.ListArray.from_arrays(pa.array(borders, pa.int32()), items, type=kind)

    return read


def _map(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> _Step:
    of_value = _step(written["values"], wanted["values"])
    kind = for_spark(shape_of(wanted).type)
    entry = pa.struct([pa.field("key", pa.string()), pa.field("value", kind.item_type)])

    def read_entry(cursor: Cursor) -> pa.Array:
        columns = [cursor.text(cursor.varints()), of_value(cursor)]
        return pa.StructArray.from_arrays(columns, fields=[*entry])

    def read(cursor: Cursor) -> pa.Array:
        borders, entries = cursor.items(read_entry, entry)
        keys, values = entries.flatten()
        cursor.refused[equal_keys(borders, keys)] = True
        return pa.MapArray.from_arrays(pa.array(borders, pa.int32()), keys, values, type=kind)

    return read


_STEPS: Final[dict[str, Callable[[Any, Any], _Step]]] = {
    "boolean": _boolean,
    "int": _number,
    "long": _number,
    "float": _number,
    "double": _number,
    "bytes": _binary,
    "string": _binary,
    "fixed": _binary,
    "enum": _enum,
    "array": _array,
    "map": _map,
    "record": _record,
    "error": _record,
}
