"""Schemas of requests and responses: kio's entity types, with the changes that a broker needs.

A time is an integer of milliseconds, as on the wire. (kio has `timedelta` and `datetime`, which cannot hold every
int64.) Old versions that Apache Kafka 3.9 serves and that kio lacks are derived from a later version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from datetime import datetime, timedelta
from functools import cache
from types import GenericAlias
from typing import Any, Final, NamedTuple, TypeAlias

from kio.index import load_request_schema, load_response_schema

from minikafka.wire.shapes import array_element, without_none
from minikafka.wire.versions import (
    ALTER_REPLICA_LOG_DIRS,
    CREATE_ACLS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    WRITE_TXN_MARKERS,
    is_flexible,
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
