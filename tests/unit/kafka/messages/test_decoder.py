"""Decoding of messages: valid ones as by the library kio, any other bytes with a ProtocolViolation."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest
from support.cases import for_each
from support.forms import seeds
from support.kafka import kio_oracle
from support.kafka.kio_oracle import plain, request_schema, response_schema
from support.kafka.random_messages import MESSAGES, message, values_of

from minikafka.base.errors import ProtocolViolation
from minikafka.kafka.messages import table
from minikafka.kafka.messages.decoder import STEP_BYTES, decode, decode_in_steps, skip_tags
from minikafka.kafka.messages.encoder import encode
from minikafka.kafka.records.varints import uvarint
from minikafka.kafka.wire.versions import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    HEARTBEAT,
    METADATA,
)

MANY = 100_000


def finished(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Run the generator to its end; return the result, and how often the generator yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


def request(api: int, version: int, data: bytes, elements_max: int = MANY) -> Any:
    return decode(table.request(api), version, data, 0, elements_max)


@for_each(MESSAGES)
def test_random_message_is_decoded_as_by_kio(api: int, version: int, is_request: bool) -> None:
    schema = (request_schema if is_request else response_schema)(api, version)
    found = message(api, is_request)
    rng = random.Random(f"{api} {version} {is_request}")
    for _ in range(5):
        values = values_of(found.structure, version, rng)
        data = kio_oracle.encode(schema, values)
        entity = decode(found, version, data, 0, MANY)
        assert plain(found.structure, version, entity) == values
        assert kio_oracle.decode(schema, found.structure, version, data) == values
        view = memoryview(bytearray(b"xyz" + data))
        assert finished(decode_in_steps(found, version, view, 3, MANY))[0] == entity


@for_each(MESSAGES)
def test_truncated_message_raises_a_protocol_violation(
    api: int, version: int, is_request: bool
) -> None:
    found = message(api, is_request)
    rng = random.Random(f"{api} {version} {is_request}")
    data = encode(found, version, values_of(found.structure, version, rng))
    for end in sorted(
        {*range(min(40, len(data))), *rng.sample(range(len(data)), min(40, len(data)))}
    ):
        with pytest.raises(ProtocolViolation):
            decode(found, version, data[:end], 0, MANY)


@for_each(MESSAGES)
def test_damaged_message_is_decoded_or_raises_a_protocol_violation(
    api: int, version: int, is_request: bool
) -> None:
    found = message(api, is_request)
    rng = random.Random(f"{api} {version} {is_request}")
    for _ in seeds(10, 30):
        data = bytearray(encode(found, version, values_of(found.structure, version, rng)))
        for _ in range(rng.randrange(1, 4) if data else 0):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        assert_decoded_or_refused(found, version, bytes(data))
    for _ in seeds(30, 100):
        head = rng.choice([b"", b"\0", b"\0\0\0\x01", b"\x02", b"\0\x02", b"\0\0\0\0\x01\0\x01t"])
        assert_decoded_or_refused(found, version, head + rng.randbytes(rng.randrange(40)))


def assert_decoded_or_refused(found: table.Message, version: int, data: bytes) -> None:
    """Decode. An entity that results is the same after it was encoded and decoded again."""
    try:
        entity = decode(found, version, data, 0, MANY)
    except ProtocolViolation:
        return
    again = encode(found, version, plain(found.structure, version, entity))
    assert repr(decode(found, version, again, 0, MANY)) == repr(entity)  # a float may be NaN


@for_each(MESSAGES)
def test_message_full_of_large_counts_allocates_little(
    api: int, version: int, is_request: bool
) -> None:
    found = message(api, is_request)
    bodies = [
        byte * 2_000 for byte in (b"\x7f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\0")
    ]
    decode_all(found, version, bodies)  # compiles the decoder
    tracemalloc.start()
    try:
        decode_all(found, version, bodies)
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


def decode_all(found: table.Message, version: int, bodies: list[bytes]) -> None:
    for body in bodies:
        try:
            decode(found, version, body, 0, MANY)
        except ProtocolViolation:
            continue


@pytest.mark.parametrize("count", [1, 2, 2**31 - 1, -2])
def test_array_is_refused_when_its_length_exceeds_the_message(count: int) -> None:
    with pytest.raises(ProtocolViolation):
        request(METADATA, 8, struct.pack(">i", count) + b"\0\0\0", 2**40)


def test_compact_array_is_refused_when_its_length_exceeds_the_message() -> None:
    with pytest.raises(ProtocolViolation):
        request(METADATA, 12, b"\xff\xff\xff\xff\x0f\0\0\0", 2**40)


def test_array_of_numbers_is_refused_when_its_length_exceeds_the_message() -> None:
    topic = b"\0\x01t" + struct.pack(">ihiii", 1, 1, 1, 0, 2**31 - 1)
    with pytest.raises(ProtocolViolation, match="2147483647"):
        request(CREATE_TOPICS, 4, struct.pack(">i", 1) + topic, 2**40)


def test_message_is_refused_when_it_has_too_many_elements() -> None:
    body = struct.pack(">i", 100) + b"\0\0" * 100 + b"\0\0\0"
    assert len(request(METADATA, 8, body, 100).topics) == 100
    with pytest.raises(ProtocolViolation, match="too long"):
        request(METADATA, 8, body, 99)


@pytest.mark.parametrize("size", [-2, 5, 2**15 - 1])
def test_string_is_refused_when_its_length_exceeds_the_message(size: int) -> None:
    with pytest.raises(ProtocolViolation):
        request(METADATA, 8, struct.pack(">ih", 1, size) + b"\0\0\0")


def test_a_compact_string_longer_than_kafka_allows_is_refused() -> None:
    body = b"\x02" + bytes(16) + b"\x82\x80\x02" + b"a" * (2**15 + 1) + b"\0\0\0\0"
    with pytest.raises(ProtocolViolation, match="string"):
        request(METADATA, 12, body)


def test_length_of_a_nullable_string_below_minus_1_is_refused() -> None:
    head = b"\0\x01g" + struct.pack(">i", 1) + b"\0\x01m"
    null = request(HEARTBEAT, 3, head + struct.pack(">h", -1))
    assert (null.member_id, null.group_instance_id) == ("m", None)
    with pytest.raises(ProtocolViolation, match="-2"):
        request(HEARTBEAT, 3, head + struct.pack(">h", -2))


def test_value_that_may_not_be_null_is_refused_when_it_is_null() -> None:
    with pytest.raises(ProtocolViolation):
        request(CREATE_TOPICS, 4, struct.pack(">iib", -1, 0, 0))
    with pytest.raises(ProtocolViolation):
        request(METADATA, 8, struct.pack(">ih", 1, -1) + b"\0\0\0")
    assert request(METADATA, 8, struct.pack(">i", -1) + b"\0\0\0").topics is None


def test_unknown_tagged_fields_are_skipped() -> None:
    topic = b"\x02" + bytes(16) + b"\x02t" + b"\x01\x09\x02ab"
    decoded = request(METADATA, 12, topic + b"\x01\x00" + b"\x02\x05\x00\x63\x01x")
    assert [found.name for found in decoded.topics] == ["t"]
    assert decoded.allow_auto_topic_creation


def test_known_tagged_field_next_to_an_unknown_one_is_decoded() -> None:
    head = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + b"\x01\x01\x01"
    assert request(FETCH, 12, head + b"\x02" + b"\x00\x02\x02c" + b"\x09\x01z").cluster_id == "c"
    assert request(FETCH, 12, head + b"\x00").cluster_id is None


@pytest.mark.parametrize("size", [7, 9, 2**31 - 1])
def test_tagged_field_is_refused_when_its_size_is_wrong(size: int) -> None:
    epoch = b"\x01" + uvarint(size) + struct.pack(">q", 1) + b"\0\0\0"
    body = b"\0\0\x01\0\0\0\0" + b"\x01" + epoch
    with pytest.raises(ProtocolViolation):
        decode(table.response(API_VERSIONS), 3, body, 0, MANY)


def test_finalized_features_epoch_is_decoded_from_its_tagged_field() -> None:
    epoch = b"\x01\x08" + struct.pack(">q", 7)
    body = b"\0\0\x01\0\0\0\0" + b"\x01" + epoch
    assert decode(table.response(API_VERSIONS), 3, body, 0, MANY).finalized_features_epoch == 7


def test_section_with_too_many_tagged_fields_is_refused() -> None:
    with pytest.raises(ProtocolViolation):
        request(METADATA, 12, b"\x00\x00\x00\xff\xff\xff\xff\x07")
    with pytest.raises(ProtocolViolation):
        request(METADATA, 12, b"\x00\x00\x00\x7f" + b"\x01\x00" * 127, 126)


@pytest.mark.parametrize("byte", [1, 2, 0x7F, 0xFF])
def test_each_byte_but_0_is_a_true_boolean_as_in_kafka(byte: int) -> None:
    assert request(METADATA, 4, b"\0\0\0\0" + bytes([byte])).allow_auto_topic_creation is True


def test_string_that_is_not_utf8_is_read_with_u_fffd() -> None:
    topic = b"caf\xe9\xff"
    for version, body in (
        (8, b"\0\0\0\x01\0\x05" + topic + b"\0\0\0"),
        (9, b"\x02\x06" + topic + b"\0\0\0\0\0"),
    ):
        names = [found.name for found in request(METADATA, version, body).topics]
        assert names == ["caf\ufffd\ufffd"]


@pytest.mark.parametrize("size", [0x7FFF // 3, 0x7FFF // 3 + 1, 0x7FFF])
def test_string_that_grows_beyond_the_limit_of_kafka_is_cut_between_two_characters(
    size: int,
) -> None:
    body = b"\0\0\0\x01" + struct.pack(">h", size) + b"\xff" * size + b"\0\0\0"
    assert request(METADATA, 8, body).topics[0].name == "\ufffd" * (0x7FFF // 3)


def test_longest_string_of_kafka_is_read_whole() -> None:
    name = "é" * (0x7FFF // 2)
    body = encode(table.request(METADATA), 12, {"topics": [{"name": name}]})
    assert request(METADATA, 12, body).topics[0].name == name


def test_step_ends_after_a_bounded_number_of_bytes() -> None:
    topics = [{"name": f"topic-{number}"} for number in range(6_400)]
    body = encode(table.request(METADATA), 9, {"topics": topics})
    _, steps = finished(decode_in_steps(table.request(METADATA), 9, body, 0, MANY))
    assert steps == pytest.approx(len(body) / STEP_BYTES, abs=2)


def test_step_ends_inside_an_array_of_strings_and_of_numbers() -> None:
    names = [f"key-{number}" for number in range(6_400)]
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": names}
    found = table.request(DESCRIBE_CONFIGS)
    body = encode(found, 4, {"resources": [resource]})
    decoded, steps = finished(decode_in_steps(found, 4, body, 0, MANY))
    assert (decoded.resources[0].configuration_keys, steps >= 25) == (tuple(names), True)
    assignment = {"partition_index": 1, "broker_ids": range(50_000)}
    found = table.request(CREATE_TOPICS)
    body = encode(found, 5, {"topics": [{"name": "t", "assignments": [assignment]}]})
    decoded, steps = finished(decode_in_steps(found, 5, body, 0, MANY))
    assert decoded.topics[0].assignments[0].broker_ids == tuple(range(50_000))
    assert steps >= 6


def test_step_ends_inside_a_section_of_tagged_fields() -> None:
    body = b"\x01" + b"\0\0" + uvarint(10_000) + b"\x05\x00" * 10_000
    assert (
        finished(decode_in_steps(table.request(METADATA), 12, b"\x00" + body[1:], 0, MANY))[1] > 30
    )


def test_tagged_fields_of_a_header_are_skipped() -> None:
    section = b"\x02\x00\x01a\x05\x02bc"
    assert skip_tags(section + b"rest", 0) == len(section)
    with pytest.raises(ProtocolViolation):
        skip_tags(b"\x01\x00\x7fa", 0)
