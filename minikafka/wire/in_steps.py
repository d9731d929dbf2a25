"""Decoding of long requests and encoding of long responses, in steps of well below a millisecond.

Each function `…_in_steps` is a generator that yields after each step and returns the result. The array elements of
a response may come from a generator that runs while the response is encoded. A handler that makes the elements in
such a generator needs no steps of its own.
Invariant: the results equal those of `wire/codec.py`, and the same malformed bytes are refused.

A bound on the size of requests cannot replace the steps. kio decodes 1,000 partitions of an OffsetCommit in 0.9 ms, and
100,000 elements, which a request may have, in 90 ms. In steps, the longest step takes 0.3 ms. A bound of
as short a time would refuse requests for 500 partitions, which Kafka accepts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from enum import IntEnum
from functools import cache, partial
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from kio.serial import entity_reader
from kio.serial._parse import get_field_reader, get_reader

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Buffer
from minikafka.record.varints import uvarint
from minikafka.wire.codec import (
    READ_ERRORS,
    REQUEST_ELEMENTS_MAX,
    Entity,
    check_names,
    default_of,
)
from minikafka.wire.primitives import (
    INT32,
    NO_TAGS,
    array,
    compact_array,
    compact_string,
    skip_tags,
    string,
)
from minikafka.wire.schemas import request_schema, response_schema
from minikafka.wire.shapes import (
    Cursor,
    Shape,
    array_count,
    array_element,
    checked_next,
    field_shape,
    skip_unknown_tags,
    value_shape,
    without_none,
)
from minikafka.wire.versions import NAMES, is_flexible

STEP_ROWS: Final = 64
"""Number of array elements that are encoded or decoded in one step."""
STEP_NESTED_ROWS: Final = 8
"""The same for elements that contain arrays, each of which ends its own steps after STEP_ROWS elements."""
STEP_BYTES: Final = 8 << 10
"""A step ends after this many bytes of encoded rows, so that rows with long names take more steps."""

Read: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
Pack: TypeAlias = Callable[[Any], bytes]
Row: TypeAlias = Mapping[str, Any]
Decoding: TypeAlias = Generator[None, None, Entity]
Encoding: TypeAlias = Generator[Any, None, None]


def decode_request_in_steps(api: int, version: int, view: Buffer) -> Decoding:
    """Do what `codec.decode_request` does, as a generator that yields between steps and returns the request.

    Raises ProtocolViolation for malformed bytes.
    """
    start = skip_tags(view, 0) if is_flexible(api, version) else 0
    data = memoryview(view).toreadonly()  # kio requires a read-only view
    cursor = Cursor(data, start, REQUEST_ELEMENTS_MAX)
    try:
        return (yield from _decode(request_schema(api, version), cursor))
    except READ_ERRORS as error:
        raise ProtocolViolation(f"{NAMES[api]} v{version}: {error}") from error


class _Part(NamedTuple):
    """The decoding of one field, at once or element by element."""

    name: str
    shape: Shape
    """The shape of the field, or of its elements if `is_array`."""
    read: Read
    is_array: bool = False
    is_nullable: bool = False
    nested: Any = None
    """The type of the elements if the elements contain long arrays, else None."""


def _decode(entity_type: Any, cursor: Cursor) -> Decoding:
    values: dict[str, Any] = {}
    flexible: bool = entity_type.__flexible__
    for part in _parts(entity_type):
        if part.is_array:
            values[part.name] = yield from _decode_array(part, flexible, cursor)
        else:
            values[part.name] = part.read(*checked_next(part.shape, cursor))[0]
    if flexible:
        skip_unknown_tags(cursor)
        cursor.cuts.clear()
    return entity_type(**values)


def _decode_array(
    part: _Part, flexible: bool, cursor: Cursor
) -> Generator[None, None, tuple[Any, ...] | None]:
    _, shape, read, _, is_nullable, nested = part
    count = array_count(cursor, flexible, is_nullable, shape.smallest)
    if count < 0:
        return None
    elements = []
    step = STEP_ROWS if nested is None else STEP_NESTED_ROWS
    for number in range(1, count + 1):
        if nested is not None:
            elements.append((yield from _decode(nested, cursor)))
        else:
            elements.append(read(*checked_next(shape, cursor))[0])
        if not number % step:
            yield
    return tuple(elements)


@cache
def _parts(entity_type: Any) -> tuple[_Part, ...]:
    return tuple(_part(entity_type, field) for field in fields(entity_type))


def _part(owner: Any, field: Field[Any]) -> _Part:
    flexible: bool = owner.__flexible__
    assert "tag" not in field.metadata, f"{owner.__name__}.{field.name} must not be a tagged field"
    inner, is_nullable = without_none(field.type)
    element = array_element(inner)
    if element is None:
        return _whole(owner, field)
    shape = value_shape(element, field.metadata, flexible)
    if not is_dataclass(element):
        if shape.fixed:
            return _whole(owner, field)
        read: Read = get_reader(field.metadata["kafka_type"], flexible, False)
        return _Part(field.name, shape, read, True, is_nullable)
    entity_type: Any = element
    nested = entity_type if any(part.is_array for part in _parts(entity_type)) else None
    read = entity_reader(entity_type)
    return _Part(field.name, shape, read, True, is_nullable, nested)


def _whole(owner: Any, field: Field[Any]) -> _Part:
    read = get_field_reader(owner, field, False, False)
    return _Part(field.name, field_shape(field, owner.__flexible__), read)


def _is_entities(field: Field[Any]) -> bool:
    return is_dataclass(array_element(without_none(field.type)[0]))


def by_topic_in_steps(
    partitions: Iterable[TopicPartition],
) -> Generator[None, None, dict[str, list[TopicPartition]]]:
    """Group partitions by topic, as a generator that yields between steps and returns the groups."""
    by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for number, tp in enumerate(partitions, 1):
        by_topic[tp.topic].append(tp)
        if not number % STEP_ROWS:
            yield
    return by_topic


def response_in_steps(api: int, version: int, **values: Any) -> Generator[Any, None, bytes]:
    """Encode a response, as a generator that yields between steps and returns the bytes.

    It yields the size of an array that is being encoded, which is at most the size of the response.
    `values`: the fields as plain values, as for `codec.response`. Arrays of entities may be any iterables, which
    are read while the response is encoded. Raises TypeError for a field that no version has.
    """
    out = bytearray()
    yield from _encode(api, response_schema(api, version), values, out)
    return bytes(out)


def _encode(api: int, entity_type: Any, values: Row, out: bytearray) -> Encoding:
    check_names(api, entity_type, values)
    for name, pack, element, default in _columns(entity_type):
        value = values.get(name, default)
        if element is None or value is None:
            out += pack(value)
        elif _has_entities(element):
            yield from _encode_long_rows(api, element, value, out)
        else:
            yield from _encode_rows(api, element, value, out)
    if entity_type.__flexible__:
        out += NO_TAGS


def _encode_long_rows(api: int, element: Any, rows: Iterable[Row], out: bytearray) -> Encoding:
    inside = bytearray()
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007
        yield from _encode(api, element, row, inside)
        yield len(inside)
    out += _length(element, count)
    out += inside


def _encode_rows(api: int, element: Any, rows: Iterable[Row], out: bytearray) -> Encoding:
    inside = bytearray()
    tags = NO_TAGS if element.__flexible__ else b""
    columns = _columns(element)
    count = stepped = 0
    for count, row in enumerate(rows, 1):
        check_names(api, element, row)
        for name, pack, _, default in columns:
            inside += pack(row.get(name, default))
        inside += tags
        if not count % STEP_ROWS or len(inside) - stepped > STEP_BYTES:
            stepped = len(inside)
            yield stepped
    out += _length(element, count)
    out += inside


def _length(element: Any, count: int) -> bytes:
    return compact_array(count) if element.__flexible__ else array(count)


@cache
def _has_entities(entity_type: Any) -> bool:
    return any(_is_entities(field) for field in fields(entity_type))


@cache
def _columns(entity_type: Any) -> tuple[tuple[str, Pack, Any, Any], ...]:
    """Return a tuple for each field: name, encoder, entity type, default value.

    The entity type is the element type of an array of entities, and None for any other field.
    """
    return tuple(_column(field, entity_type.__flexible__) for field in fields(entity_type))


def _column(field: Field[Any], flexible: bool) -> tuple[str, Pack, Any, Any]:
    assert "tag" not in field.metadata, f"{field.name} must not be a tagged field"
    element = array_element(field.type)
    pack = _packer(field.metadata.get("kafka_type", ""), flexible)
    default = _plain(default_of(field))
    if is_dataclass(element):
        null = b"\x00" if flexible else b"\xff\xff\xff\xff"
        return field.name, lambda value: null, element, default
    if element is not None:
        return field.name, partial(_pack_array, pack, flexible), None, default
    return field.name, pack, None, default


def _plain(default: Any) -> Any:
    return int(default) if isinstance(default, IntEnum) else default


def _pack_array(pack: Pack, flexible: bool, values: Iterable[Any] | None) -> bytes:
    if values is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    packed = [pack(value) for value in values]
    return (compact_array if flexible else array)(len(packed)) + b"".join(packed)


_NUMBERS: Final = {
    "bool": Struct(">?").pack,
    "int8": Struct(">b").pack,
    "int16": Struct(">h").pack,
    "int32": INT32.pack,
    "int64": Struct(">q").pack,
    "uint16": Struct(">H").pack,
    "float64": Struct(">d").pack,
    "error_code": Struct(">h").pack,
    "uuid": lambda value: value or bytes(16),
}


def _packer(kafka_type: str, flexible: bool) -> Pack:
    """Return the function that encodes one plain value of a type."""
    if kafka_type == "string":
        return compact_string if flexible else string
    if kafka_type in ("bytes", "records"):
        return _compact_bytes if flexible else _bytes
    return _NUMBERS.get(kafka_type, bytes)


def _bytes(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else INT32.pack(len(data)) + data


def _compact_bytes(data: bytes | None) -> bytes:
    return b"\x00" if data is None else uvarint(len(data) + 1) + data
