"""The table of messages, compared with the schemas of the library kio."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from support.cases import for_each
from support.kafka.kio_oracle import (
    array_element,
    default_of,
    plain,
    request_schema,
    response_schema,
    without_none,
)
from support.kafka.random_messages import MESSAGES, message

from minikafka.kafka.messages import table
from minikafka.kafka.messages.own import OWN_REQUESTS, OWN_RESPONSES
from minikafka.kafka.messages.records import RECORDS
from minikafka.kafka.messages.requests import REQUESTS
from minikafka.kafka.messages.responses import RESPONSES
from minikafka.kafka.messages.table import NULL_UUID, Structure
from minikafka.kafka.wire.codec import is_flexible
from minikafka.kafka.wire.versions import JOIN_GROUP, OFFSET_COMMIT, OWN, SERVED

KIO_TYPES = {"error_code": "int16"}
ALL_KEYS = "configuration_keys"
"""A field of DescribeConfigs for which both null, the default here, and kio's default () mean all keys."""


def test_table_has_every_served_api_and_version() -> None:
    assert list(REQUESTS) == list(RESPONSES) == [api for api in SERVED if api not in OWN]
    assert set(OWN_REQUESTS) == set(OWN_RESPONSES) == OWN
    for api, (low, high) in SERVED.items():
        for found in (table.request(api), table.response(api)):
            assert found.versions.low <= low
            assert found.versions.high >= high
            assert all((v in found.flexible) == is_flexible(api, v) for v in range(low, high + 1))
    assert all(table.record(name).structure.name == name for name in RECORDS)


@for_each(MESSAGES)
def test_fields_of_every_message_equal_those_of_kio(
    api: int, version: int, is_request: bool
) -> None:
    schema = (request_schema if is_request else response_schema)(api, version)
    structure = message(api, is_request).structure
    assert list(rows(structure, version)) == list(kio_rows(structure, version, schema))


def rows(structure: Structure, version: int) -> Iterator[tuple[Any, ...]]:
    for field in structure.fields:
        if version not in field.versions:
            continue
        nullable = version in field.nullable or field.type == "uuid"
        tag = field.tag if version in field.tagged else None
        name = field.name.removesuffix("_ms")
        if field.structure is None:
            default = field.default_in(version)
            zero = not default or default == NULL_UUID
            yield name, field.type, field.is_array, nullable, tag, None if zero else default
        else:
            yield name, "structure", field.is_array, nullable, tag
            yield from rows(field.structure, version)


def kio_rows(structure: Structure, version: int, schema: Any) -> Iterator[tuple[Any, ...]]:
    present = [field for field in structure.fields if version in field.versions]
    for field, item in zip(present, fields(schema), strict=True):
        inner, nullable = without_none(item.type)
        element = array_element(inner)
        tag = item.metadata.get("tag")
        name = item.name.removesuffix("_ms")
        if field.structure is None:
            kind = item.metadata["kafka_type"]
            nullable = nullable or kind == "uuid"
            default = None if kind == "uuid" or name == ALL_KEYS else default_of(item) or None
            yield name, KIO_TYPES.get(kind, kind), element is not None, nullable, tag, default
        else:
            yield name, "structure", element is not None, nullable, tag
            yield from kio_rows(field.structure, version, element or inner)


def test_field_that_a_version_lacks_has_kafkas_default() -> None:
    join = table.request(JOIN_GROUP).structure.defaults(0)
    assert (join.rebalance_timeout_ms, join.group_instance_id, join.reason) == (-1, None, None)
    commit = table.request(OFFSET_COMMIT).structure.defaults(0)
    assert (commit.generation_id_or_member_epoch, commit.retention_time_ms) == (-1, -1)
    assert commit.member_id == ""


@for_each(MESSAGES)
def test_default_of_every_structure_equals_that_of_kio(
    api: int, version: int, is_request: bool
) -> None:
    schema = (request_schema if is_request else response_schema)(api, version)
    structure = message(api, is_request).structure
    present = [field for field in structure.fields if version in field.versions]
    for field, item in zip(present, fields(schema), strict=True):
        if field.structure is not None and not field.is_array:
            expected = plain(field.structure, version, default_of(item))
            assert plain(field.structure, version, field.default_in(version)) == expected
