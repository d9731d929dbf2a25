"""Requests and responses with their headers, compared with kafka-python."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsResponse
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataRequest
from kafka.protocol.producer import InitProducerIdResponse
from support.cases import for_each

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.kafka.messages import table
from minikafka.kafka.messages.steps import finished
from minikafka.kafka.wire import codec, versions

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


@for_each(COLD)
def test_requests_and_responses_of_every_version_survive_a_round_trip(
    api: int, version: int
) -> None:
    defaults = table.request(api).structure.defaults(version)
    frame = codec.encode_request(api, version, 7, CLIENT, codec.request(api, version))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.decode_request(api, version, body_of(frame)) == defaults
    steps = codec.decode_request_in_steps(api, version, body_of(frame))
    assert finished(steps) == defaults
    defaults = table.response(api).structure.defaults(version)
    frame = codec.encode_response(7, api, version, codec.response(api, version))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.decode_response(api, version, memoryview(frame)[4:]) == defaults
    assert finished(codec.response_in_steps(api, version)) == codec.response(api, version)


def test_tagged_fields_of_the_request_header_are_skipped() -> None:
    body = codec.request(versions.METADATA, 9, topics=[{"name": "t"}])
    for decode in (codec.decode_request, decode_in_steps):
        assert decode(versions.METADATA, 9, b"\x01\x05\x02xy" + body).topics[0].name == "t"


def decode_in_steps(api: int, version: int, data: bytes) -> Any:
    return finished(codec.decode_request_in_steps(api, version, data))


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
        tags = b"\0" if codec.is_flexible(api, version) else b""
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
        body = codec.response(message.API_KEY, version, **values)
        decoded = message.decode(body, version=version)
        assert expected(decoded)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever kafka-python makes of it
            message.decode(body[:-1], version=version)


def test_encoded_body_is_framed_unchanged() -> None:
    assert codec.encode_response(1, versions.METADATA, 12, b"xy") == b"\0\0\0\x07\0\0\0\x01\0xy"
    assert codec.encode_response(1, versions.METADATA, 8, b"xy") == b"\0\0\0\x06\0\0\0\x01xy"


def test_every_error_code_can_be_encoded() -> None:
    for code in ErrorCode:
        body = codec.response(versions.API_VERSIONS, 0, error_code=code)
        assert codec.decode_response(versions.API_VERSIONS, 0, bytes(4) + body).error_code == code


@for_each(COLD)
def test_truncated_request_raises_a_protocol_violation(api: int, version: int) -> None:
    body = bytes(
        body_of(codec.encode_request(api, version, 7, CLIENT, codec.request(api, version)))
    )
    for end in range(len(body)):
        for decode in (codec.decode_request, decode_in_steps):
            with pytest.raises(ProtocolViolation):
                decode(api, version, body[:end])


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), -1, 10**17 + 1])
def test_time_of_any_int64_is_an_exact_integer(number: int) -> None:
    request = codec.request(versions.OFFSET_COMMIT, 2, group_id="g", retention_time_ms=number)
    frame = codec.encode_request(versions.OFFSET_COMMIT, 2, 7, CLIENT, request)
    decoded = codec.decode_request(versions.OFFSET_COMMIT, 2, body_of(frame))
    assert decoded.retention_time_ms == number
