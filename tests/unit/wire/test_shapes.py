"""Checks of messages against their schema before they are decoded."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from minikafka.base.errors import ProtocolViolation
from minikafka.wire.schemas import request_schema, response_schema
from minikafka.wire.shapes import checked, shape_of
from minikafka.wire.versions import API_VERSIONS, CREATE_TOPICS, FETCH, METADATA

MetadataV8 = request_schema(METADATA, 8)
MetadataV12 = request_schema(METADATA, 12)
CreateTopicsRequest = request_schema(CREATE_TOPICS, 4)
FetchRequest = request_schema(FETCH, 12)
ApiVersionsResponse = response_schema(API_VERSIONS, 3)


def walk(entity_type: Any, data: bytes, elements_max: int = 1000) -> tuple[bytes, int]:
    return checked(shape_of(entity_type), data, 0, elements_max)


@pytest.mark.parametrize("count", [1, 2, 2**31 - 1])
def test_array_is_refused_when_its_length_exceeds_the_message(count: int) -> None:
    with pytest.raises(ProtocolViolation):
        walk(MetadataV8, struct.pack(">i", count) + b"\0\0\0", 2**40)


def test_compact_array_is_refused_when_its_length_exceeds_the_message() -> None:
    with pytest.raises(ProtocolViolation):
        walk(MetadataV12, b"\xff\xff\xff\xff\x0f\0\0\0", 2**40)


def test_array_of_numbers_is_refused_when_its_length_exceeds_the_message() -> None:
    topic = b"\0\x01t" + struct.pack(">ihiii", 1, 1, 1, 0, 2**31 - 1)
    with pytest.raises(ProtocolViolation, match="2147483647"):
        walk(CreateTopicsRequest, struct.pack(">i", 1) + topic, 2**40)


def test_message_is_refused_when_it_has_too_many_elements() -> None:
    body = struct.pack(">i", 100) + b"\0\0" * 100 + b"\0\0\0"
    assert walk(MetadataV8, body, 100) == (body, 0)
    with pytest.raises(ProtocolViolation, match="too many"):
        walk(MetadataV8, body, 99)


@pytest.mark.parametrize("size", [-2, 5, 2**15 - 1])
def test_string_is_refused_when_its_length_exceeds_the_message(size: int) -> None:
    with pytest.raises(ProtocolViolation):
        walk(MetadataV8, struct.pack(">ih", 1, size) + b"\0\0\0")


def test_a_compact_string_longer_than_kafka_allows_is_refused() -> None:
    body = b"\x02" + bytes(16) + b"\x82\x80\x02" + b"a" * (2**15 + 1) + b"\0\0\0\0"
    with pytest.raises(ProtocolViolation, match="string"):
        walk(MetadataV12, body)


def test_array_that_may_not_be_null_is_refused_when_it_is_null() -> None:
    with pytest.raises(ProtocolViolation):
        walk(CreateTopicsRequest, struct.pack(">iib", -1, 0, 0))
    walk(MetadataV8, struct.pack(">i", -1) + b"\0\0\0")


def test_unknown_tagged_fields_are_removed_from_the_message() -> None:
    body = (
        b"\x02" + bytes(16) + b"\x02t" + b"\x01\x09\x02ab" + b"\x00\x00" + b"\x02\x05\x00\x63\x01x"
    )
    data, pos = walk(MetadataV12, body)
    assert data[pos:] == b"\x02" + bytes(16) + b"\x02t" + b"\x00" + b"\x00\x00" + b"\x00"


def test_known_tagged_fields_are_kept_when_unknown_tagged_fields_are_removed() -> None:
    head = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + b"\x01\x01\x01"
    data, pos = walk(FetchRequest, head + b"\x02" + b"\x00\x02\x02c" + b"\x09\x01z")
    assert data[pos:] == head + b"\x01" + b"\x00\x02\x02c"


def test_tagged_field_is_refused_when_its_size_is_wrong() -> None:
    epoch = b"\x01\x09" + struct.pack(">q", 1) + b"\0"
    with pytest.raises(ProtocolViolation, match="tagged"):
        walk(ApiVersionsResponse, b"\0\0\x01\0\0\0\0" + b"\x01" + epoch)


def test_section_with_too_many_tagged_fields_is_refused() -> None:
    with pytest.raises(ProtocolViolation):
        walk(MetadataV12, b"\x00\x00\x00\xff\xff\xff\xff\x07")
