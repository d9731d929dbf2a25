"""Protobuf: the columns of a message type, and messages decoded and encoded with the library protobuf.

The registry compiles schemas: a schema is a FileDescriptorProto in base64, so no `protoc` is needed.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from minikafka.base.errors import ConfigError
from minikafka.spark.registry import well_known
from minikafka.spark.registry.client import Schema
from minikafka.spark.registry.framing import Undecodable, message_indexes
from minikafka.spark.registry.options import RECORD, SCHEMA
from minikafka.spark.registry.shapes import UTC

_F: Final = FieldDescriptor
_TYPES: Final = {
    _F.CPPTYPE_INT32: pa.int32(),
    _F.CPPTYPE_INT64: pa.int64(),
    _F.CPPTYPE_UINT32: pa.int64(),
    _F.CPPTYPE_UINT64: pa.decimal128(20, 0),
    _F.CPPTYPE_FLOAT: pa.float32(),
    _F.CPPTYPE_DOUBLE: pa.float64(),
    _F.CPPTYPE_BOOL: pa.bool_(),
    _F.CPPTYPE_ENUM: pa.string(),
}
_MAP: Final = re.compile(r"map<\s*(?P<key>\w+)\s*,\s*(?P<value>[\w.]+)\s*>")
_SCALARS: Final = {
    name.lower(): number
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
    for name in [name.removeprefix("TYPE_")]
    if name not in ("MESSAGE", "ENUM", "GROUP")
}
"""The names of the types of fields that are no messages and no enums."""
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
_TIMES: Final = {_TIMESTAMP: pa.timestamp("us", UTC), _DURATION: pa.duration("us")}
_WIDER: Final = {
    _F.TYPE_INT32: (_F.TYPE_INT64,),
    _F.TYPE_SINT32: (_F.TYPE_SINT64,),
    _F.TYPE_UINT32: (_F.TYPE_UINT64, _F.TYPE_INT64),
    _F.TYPE_BOOL: (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64),
    _F.TYPE_ENUM: (_F.TYPE_INT32, _F.TYPE_INT64),
    _F.TYPE_STRING: (_F.TYPE_BYTES,),
}
"""Types of a field whose values a newer type of the field can hold with the same bytes."""

Read = Callable[[bytes], Any]


def pool_of(schema: Schema) -> tuple[Any, Any]:
    """Return a pool with the file of a schema and the files that it imports, and the descriptor of the file."""
    pool = descriptor_pool.DescriptorPool()
    files = {name: _file(text, name) for name, text in schema.references}
    main = _file(schema.text, "schema.proto")
    taken = {*files}
    while main.name in taken:
        main.name = f"_{main.name}"
    added: set[str] = set()
    try:
        for one in (*files.values(), main):
            _add(pool, one, files, added)
        return pool, pool.FindFileByName(main.name)
    except (TypeError, KeyError) as error:
        raise ConfigError(
            f"{SCHEMA}: the Protobuf schema is not complete: {' '.join(str(error).split())[:200]}"
        ) from None


def _add(pool: Any, file: Any, files: Mapping[str, Any], added: set[str]) -> None:
    """Add a file to the pool, after the files that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for name in file.dependency:
        if name in files:
            _add(pool, files[name], files, added)
        elif name not in added:
            added.add(name)
            pool.AddSerializedFile(well_known.file_bytes(name))
    pool.AddSerializedFile(file.SerializeToString())


def _file(text: str, name: str) -> Any:
    """Return a file from its base64, under the name by which others import it."""
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise ConfigError(
            f"{SCHEMA}: the registry has not compiled the Protobuf schema (format=serialized); use one that does,"
            " such as Karapace or Confluent's"
        ) from None
    found.name = name
    for one in found.message_type:
        _complete(one)
    return found


def _complete(message: Any) -> None:
    """Add what `protoc` adds to a message, and Karapace leaves out: groups of `optional` fields, entries of maps."""
    for one in message.nested_type:
        _complete(one)
    for field in message.field:
        if field.proto3_optional and not field.HasField("oneof_index"):
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
        if found := _MAP.fullmatch(field.type_name):
            _complete_map(message, field, found["key"], found["value"])


def _complete_map(message: Any, field: Any, key: str, value: str) -> None:
    """Replace the type `map<KEY, VALUE>` of a field by a message for its entries, as `protoc` does."""
    words = field.name.split("_")
    entry = message.nested_type.add(
        name="".join(word[:1].upper() + word[1:] for word in words) + "Entry"
    )
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
        one = entry.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
        if kind in _SCALARS:
            one.type = _SCALARS[kind]
        else:
            one.type_name = kind
    field.label, field.type, field.type_name = _F.LABEL_REPEATED, _F.TYPE_MESSAGE, entry.name


def message_type(schema: Schema, name: str) -> Descriptor:
    """Return the message type of this full name in the file of a schema; the first of the file for ""."""
    pool, file = pool_of(schema)
    if not name:
        for index in file.message_types_by_name.values():
            return index
        raise ConfigError(f"{SCHEMA}: the Protobuf schema has no message")
    with suppress(KeyError):
        found = pool.FindMessageTypeByName(name)
        if found.file.name == file.name:  # a record cannot name a message of an imported file
            return found
    known = ", ".join(one.full_name for one in file.message_types_by_name.values())
    raise ConfigError(
        f"{RECORD}: the Protobuf schema has no message {name}; its messages are {known}"
    )


def at_indexes(file: Any, indexes: Sequence[int]) -> Descriptor:
    """Return the message type at a place in a file. Raises Undecodable."""
    types = [*file.message_types_by_name.values()]
    found = None
    for index in indexes:
        if not 0 <= index < len(types):
            raise Undecodable(f"its schema has no message type at {list(indexes)}")
        found = types[index]
        types = [*found.nested_types]
    assert found is not None, "indexes are never empty"
    return found


def indexes_of(kind: Descriptor) -> tuple[int, ...]:
    """Return the place of a message type in its file."""
    if kind.containing_type is None:
        return ([*kind.file.message_types_by_name.values()].index(kind),)
    place = [*kind.containing_type.nested_types].index(kind)
    return (*indexes_of(kind.containing_type), place)


def arrow_type(kind: Descriptor, outer: tuple[str, ...] = ()) -> pa.DataType:
    """Return the columns of a message type. Raises ConfigError if it contains itself."""
    if kind.full_name in _TIMES:
        return _TIMES[kind.full_name]
    if kind.full_name in outer:
        raise ConfigError(
            f"{SCHEMA}: the message {kind.full_name} contains itself, which no column can; name a schema without it"
        )
    within = (*outer, kind.full_name)
    return pa.struct([pa.field(one.name, _of_field(one, within)) for one in kind.fields])


def _of_field(field: FieldDescriptor, outer: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = _entry(field)
        return pa.map_(_of_one(key, outer), _of_one(value, outer))
    found = _of_one(field, outer)
    return pa.list_(found) if field.is_repeated else found


def _of_one(field: FieldDescriptor, outer: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        return arrow_type(field.message_type, outer)
    if field.cpp_type == _F.CPPTYPE_STRING:
        return pa.binary() if field.type == _F.TYPE_BYTES else pa.string()
    return _TYPES[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return bool(kind is not None and kind.has_options and kind.GetOptions().map_entry)


def _entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    names = field.message_type.fields_by_name
    return names["key"], names["value"]


def reader(schema: Schema, columns: Descriptor) -> Read:
    """Return a function that decodes a record written with `schema` to the columns of a message type.

    The function raises Undecodable.
    """
    _, file = pool_of(schema)
    make = message_factory.GetMessageClass(columns)
    convert = _converter(columns)
    checked: set[tuple[int, ...]] = set()

    def read(data: bytes) -> Any:
        indexes, position = message_indexes(data)
        if indexes not in checked:
            _check(at_indexes(file, indexes), columns)
            checked.add(indexes)
        try:
            return convert(make.FromString(data[position:]))
        except (DecodeError, UnicodeDecodeError):
            raise Undecodable(f"its bytes are no message {columns.full_name}") from None

    return read


def _check(written: Descriptor, columns: Descriptor) -> None:
    """Raise Undecodable if the columns cannot hold every message of the type with which a record was written."""
    if written.full_name != columns.full_name:
        raise Undecodable(
            f"it is a message {written.full_name}, and the columns are those of {columns.full_name}"
        )
    if text := _narrowed(written, columns, set()):
        raise Undecodable(f"its schema cannot be read as the columns: {text}")


def _narrowed(written: Descriptor, columns: Descriptor, seen: set[str]) -> str:
    """Return the first field whose type in `columns` cannot hold the values of `written`; "" if there is none."""
    if written.full_name in seen:
        return ""
    seen.add(written.full_name)
    for number, field in columns.fields_by_number.items():
        before = written.fields_by_number.get(number)
        if before is None:
            continue
        name = f"{columns.full_name}.{field.name}"
        if before.is_repeated and not field.is_repeated:
            return f"{name} was a list"
        if before.type != field.type and field.type not in _WIDER.get(before.type, ()):
            return f"{name} was of another type"
        if before.message_type is not None and (
            text := _narrowed(before.message_type, field.message_type, seen)
        ):
            return text
    return ""


def _converter(kind: Descriptor) -> Callable[[Any], Any]:
    """Return the function that turns a message into a dict, or into a number of microseconds."""
    if kind.full_name in _TIMES:
        return lambda value: value.seconds * 1_000_000 + value.nanos // 1_000
    getters = [(one.name, _getter(one)) for one in kind.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {name: get(message) for name, get in getters}

    return convert


def _getter(field: FieldDescriptor) -> Callable[[Any], Any]:
    name = field.name
    if _is_map(field):
        return _map_getter(name, *map(_item, _entry(field)))
    change = _item(field)
    if field.is_repeated:
        if change is None:
            return lambda message: list(getattr(message, name))
        return lambda message: [change(one) for one in getattr(message, name)]
    if not field.has_presence:
        if change is None:
            return lambda message: getattr(message, name)
        return lambda message: change(getattr(message, name))
    if change is None:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: change(getattr(message, name)) if message.HasField(name) else None


def _map_getter(name: str, key: Any, value: Any) -> Callable[[Any], Any]:
    def same(one: Any) -> Any:
        return one

    of_key, of_value = key or same, value or same
    return lambda message: [
        (of_key(one), of_value(other)) for one, other in getattr(message, name).items()
    ]


def _item(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    """Return the function that converts a value of a field; None if pyarrow takes the value as it is."""
    if field.message_type is not None:
        return _converter(field.message_type)
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    return None


def writer(kind: Descriptor) -> Callable[[Any], bytes]:
    """Return a function that encodes a dict as a message. It raises ValueError and TypeError."""
    make = message_factory.GetMessageClass(kind)
    prepare = _preparer(kind)
    return lambda value: make(**prepare(value)).SerializeToString()


def _preparer(kind: Descriptor) -> Callable[[Any], Any]:
    """Return the function that turns a value from Arrow into arguments of a message, without null fields."""
    if kind.full_name in _TIMES:
        is_point = kind.full_name == _TIMESTAMP
        return well_known.timestamp_fields if is_point else well_known.duration_fields
    fields = {one.name: _argument(one) for one in kind.fields}
    choices = [{one.name for one in group.fields} for group in kind.oneofs]

    def prepare(value: Mapping[str, Any]) -> dict[str, Any]:
        found = {
            name: fields[name](one)
            for name, one in value.items()
            if one is not None and name in fields
        }
        for names in choices:
            if len(given := sorted(names & found.keys())) > 1:
                raise ValueError(f"{' and '.join(given)} are set, and a message holds one of them")
        return found

    return prepare


def _argument(field: FieldDescriptor) -> Callable[[Any], Any]:
    if _is_map(field):
        of_key, of_value = map(_one_argument, _entry(field))
        return lambda items: {of_key(key): of_value(one) for key, one in items}
    change = _one_argument(field)
    return (lambda items: [change(one) for one in items]) if field.is_repeated else change


def _one_argument(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return _preparer(field.message_type)
    if field.enum_type is not None:  # a number that has no name is decoded to its digits
        return lambda value: int(value) if value.lstrip("-").isdecimal() else value
    is_whole = field.cpp_type == _F.CPPTYPE_UINT64  # a decimal column
    return int if is_whole else lambda value: value
