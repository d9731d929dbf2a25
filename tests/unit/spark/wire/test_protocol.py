"""The codec of messages decodes our requests and encodes the responses that we parse."""

from __future__ import annotations

import struct

import pytest

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.kafka.records.transactions import Aborted
from minikafka.kafka.wire import codec
from minikafka.spark.wire import protocol
from minikafka.spark.wire.protocol import Isolation

LINES = TopicPartition("lines", 3)
FETCH, LIST_OFFSETS, METADATA = protocol.FETCH, protocol.LIST_OFFSETS, protocol.METADATA
EPOCHS = protocol.OFFSET_FOR_LEADER_EPOCH
NO_TAGS = b"\x00"
"""The encoding of an empty list of tagged fields, as in a request header of version 2."""


def body_of(answer: object) -> memoryview:
    return memoryview(answer)


def test_frame_has_a_length_and_header_version_1():
    frame = protocol.request(FETCH, 7, "spark", b"body")
    assert frame == struct.pack(">ihhih5s4s", 19, 1, 11, 7, 5, b"spark", b"body")


def test_frame_of_a_flexible_version_has_header_version_2():
    frame = protocol.request(METADATA, 7, "spark", b"body")
    assert frame == struct.pack(">ihhih5sx4s", 20, 3, 11, 7, 5, b"spark", b"body")
    tags = b"\x01\x05\x02ab"  # one tagged field: number 5, two bytes
    assert protocol.without_header_tags(memoryview(tags + b"body")) == b"body"


@pytest.mark.parametrize("creates", [False, True])
def test_metadata_request_creates_topics_only_if_it_should(creates):
    body = protocol.metadata_request(["lines", "mehr ä" * 60], creates=creates)
    request = codec.decode_request(*METADATA, NO_TAGS + body)
    assert [topic.name for topic in request.topics] == ["lines", "mehr ä" * 60]
    assert request.allow_auto_topic_creation is creates


def test_metadata_request_asks_for_all_topics():
    request = codec.decode_request(*METADATA, NO_TAGS + protocol.metadata_request(None))
    assert request.topics is None


@pytest.mark.parametrize("level", Isolation)
def test_fetch_request_has_the_partitions_in_order_and_no_session(level):
    asked = {
        LINES: protocol.FetchEntry(5, 1 << 40, 1 << 20),
        TopicPartition("lines", 1): protocol.FetchEntry(6, 7, 8),
        TopicPartition("more", 0): protocol.FetchEntry(0, 0, 9),
    }
    body = protocol.fetch_request(asked, level, max_bytes=1 << 21, max_wait_ms=500)
    request = codec.decode_request(*FETCH, body)
    assert (request.replica_id, request.isolation_level, request.min_bytes) == (-1, level, 1)
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.max_bytes == 1 << 21
    assert {
        TopicPartition(topic.topic, one.partition): protocol.FetchEntry(
            one.current_leader_epoch, one.fetch_offset, one.partition_max_bytes
        )
        for topic in request.topics
        for one in topic.partitions
    } == asked
    assert [one.partition for one in request.topics[0].partitions] == [3, 1]


@pytest.mark.parametrize("level", Isolation)
def test_list_offsets_request_groups_partitions_by_topic(level):
    asked = {LINES: (5, -2), TopicPartition("b", 0): (1, -1), TopicPartition("lines", 4): (6, -1)}
    request = codec.decode_request(*LIST_OFFSETS, protocol.list_offsets_request(asked, level))
    found = {
        (topic.name, partition.partition_index): (
            partition.current_leader_epoch,
            partition.timestamp,
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    assert found == {("lines", 3): (5, -2), ("b", 0): (1, -1), ("lines", 4): (6, -1)}
    assert (request.replica_id, request.isolation_level, len(request.topics)) == (-1, level, 2)


def metadata_answer() -> memoryview:
    partition = {"replica_nodes": [1, 2], "isr_nodes": [2], "offline_replicas": [1]}
    return body_of(
        codec.response(
            *METADATA,
            brokers=[
                {"node_id": 1, "host": "one", "port": 9092, "rack": "r"},
                {"node_id": 2, "host": "two", "port": 9093},
            ],
            cluster_id="c",
            controller_id=1,
            topics=[
                {
                    "error_code": 0,
                    "name": "lines",
                    "topic_id": bytes(15) + b"\x01",
                    "is_internal": False,
                    "partitions": [
                        partition
                        | {
                            "error_code": 0,
                            "partition_index": 1,
                            "leader_id": 2,
                            "leader_epoch": 7,
                        },
                        partition
                        | {
                            "error_code": 5,
                            "partition_index": 0,
                            "leader_id": -1,
                            "leader_epoch": 8,
                        },
                    ],
                },
                {
                    "error_code": 3,
                    "name": "gone",
                    "topic_id": None,
                    "is_internal": True,
                    "partitions": [],
                },
            ],
        )
    )


def test_metadata_response_is_parsed():
    partitions = {
        1: protocol.PartitionMetadata(0, 2, 7),
        0: protocol.PartitionMetadata(5, -1, 8),
    }
    assert protocol.parse_metadata(metadata_answer()) == protocol.MetadataResponse(
        {1: ("one", 9092), 2: ("two", 9093)},
        ("one", 9092),
        {
            "lines": protocol.TopicMetadata(0, False, "AAAAAAAAAAAAAAAAAAAAAQ", partitions),
            "gone": protocol.TopicMetadata(3, True, "", {}),
        },
    )


def test_list_offsets_response_is_parsed():
    partition = {"timestamp": -1, "leader_epoch": 3}
    answer = codec.response(
        *LIST_OFFSETS,
        topics=[
            {
                "name": "lines",
                "partitions": [
                    partition | {"partition_index": 3, "error_code": 0, "offset": 1 << 40},
                    partition | {"partition_index": 4, "error_code": 6, "offset": -1},
                ],
            }
        ],
    )
    assert protocol.parse_list_offsets(body_of(answer)) == {
        LINES: protocol.OffsetResponse(0, 1 << 40, 3),
        TopicPartition("lines", 4): protocol.OffsetResponse(6, -1, 3),
    }


@pytest.mark.parametrize("aborted", [None, [], [{"producer_id": 1, "first_offset": 2}]])
def test_fetch_response_is_parsed_without_copying_records(aborted):
    partition = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 99,
        "last_stable_offset": 98,
        "log_start_offset": 7,
        "aborted_transactions": aborted,
        "records": b"bytes",
    }
    topics = [{"topic": "lines", "partitions": [partition]}]
    body = body_of(codec.response(*FETCH, responses=topics))
    answer = protocol.parse_fetch(body, [LINES])[LINES]
    transactions = tuple(Aborted(**one) for one in aborted or [])
    assert answer == protocol.FetchResponse(0, 99, 7, transactions, memoryview(b"bytes"))
    assert answer.records.obj is body.obj


def test_leader_epoch_end_offsets_are_requested_and_parsed():
    request = codec.decode_request(*EPOCHS, protocol.epoch_ends_request({LINES: (7, 4)}))
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition) == ("lines", 3)
    assert (partition.current_leader_epoch, partition.leader_epoch) == (7, 4)
    end = {"error_code": 0, "partition": 3, "leader_epoch": 4, "end_offset": 99}
    answer = codec.response(*EPOCHS, topics=[{"topic": "lines", "partitions": [end]}])
    assert protocol.parse_epoch_ends(body_of(answer)) == {LINES: protocol.OffsetResponse(0, 99, 4)}


def test_error_of_the_whole_fetch_applies_to_all_its_partitions():
    body = body_of(codec.response(*FETCH, error_code=71, responses=[]))
    asked = [LINES, TopicPartition("lines", 4)]
    assert [protocol.parse_fetch(body, asked)[tp].error for tp in asked] == [71, 71]


def test_fetch_response_without_a_requested_partition_is_a_protocol_violation():
    body = body_of(codec.response(*FETCH, responses=[]))
    with pytest.raises(ProtocolViolation, match="lacks the requested partition lines-3"):
        protocol.parse_fetch(body, [LINES])


def test_truncated_or_invalid_response_is_a_protocol_violation():
    whole = bytes(metadata_answer())
    for size in range(len(whole)):
        with pytest.raises(ProtocolViolation):
            protocol.parse_metadata(memoryview(whole[:size]))
    for parse in (protocol.parse_metadata, protocol.parse_list_offsets):
        with pytest.raises(ProtocolViolation):
            parse(memoryview(struct.pack(">ii", 0, 2**31 - 1)))
