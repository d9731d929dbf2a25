"""Requests and responses as objects, compared with kafka-python, and decoding of malformed bytes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsResponse
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataRequest
from kafka.protocol.producer import InitProducerIdResponse

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.wire import codec, versions

COLD = [
    (api, version)
    for api, (low, high) in versions.SERVED.items()
    if api not in (versions.PRODUCE, versions.FETCH)
    for version in range(low, high + 1)
]
CLIENT = "tester"
BODY = 4 + 2 + 2 + 4 + 2 + len(CLIENT)
"""Position of the body in a request frame."""


def body_of(frame: bytes) -> memoryview:
    return memoryview(bytearray(frame))[BODY:]


@pytest.mark.parametrize(("api", "version"), COLD)
def test_requests_and_responses_of_every_version_survive_a_round_trip(
    api: int, version: int
) -> None:
    request = codec.request(api, version)
    frame = codec.encode_request(api, version, 7, CLIENT, request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.decode_request(api, version, body_of(frame)) == request
    response = codec.response(api, version)
    frame = codec.encode_response(7, api, version, response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.decode_response(api, version, memoryview(frame)[4:]) == response


def test_importing_kio_does_not_import_hypothesis(
    tmp_path: Path,
) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
        "import minikafka.wire.codec; print('hypothesis' in sys.modules); import hypothesis"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"
    assert list(tmp_path.iterdir()) == []


def kafka_python_requests(version: int) -> list[Any]:
    """Return a request of each API with a topic named `a`."""
    creatable = CreateTopicsRequest.CreatableTopic(
        name="a",
        num_partitions=3,
        replication_factor=2,
        assignments=[
            CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(
                partition_index=0, broker_ids=[2, 1]
            )
        ],
        configs=[CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="k", value=None)],
    )
    listed = ListOffsetsRequest.ListOffsetsTopic(
        name="a",
        partitions=[
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=4, timestamp=-2
            )
        ],
    )
    return [
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="a")]),
        CreateTopicsRequest(topics=[creatable], timeout_ms=1500),
        DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="a")],
            topic_names=["a"],
            timeout_ms=1500,
        ),
        ListOffsetsRequest(replica_id=-1, topics=[listed]),
    ]


@pytest.mark.parametrize("version", range(13))
def test_requests_of_kafka_python_are_decoded(version: int) -> None:
    for request in kafka_python_requests(version):
        api = request.API_KEY
        if not versions.is_served(api, version):
            continue
        tags = b"\0" if versions.is_flexible(api, version) else b""
        entity = codec.decode_request(api, version, tags + bytes(request.encode(version=version)))
        names = getattr(entity, "topic_names", None) or [topic.name for topic in entity.topics]
        assert list(names) == ["a"]


@pytest.mark.parametrize(
    ("message", "values", "expected"),
    [
        (
            InitProducerIdResponse,
            {"producer_id": 9, "producer_epoch": 0},
            lambda got: (got.producer_id, got.producer_epoch) == (9, 0),
        ),
        (
            OffsetForLeaderEpochResponse,
            {"topics": [{"topic": "a", "partitions": [{"partition": 1, "end_offset": 5}]}]},
            lambda got: got.topics[0].partitions[0].end_offset == 5,
        ),
        (
            FindCoordinatorResponse,
            {"error_code": 15, "node_id": -1, "coordinators": [{"key": "g", "error_code": 15}]},
            lambda got: got.error_code == 15 or got.coordinators[0].error_code == 15,
        ),
        (
            DescribeConfigsResponse,
            {"results": [{"resource_type": 2, "resource_name": "t", "configs": [{"name": "k"}]}]},
            lambda got: got.results[0].configs[0].name == "k",
        ),
    ],
)
def test_kafka_python_decodes_responses(message: Any, values: Any, expected: Any) -> None:
    low, high = versions.SERVED[message.API_KEY]
    for version in range(low, high + 1):
        body = codec.encode_body(codec.response(message.API_KEY, version, **values))
        decoded = message.decode(body, version=version)
        assert expected(decoded)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever kafka-python makes of it
            message.decode(body[:-1], version=version)


def test_encoded_body_is_framed_unchanged() -> None:
    assert codec.encode_response(1, versions.METADATA, 12, b"xy") == b"\0\0\0\x07\0\0\0\x01\0xy"
    assert codec.encode_response(1, versions.METADATA, 8, b"xy") == b"\0\0\0\x06\0\0\0\x01xy"


def test_plain_values_are_converted_to_kafka_types_and_back() -> None:
    result = codec.response(
        versions.CREATE_TOPICS,
        7,
        throttle_time=5,
        topics=[
            {
                "name": "t",
                "topic_id": bytes(range(16)),
                "error_code": ErrorCode.NONE,
                "configs": None,
            }
        ],
    )
    assert result.throttle_time == 5
    assert codec.id_bytes(result.topics[0].topic_id) == bytes(range(16))
    assert codec.id_bytes(None) == bytes(16)


def test_field_of_another_version_is_ignored_and_unknown_field_is_refused() -> None:
    old = codec.response(
        versions.LIST_OFFSETS, 1, topics=[{"name": "t", "partitions": [{"leader_epoch": 3}]}]
    )
    assert not hasattr(old.topics[0].partitions[0], "leader_epoch")
    with pytest.raises(TypeError, match="leader_epok"):
        codec.response(versions.LIST_OFFSETS, 1, topics=[{"leader_epok": 3}])


def test_every_error_code_can_be_encoded() -> None:
    for code in ErrorCode:
        assert codec.response(versions.API_VERSIONS, 0, error_code=code).error_code == code


@pytest.mark.parametrize(("api", "version"), COLD)
def test_truncated_request_is_decoded_or_raises_a_protocol_violation(
    api: int, version: int
) -> None:
    request = codec.request(api, version)
    body = bytes(body_of(codec.encode_request(api, version, 7, CLIENT, request)))
    for end in range(len(body)):
        with pytest.raises(ProtocolViolation):
            codec.decode_request(api, version, body[:end])


@pytest.mark.parametrize(("api", "version"), COLD)
def test_random_bytes_are_decoded_or_raise_a_protocol_violation(api: int, version: int) -> None:
    rng = random.Random(api * 100 + version)
    for _ in range(300):
        head = rng.choice([b"", b"\0", b"\0\0\0\x01", b"\x02", b"\0\x02", b"\0\0\0\0\x01\0\x01t"])
        body = head + rng.randbytes(rng.randrange(40))
        for decode in (codec.decode_request, codec.decode_response):
            try:
                decode(api, version, body)
            except ProtocolViolation:
                continue


def test_string_that_is_not_utf8_is_read_with_u_fffd() -> None:
    topic = b"caf\xe9\xff"
    for version, body in (
        (8, b"\0\0\0\x01\0\x05" + topic + b"\0\0\0"),
        (9, b"\0\x02\x06" + topic + b"\0\0\0\0\0"),
    ):
        request = codec.decode_request(versions.METADATA, version, body)
        assert [item.name for item in request.topics] == ["caf\ufffd\ufffd"]


def test_string_that_grows_beyond_the_limit_of_kafka_is_cut_between_two_characters() -> None:
    name = b"\xff" * 0x7FFF
    body = b"\0\0\0\x01" + b"\x7f\xff" + name + b"\0\0\0"
    request = codec.decode_request(versions.METADATA, 8, body)
    assert request.topics[0].name == "\ufffd" * (0x7FFF // 3)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), -1, 10**17 + 1])
def test_time_of_any_int64_is_an_exact_integer(number: int) -> None:
    request = codec.request(versions.OFFSET_COMMIT, 2, group_id="g", retention_time=number)
    frame = codec.encode_request(versions.OFFSET_COMMIT, 2, 7, CLIENT, request)
    decoded = codec.decode_request(versions.OFFSET_COMMIT, 2, body_of(frame))
    assert decoded.retention_time == number
