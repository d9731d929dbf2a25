"""Requests and responses of all APIs except Produce and Fetch, as objects of the library kio.

Invariant: kio reads only bytes that `wire/shapes.py` has checked, so that kio allocates no memory for a
false count or length. Any input results in an entity or in `ProtocolViolation`.

An *entity* is an instance of one of kio's frozen dataclasses (`kio.schema.<api>.v<n>`). Its attributes
are Kafka's field names in snake case (times without `_ms`). Times are integers of milliseconds, ids are
`UUID | None`, arrays are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from io import BytesIO
from struct import Struct
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import uuid_zero

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer
from minikafka.wire.primitives import (
    INT32,
    NO_TAGS,
    NULL_UUID,
    array,
    compact_array,
    skip_tags,
    string,
)
from minikafka.wire.schemas import request_schema, response_schema
from minikafka.wire.shapes import Shape, array_element, checked, shape_of, without_none
from minikafka.wire.versions import (
    NAMES,
    PRODUCE,
    SERVED,
    has_flexible_response_header,
    is_flexible,
)

Entity: TypeAlias = Any
Read: TypeAlias = Callable[[Buffer, int], tuple[Entity, int]]
FieldNames: TypeAlias = Callable[[], frozenset[str]]
"""A function that returns every field name of an API in all served versions. It is called only if needed."""
Convert: TypeAlias = Callable[[Any, FieldNames], Any]

REQUEST_ELEMENTS_MAX: Final = 100_000
"""Limit of array elements and tagged fields in one request; requests of a small cluster stay far below it."""
RESPONSE_ELEMENTS_MAX: Final = 10_000_000

_REQUEST_HEADER: Final = Struct(">hhi")
_FIRST_PRODUCE: Final = 3
"""kio has no schema of Produce 0 to 2; the broker refuses these versions before decoding."""
_UUID: Final = type(uuid_zero)
READ_ERRORS: Final = (SerialError, ValueError, LookupError, TypeError, ArithmeticError)


def decode_request(api: int, version: int, view: Buffer) -> Entity:
    """Return the decoded body of a request.

    `view`: the request after the client id. Tagged fields of the request header are skipped.
    `api` and `version` must be served (`versions.is_served`). Raises ProtocolViolation for malformed bytes.
    """
    data = bytes(view)
    pos = skip_tags(data, 0) if is_flexible(api, version) else 0
    shape, read = _reader(request_schema(api, version))
    return _read(api, version, read, checked(shape, data, pos, REQUEST_ELEMENTS_MAX))


def decode_response(api: int, version: int, view: Buffer) -> Entity:
    """Return the decoded body of a response.

    `view`: the response without its length prefix; the first field is the correlation id. Raises
    ProtocolViolation for malformed bytes.
    """
    data = bytes(view)
    pos = skip_tags(data, 4) if has_flexible_response_header(api, version) else 4
    shape, read = _reader(response_schema(api, version))
    return _read(api, version, read, checked(shape, data, pos, RESPONSE_ELEMENTS_MAX))


def encode_response(correlation: int, api: int, version: int, body: Entity | bytes) -> bytes:
    """Return a whole response frame, length prefix included. `body` is an entity or its encoded bytes."""
    head = INT32.pack(correlation)
    if has_flexible_response_header(api, version):
        head += NO_TAGS
    data = body if isinstance(body, bytes) else encode_body(body)
    return b"".join((INT32.pack(len(head) + len(data)), head, data))


def encode_request(
    api: int, version: int, correlation: int, client_id: str | None, body: Entity | bytes
) -> bytes:
    """Return a whole request frame, length prefix included; the client id is never a compact string."""
    head = _REQUEST_HEADER.pack(api, version, correlation) + string(client_id)
    if is_flexible(api, version):
        head += NO_TAGS
    data = body if isinstance(body, bytes) else encode_body(body)
    return b"".join((INT32.pack(len(head) + len(data)), head, data))


def encode_body(entity: Entity) -> bytes:
    """Return the encoded entity without any header."""
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def response(api: int, version: int, **values: Any) -> Entity:
    """Return a response entity made from plain values. The values follow the same rules as in `request`."""
    names = partial(_field_names, response_schema, api)
    return _build(response_schema(api, version), values, names)


def encode_element(api: int, version: int, name: str, values: Mapping[str, Any]) -> bytes:
    """Return one encoded element of the array field `name` of a response.

    `values`: the element's fields as plain values.
    """
    element = _element_type(response_schema(api, version), name)
    return encode_body(_build(element, values, partial(_field_names, response_schema, api)))


def with_elements(api: int, version: int, elements: Sequence[bytes], **values: Any) -> bytes:
    """Return an encoded response whose last field is an array of these encoded elements.

    `values` are the other fields of the response.
    """
    empty = encode_body(response(api, version, **values))
    return _filled(empty, elements, response_schema(api, version).__flexible__)


def elements_in_steps(
    api: int, version: int, name: str, elements: Iterable[Mapping[str, Any]]
) -> Generator[None, None, bytes]:
    """Encode a response whose last field is the array `name`, as a generator that yields after each element.

    The generator returns the bytes. Elements are made from plain values. The response's other fields have defaults.
    """
    encoded = []
    for element in elements:
        encoded.append(encode_element(api, version, name, element))
        yield
    return with_elements(api, version, encoded)


def element_with_rows(
    api: int, version: int, name: str, values: Mapping[str, Any], rows: Sequence[bytes]
) -> bytes:
    """Return one encoded element, as `encode_element` does, with `rows` in the element's last field.

    The last field is an array that `values` does not contain. `rows`: the encoded elements of this array.
    """
    empty = encode_element(api, version, name, values)
    return _filled(empty, rows, response_schema(api, version).__flexible__)


def row_encoder(
    api: int, version: int, name: str, rows: str
) -> Callable[[Mapping[str, int]], bytes]:
    """Return a function that encodes one element of the array `rows` within the array `name` of a response.

    The element's fields must be integers. The function takes a tenth of the time that kio takes, which matters
    for thousands of partitions.
    """
    layout, names, tail = _row(api, version, name, rows)
    return lambda values: layout.pack(*[values[name] for name in names]) + tail


_INTEGERS: Final = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "error_code": "h"}


@cache
def _row(api: int, version: int, name: str, rows: str) -> tuple[Struct, tuple[str, ...], bytes]:
    element = _element_type(response_schema(api, version), name)
    row = _element_type(element, rows)
    columns = fields(row)
    layout = Struct(">" + "".join(_INTEGERS[field.metadata["kafka_type"]] for field in columns))
    return layout, tuple(field.name for field in columns), NO_TAGS if row.__flexible__ else b""


def _element_type(entity_type: Any, name: str) -> Any:
    (field,) = (field for field in fields(entity_type) if field.name == name)
    return array_element(field.type)


def _filled(empty: bytes, elements: Sequence[bytes], is_flexible: bool) -> bytes:
    """Return the encoded entity `empty` after `elements` were added to its last field.

    The last field of `empty` must be an empty array.
    """
    if is_flexible:
        head = empty[: -len(compact_array(0) + NO_TAGS)]
        return b"".join((head, compact_array(len(elements)), *elements, NO_TAGS))
    return b"".join((empty[: -len(array(0))], array(len(elements)), *elements))


def request(api: int, version: int, **values: Any) -> Entity:
    """Return a request entity made from plain values.

    A structure is a mapping of field names to values. Error codes are ints, ids are 16 bytes or
    None, times are milliseconds. A field that only other versions have is ignored. A missing field gets
    Kafka's default. Raises TypeError for a field that no version has.
    """
    names = partial(_field_names, request_schema, api)
    return _build(request_schema(api, version), values, names)


def id_bytes(topic_id: Any) -> bytes:
    """Return the value of an id field of an entity as 16 bytes. None becomes zeros."""
    return NULL_UUID if topic_id is None else bytes(topic_id.bytes)


@cache
def _reader(entity_type: Any) -> tuple[Shape, Read]:
    return shape_of(entity_type), entity_reader(entity_type)


def _read(api: int, version: int, read: Read, at: tuple[Buffer, int]) -> Entity:
    try:
        return read(*at)[0]
    except READ_ERRORS as error:
        raise ProtocolViolation(f"{NAMES[api]} v{version}: {error}") from error


def _build(entity_type: Any, values: Mapping[str, Any], names: FieldNames) -> Entity:
    _check_names(entity_type, values, names)
    return entity_type(
        **{
            name: convert(values[name], names) if name in values else default
            for name, convert, default in _plan(entity_type)
        }
    )


def check_names(api: int, entity_type: Any, values: Mapping[str, Any]) -> None:
    """Raise TypeError if the values have a field that no version of the API's response has."""
    if not _own_names(entity_type).issuperset(values):
        _check_names(entity_type, values, partial(_field_names, response_schema, api))


def _check_names(entity_type: Any, values: Mapping[str, Any], names: FieldNames) -> None:
    # `names` imports every version of the API, which takes up to 0.1 s: call it only for a name this version lacks.
    if not _own_names(entity_type).issuperset(values) and not names().issuperset(values):
        raise TypeError(
            f"{entity_type.__name__} has no {sorted(values.keys() - names())} in any version"
        )


@cache
def _plan(entity_type: Any) -> tuple[tuple[str, Convert, Any], ...]:
    return tuple(
        (field.name, _converter(field), default_of(field)) for field in fields(entity_type)
    )


@cache
def _own_names(entity_type: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(entity_type))


def _converter(field: Field[Any]) -> Convert:
    element = array_element(field.type)
    if element is not None:
        return _array_converter(element)
    if is_dataclass(field.type):
        return lambda value, names: _build(field.type, value, names)
    kafka_type = field.metadata["kafka_type"]
    if kafka_type == "error_code":
        return lambda code, names: KioErrorCode(code)
    if kafka_type == "uuid":
        return lambda value, names: None if value is None else _UUID(bytes=value)
    return lambda value, names: value


def _array_converter(element: Any) -> Convert:
    if not is_dataclass(element):
        return lambda items, names: None if items is None else tuple(items)

    def convert(items: Iterable[Mapping[str, Any]] | None, names: FieldNames) -> Any:
        return None if items is None else tuple(_build(element, item, names) for item in items)

    return convert


def default_of(field: Field[Any]) -> Any:
    """Return the value that Kafka uses for a missing field."""
    if field.default is not MISSING:
        return field.default
    inner, nullable = without_none(field.type)
    if nullable:
        return None
    if array_element(inner) is not None:
        return ()
    kafka_type = field.metadata["kafka_type"]
    if kafka_type == "error_code":
        return KioErrorCode(0)
    return {"string": "", "bytes": b"", "bool": False}.get(kafka_type, 0)


@cache
def _field_names(load: Callable[[int, int], Any], api: int) -> frozenset[str]:
    """Return every field name of the API's requests, or of its responses, in all served versions."""
    low, high = SERVED[api]
    first = _FIRST_PRODUCE if api == PRODUCE else low
    return frozenset(
        name for version in range(first, high + 1) for name in _names_below(load(api, version))
    )


def _names_below(entity_type: Any) -> Iterator[str]:
    for field in fields(entity_type):
        yield field.name
        inner = without_none(field.type)[0]
        inner = array_element(inner) or inner
        if is_dataclass(inner):
            yield from _names_below(inner)
