"""The library kio, with which tests compare the codec of messages: its schemas, and its encoder and decoder.

Two changes are made to kio's schemas. A time is an integer of milliseconds, as on the wire: kio has `timedelta` and
`datetime`, which cannot hold every int64. Old versions that Apache Kafka 3.9 serves and that kio lacks are derived
from a later version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from datetime import datetime, timedelta
from functools import cache
from io import BytesIO
from types import GenericAlias, NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeAlias, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import uuid_zero

from minikafka.kafka.messages.table import NULL_UUID, Structure
from minikafka.kafka.messages.table import Field as MessageField
from minikafka.kafka.wire.codec import is_flexible
from minikafka.kafka.wire.versions import (
    ALTER_REPLICA_LOG_DIRS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_LOG_DIRS,
    EXPIRE_DELEGATION_TOKEN,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    RENEW_DELEGATION_TOKEN,
    WRITE_TXN_MARKERS,
)

Column: TypeAlias = tuple[str, Any, Any]
"""Name, type and dataclass field of one field of an entity type."""

_INTEGERS: Final = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
_MILLISECOND: Final = timedelta(milliseconds=1)


class _Older(NamedTuple):
    """An old version as the difference from a later version, in any structure of the message.

    `dropped`: fields that only the later version has. `replaced`: the fields that take the place of a field.
    """

    base: int
    dropped: frozenset[str] = frozenset()
    replaced: Mapping[str, tuple[Column, ...]] = {}


def _column(name: str, kafka_type: str, field_type: Any = int, default: Any = MISSING) -> Column:
    return name, field_type, field(default=default, metadata={"kafka_type": kafka_type})


_THROTTLED: Final = frozenset({"throttle_time"})
_EPOCHS: Final = frozenset({"current_leader_epoch"})
_REQUESTS: Final[Mapping[tuple[int, int], _Older]] = {
    (LIST_OFFSETS, 0): _Older(
        1,
        replaced={
            "timestamp": (
                _column("timestamp", "int64"),
                _column("max_num_offsets", "int32", default=1),
            )
        },
    ),
    (OFFSET_COMMIT, 0): _Older(
        6, frozenset({"generation_id_or_member_epoch", "member_id", "committed_leader_epoch"})
    ),
    (OFFSET_COMMIT, 1): _Older(
        6,
        replaced={"committed_leader_epoch": (_column("commit_timestamp", "int64", default=-1),)},
    ),
    (OFFSET_FETCH, 0): _Older(1),
    (CREATE_TOPICS, 0): _Older(2, frozenset({"validate_only"})),
    (CREATE_TOPICS, 1): _Older(2),
    (DELETE_TOPICS, 0): _Older(1),
    (OFFSET_FOR_LEADER_EPOCH, 0): _Older(2, _EPOCHS),
    (OFFSET_FOR_LEADER_EPOCH, 1): _Older(2, _EPOCHS),
    (DESCRIBE_ACLS, 0): _Older(1, frozenset({"pattern_type_filter"})),
    (CREATE_ACLS, 0): _Older(1, frozenset({"resource_pattern_type"})),
    (DELETE_ACLS, 0): _Older(1, frozenset({"pattern_type_filter"})),
    (DESCRIBE_CONFIGS, 0): _Older(1, frozenset({"include_synonyms"})),
    (ALTER_REPLICA_LOG_DIRS, 0): _Older(1),
    (DESCRIBE_LOG_DIRS, 0): _Older(1),
    (WRITE_TXN_MARKERS, 0): _Older(1),
    (CREATE_DELEGATION_TOKEN, 0): _Older(1),
    (RENEW_DELEGATION_TOKEN, 0): _Older(1),
    (EXPIRE_DELEGATION_TOKEN, 0): _Older(1),
    (DESCRIBE_DELEGATION_TOKEN, 0): _Older(1),
}
_RESPONSES: Final[Mapping[tuple[int, int], _Older]] = {
    (LIST_OFFSETS, 0): _Older(
        1,
        frozenset({"timestamp"}),
        {"offset": (_column("old_style_offsets", "int64", tuple[int, ...]),)},
    ),
    (OFFSET_COMMIT, 0): _Older(2),
    (OFFSET_COMMIT, 1): _Older(2),
    (OFFSET_FETCH, 0): _Older(1),
    (CREATE_TOPICS, 0): _Older(2, _THROTTLED | {"error_message"}),
    (CREATE_TOPICS, 1): _Older(2, _THROTTLED),
    (DELETE_TOPICS, 0): _Older(1, _THROTTLED),
    (OFFSET_FOR_LEADER_EPOCH, 0): _Older(2, _THROTTLED | {"leader_epoch"}),
    (OFFSET_FOR_LEADER_EPOCH, 1): _Older(2, _THROTTLED),
    (DESCRIBE_ACLS, 0): _Older(1, frozenset({"pattern_type"})),
    (CREATE_ACLS, 0): _Older(1),
    (DELETE_ACLS, 0): _Older(1, frozenset({"pattern_type"})),
    (DESCRIBE_CONFIGS, 0): _Older(
        1, frozenset({"synonyms"}), {"config_source": (_column("is_default", "bool", bool),)}
    ),
    (ALTER_REPLICA_LOG_DIRS, 0): _Older(1),
    (DESCRIBE_LOG_DIRS, 0): _Older(1),
    (WRITE_TXN_MARKERS, 0): _Older(1),
    (CREATE_DELEGATION_TOKEN, 0): _Older(1),
    (RENEW_DELEGATION_TOKEN, 0): _Older(1),
    (EXPIRE_DELEGATION_TOKEN, 0): _Older(1),
    (DESCRIBE_DELEGATION_TOKEN, 0): _Older(1),
}


@cache
def request_schema(api: int, version: int) -> Any:
    """Return the entity type of a request."""
    return _schema(load_request_schema, _REQUESTS, api, version)


@cache
def response_schema(api: int, version: int) -> Any:
    """Return the entity type of a response."""
    return _schema(load_response_schema, _RESPONSES, api, version)


def _schema(
    load: Callable[[int, int], Any],
    older: Mapping[tuple[int, int], _Older],
    api: int,
    version: int,
) -> Any:
    change = older.get((api, version), _Older(version))
    return _changed(load(api, change.base), version, change)


def _changed(entity_type: Any, version: int, change: _Older) -> Any:
    """Return the type with the changes, or the type itself if they concern none of its fields."""
    before = [(item.name, item.type, item) for item in fields(entity_type)]
    after = [new for column in before for new in _changed_column(column, version, change)]
    if version == change.base and before == after:
        return entity_type
    constants = {
        name: value
        for name, value in vars(entity_type).items()
        if name in ("__type__", "__api_key__", "__header_schema__")
    }
    constants["__flexible__"] = is_flexible(entity_type.__api_key__, version)
    return make_dataclass(
        entity_type.__name__,
        [(name, kind, _copied(item)) for name, kind, item in after],
        namespace={**constants, "__version__": version},
        frozen=True,
        slots=True,
        kw_only=True,
    )


def _changed_column(column: Column, version: int, change: _Older) -> Iterator[Column]:
    name, field_type, item = column
    if name in change.replaced:
        yield from change.replaced[name]
        return
    if name in change.dropped:
        return
    if item.metadata.get("kafka_type") in _INTEGERS:
        yield _integer(column)
        return
    inner, is_nullable = without_none(field_type)
    element = array_element(inner)
    nested = inner if element is None else element
    changed = _changed(nested, version, change) if is_dataclass(nested) else nested
    if changed is nested:
        yield column
        return
    field_type = changed if element is None else GenericAlias(tuple, (changed, ...))
    yield name, field_type | None if is_nullable else field_type, item


def _integer(column: Column) -> Column:
    """Return the field of a time as an integer of milliseconds."""
    name, _, item = column
    metadata = {**item.metadata, "kafka_type": _INTEGERS[item.metadata["kafka_type"]]}
    default = item.default
    if isinstance(default, timedelta):
        default //= _MILLISECOND
    elif default is None or isinstance(default, datetime):
        default = -1
    return name, int, field(default=default, metadata=metadata)


def _copied(item: Field[Any]) -> Any:
    """Return a field that a new dataclass may own."""
    return field(default=item.default, metadata=item.metadata)


def array_element(field_type: Any) -> Any | None:
    """Return the element type of an array type, None for another type."""
    inner = without_none(field_type)[0]
    return get_args(inner)[0] if get_origin(inner) is tuple else None


def without_none(field_type: Any) -> tuple[Any, bool]:
    """Return the type without `None`, and True if the type allows `None`."""
    if get_origin(field_type) is not UnionType:
        return field_type, False
    args = [arg for arg in get_args(field_type) if arg is not NoneType]
    return args[0], True


def default_of(item: Field[Any]) -> Any:
    """Return the value of a missing field: kio's default, else null if the field may be null, else zero."""
    if item.default is not MISSING:
        return item.default
    inner, nullable = without_none(item.type)
    if nullable:
        return None
    if array_element(inner) is not None:
        return ()
    kafka_type = item.metadata["kafka_type"]
    if kafka_type == "error_code":
        return ErrorCode(0)
    return {"string": "", "bytes": b"", "bool": False}.get(kafka_type, 0)


def encode(schema: Any, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of kio's encoder for these plain values, which have Kafka's names."""
    entity = _entity(schema, values)
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(schema: Any, structure: Structure, version: int, data: bytes) -> Any:
    """Return what kio's decoder reads, as plain values with Kafka's names."""
    return plain(structure, version, entity_reader(schema)(data, 0)[0])


def plain(structure: Structure, version: int, entity: Any) -> dict[str, Any]:
    """Return the fields that the version has as plain values, from an entity of kio or of the codec."""
    is_kio = is_dataclass(entity)
    found = {}
    for item in structure.fields:
        if version in item.versions:
            name = _name(type(entity), item.name) if is_kio else item.name
            found[item.name] = _plain(item, version, getattr(entity, name))
    return found


def _plain(item: MessageField, version: int, value: Any) -> Any:
    if value is None:
        return NULL_UUID if item.type == "uuid" else None
    if type(value) is tuple:
        return [_plain(item, version, element) for element in value]
    if item.structure is not None:
        return plain(item.structure, version, value)
    return value.bytes if isinstance(value, type(uuid_zero)) else value


def _name(schema: Any, name: str) -> str:
    """Return kio's name of a field: times have no `_ms` at the end."""
    names = {item.name for item in fields(schema)}
    return name if name in names else name.removesuffix("_ms")


def _entity(schema: Any, values: Mapping[str, Any]) -> Any:
    given = {_name(schema, name): value for name, value in values.items()}
    assert given.keys() <= {item.name for item in fields(schema)}
    return schema(
        **{
            item.name: _converted(item, given[item.name])
            if item.name in given
            else default_of(item)
            for item in fields(schema)
        }
    )


def _converted(item: Field[Any], value: Any) -> Any:
    inner = without_none(item.type)[0]
    element = array_element(inner)
    kafka_type = item.metadata.get("kafka_type")
    if value is None:
        return None
    if element is not None:
        is_entity = is_dataclass(element)
        return tuple(_entity(element, one) if is_entity else one for one in value)
    if is_dataclass(inner):
        return _entity(inner, value)
    if kafka_type == "uuid":
        return None if value == NULL_UUID else type(uuid_zero)(bytes=value)
    return ErrorCode(value) if kafka_type == "error_code" else value
