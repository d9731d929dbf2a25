"""Encoding of messages from plain values, compared with the library kio."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest
from support.cases import for_each
from support.kafka import kio_oracle
from support.kafka.kio_oracle import request_schema, response_schema
from support.kafka.random_messages import MESSAGES, message, values_of

from minikafka.kafka.messages import table
from minikafka.kafka.messages.encoder import PAUSE, encode, encode_in_steps
from minikafka.kafka.wire.versions import FIND_COORDINATOR, LIST_GROUPS, LIST_OFFSETS, OFFSET_DELETE


def finished(steps: Generator[int, None, bytes]) -> tuple[bytes, list[int]]:
    """Run the generator to its end; return the result, and everything that the generator yielded."""
    yielded = []
    while True:
        try:
            yielded.append(next(steps))
        except StopIteration as done:
            return done.value, yielded


@for_each(MESSAGES)
def test_random_values_are_encoded_as_by_kio(api: int, version: int, is_request: bool) -> None:
    schema = (request_schema if is_request else response_schema)(api, version)
    found = message(api, is_request)
    rng = random.Random(f"{api} {version} {is_request}")
    for _ in range(5):
        values = values_of(found.structure, version, rng)
        expected = kio_oracle.encode(schema, values)
        assert encode(found, version, values) == expected
        encoded, sizes = finished(encode_in_steps(found, version, values))
        assert encoded == expected
        assert sizes == sorted(sizes)
        assert all(size <= len(expected) for size in sizes)


@for_each(MESSAGES)
def test_missing_values_have_kafkas_defaults(api: int, version: int, is_request: bool) -> None:
    schema = (request_schema if is_request else response_schema)(api, version)
    values = {}
    if any(
        field.name == "configuration_keys" for field in message(api, is_request).structure.fields
    ):
        values = {"configuration_keys": ()}
    assert encode(message(api, is_request), version, values) == kio_oracle.encode(schema, values)


def test_field_of_another_version_is_ignored() -> None:
    topics = [{"name": "t", "partitions": [{"leader_epoch": 3}]}]
    without = [{"name": "t", "partitions": [{}]}]
    response = table.response(LIST_OFFSETS)
    assert encode(response, 1, {"topics": topics}) == encode(response, 1, {"topics": without})


def test_field_that_no_version_has_is_refused() -> None:
    with pytest.raises(TypeError, match="no_such_field"):
        encode(table.response(LIST_GROUPS), 4, {"no_such_field": 1})
    groups = [{"group_id": "g", "no_such_field": 1}]
    with pytest.raises(TypeError, match="no_such_field"):
        encode(table.response(LIST_GROUPS), 4, {"groups": groups})


def test_each_step_takes_64_rows_from_the_row_generator() -> None:
    made = 0

    def rows() -> Generator[dict[str, Any], None, None]:
        nonlocal made
        for number in range(640):
            made += 1
            yield {"partition_index": number}

    topics = [{"name": "t", "partitions": rows()}]
    counts = [made for _ in encode_in_steps(table.response(OFFSET_DELETE), 0, {"topics": topics})]
    assert counts == [*range(64, 641, 64), 640]


def test_row_generator_ends_a_step_with_a_pause() -> None:
    def rows() -> Generator[dict[str, Any] | None, None, None]:
        for number in range(3):
            yield {"partition_index": number}
            yield PAUSE

    topics = [{"name": "t", "partitions": rows()}]
    encoded, sizes = finished(encode_in_steps(table.response(OFFSET_DELETE), 0, {"topics": topics}))
    assert len(sizes) == 4
    plain = [{"partition_index": number} for number in range(3)]
    values = {"topics": [{"name": "t", "partitions": plain}]}
    assert encoded == encode(table.response(OFFSET_DELETE), 0, values)


def test_step_is_limited_in_bytes_when_names_are_long() -> None:
    groups = ({"key": "x" * 4_000} for _ in range(64))
    _, sizes = finished(
        encode_in_steps(table.response(FIND_COORDINATOR), 4, {"coordinators": groups})
    )
    assert len(sizes) == 22


@pytest.mark.parametrize("count", [0, 126, 127, 128, 20_000])
def test_number_of_rows_is_encoded_after_the_rows_were_made(count: int) -> None:
    rows = [{"key": str(number)} for number in range(count)]
    schema = response_schema(FIND_COORDINATOR, 4)
    expected = kio_oracle.encode(schema, {"coordinators": rows})
    assert encode(table.response(FIND_COORDINATOR), 4, {"coordinators": iter(rows)}) == expected
