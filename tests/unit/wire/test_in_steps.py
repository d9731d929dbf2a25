"""Decoding and encoding in steps, compared with decoding and encoding at once."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from minikafka.base.errors import ProtocolViolation
from minikafka.record.varints import uvarint
from minikafka.wire import codec, in_steps, versions
from minikafka.wire.shapes import array_element, without_none

HAS_TAGGED_FIELDS = {versions.API_VERSIONS: 3, versions.CREATE_TOPICS: 5}
"""APIs whose responses have tagged fields, since this version: these are not encoded in steps."""
COLD = [
    (api, version)
    for api, (low, high) in versions.SERVED.items()
    if api not in (versions.PRODUCE, versions.FETCH)
    for version in range(low, high + 1)
]
NUMBERS = {"int8": 127, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}
CLIENT = "tester"
BODY = 4 + 2 + 2 + 4 + 2 + len(CLIENT)


def finished(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Run the generator to its end; return the result, and how often the generator yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


def plain_values(entity_type: Any, rng: random.Random) -> dict[str, Any]:
    """Return a random value of a built-in type for each field of the kio class `entity_type`."""
    return {field.name: plain_value(field, rng) for field in fields(entity_type)}


def plain_value(field: Any, rng: random.Random) -> Any:
    inner, is_nullable = without_none(field.type)
    if is_nullable and rng.random() < 0.2:
        return None
    element = array_element(inner)
    if element is None:
        return primitive(field.metadata["kafka_type"], rng)
    count = rng.choice((0, 1, 3, 130))
    if is_dataclass(element):
        return [plain_values(element, rng) for _ in range(min(count, 3))]
    return [primitive(field.metadata["kafka_type"], rng) for _ in range(count)]


def primitive(kafka_type: str, rng: random.Random) -> Any:
    if kafka_type == "string":
        return rng.choice(("", "a", "é" * 100))
    if kafka_type in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 300)))
    if kafka_type == "bool":
        return rng.random() < 0.5
    if kafka_type == "error_code":
        return rng.choice((-1, 0, 3, 79))
    if kafka_type == "uuid":
        return rng.choice((None, b"0123456789abcdef"))
    if kafka_type == "float64":
        return rng.choice((0.0, -1.5, 1e300))
    return rng.randint(-1, NUMBERS[kafka_type])


def request_body(api: int, version: int, rng: random.Random) -> memoryview:
    values = plain_values(codec.request_schema(api, version), rng)
    request = codec.request(api, version, **values)
    return memoryview(codec.encode_request(api, version, 7, CLIENT, request))[BODY:]


@pytest.mark.parametrize(("api", "version"), COLD)
def test_request_decoded_in_steps_equals_the_request_decoded_at_once(
    api: int, version: int
) -> None:
    rng = random.Random(f"{api} {version}")
    for _ in range(5):
        body = request_body(api, version, rng)
        steps = in_steps.decode_request_in_steps(api, version, body)
        assert finished(steps)[0] == codec.decode_request(api, version, body)


@pytest.mark.parametrize(("api", "version"), COLD)
def test_damaged_request_has_the_same_outcome_decoded_in_steps_as_decoded_at_once(
    api: int, version: int
) -> None:
    rng = random.Random(f"{api} {version}")
    for _ in range(20):
        body = bytearray(request_body(api, version, rng))
        for _ in range(rng.randrange(3)):
            if body:
                body[rng.randrange(len(body))] = rng.choice((0, 1, 127, 128, 255))
        body = body[: rng.choice((len(body), rng.randrange(len(body) + 1)))]
        assert outcome(in_steps.decode_request_in_steps, api, version, body) == outcome(
            codec.decode_request, api, version, body
        )


def outcome(decode: Any, api: int, version: int, body: bytes) -> Any:
    try:
        found = decode(api, version, memoryview(body))
        return finished(found)[0] if isinstance(found, Generator) else found
    except ProtocolViolation:
        return "refused"


def test_unknown_tagged_fields_of_topics_are_skipped_by_the_stepwise_decoder() -> None:
    name = uvarint(2) + b"a"
    tag = b"\x01\x07\x02xy"  # one field, number 7, of two bytes
    body = memoryview(b"\x00" + uvarint(3) + name + tag + name + b"\x00" + b"\x01\x01\x01" + tag)
    decoded, _ = finished(in_steps.decode_request_in_steps(versions.METADATA, 9, body))
    assert [topic.name for topic in decoded.topics] == ["a", "a"]


@pytest.mark.parametrize(("api", "version"), COLD)
def test_response_encoded_in_steps_equals_the_response_encoded_at_once(
    api: int, version: int
) -> None:
    if version >= HAS_TAGGED_FIELDS.get(api, 99):
        return
    rng = random.Random(f"{api} {version}")
    for _ in range(5):
        values = plain_values(codec.response_schema(api, version), rng)
        at_once = codec.encode_body(codec.response(api, version, **values))
        assert finished(in_steps.response_in_steps(api, version, **values))[0] == at_once
    nothing = codec.encode_body(codec.response(api, version))
    assert finished(in_steps.response_in_steps(api, version))[0] == nothing


def test_stepwise_response_encoder_refuses_a_field_that_no_version_has() -> None:
    with pytest.raises(TypeError, match="no_such_field"):
        finished(in_steps.response_in_steps(versions.LIST_GROUPS, 4, no_such_field=1))
    groups = [{"group_id": "g", "no_such_field": 1}]
    with pytest.raises(TypeError, match="no_such_field"):
        finished(in_steps.response_in_steps(versions.LIST_GROUPS, 4, groups=groups))


def test_step_decodes_at_most_64_elements() -> None:
    topics = [{"name": f"topic-{number}"} for number in range(6_400)]
    frame = codec.encode_request(
        versions.METADATA, 9, 7, CLIENT, codec.request(versions.METADATA, 9, topics=topics)
    )
    steps = in_steps.decode_request_in_steps(versions.METADATA, 9, memoryview(frame)[BODY:])
    assert finished(steps)[1] == 100


def test_step_decodes_at_most_8_elements_that_contain_arrays() -> None:
    api, version = versions.LIST_OFFSETS, 6
    partitions = [{"partition_index": n, "timestamp": -1} for n in range(10)]
    topics = [{"name": "t", "partitions": partitions}] * 80
    body = codec.request(api, version, replica_id=-1, isolation_level=0, topics=topics)
    frame = memoryview(codec.encode_request(api, version, 1, CLIENT, body))[BODY:]
    steps = in_steps.decode_request_in_steps(api, version, frame)
    assert finished(steps) == (body, 80 / 8)


def test_decoder_yields_100_times_for_an_array_of_6400_strings_in_one_element() -> None:
    names = [f"key-{number}" for number in range(6_400)]
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": names}
    body = codec.request(versions.DESCRIBE_CONFIGS, 4, resources=[resource])
    frame = codec.encode_request(versions.DESCRIBE_CONFIGS, 4, 7, CLIENT, body)
    steps = in_steps.decode_request_in_steps(versions.DESCRIBE_CONFIGS, 4, memoryview(frame)[BODY:])
    assert finished(steps)[1] == 100


def test_each_step_of_a_response_takes_64_rows_from_the_row_generator() -> None:
    made = 0

    def rows() -> Generator[dict[str, Any], None, None]:
        nonlocal made
        for number in range(640):
            made += 1
            yield {"partition_index": number}

    topics = [{"name": "t", "partitions": rows()}]
    steps = in_steps.response_in_steps(versions.OFFSET_DELETE, 0, topics=topics)
    counts = [made for _ in steps]
    assert counts == [*range(64, 641, 64), 640]


def test_step_of_a_response_is_limited_in_bytes_when_names_are_long() -> None:
    groups = ({"key": "x" * 4_000} for _ in range(64))
    steps = in_steps.response_in_steps(versions.FIND_COORDINATOR, 4, coordinators=groups)
    assert finished(steps)[1] == 22
