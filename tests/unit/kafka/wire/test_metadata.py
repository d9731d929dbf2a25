"""The hand-written Metadata response, compared with the codec of messages and kafka-python."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import MetadataResponse

from minikafka.base.errors import ErrorCode
from minikafka.base.model import Node, PartitionState, TopicPartition
from minikafka.kafka.wire import codec, versions
from minikafka.kafka.wire.metadata import encode, encode_topic

BROKERS = [
    Node(1, "host-one", 9092, "east"),
    Node(2, "host-two", 9093, None),
]
TOPIC_ID = bytes(range(16))
ALL = range(13)


def state(index: int, leader: int, offline: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(
        TopicPartition("t", index), leader, 5, (1, 2), 0, 0, (1, 2, 3), offline=offline
    )


def body(version: int, partitions: list[PartitionState]) -> bytes:
    topics = [
        encode_topic(version, "t", TOPIC_ID, ErrorCode.NONE, partitions, {1, 2}),
        encode_topic(version, "nö", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (), {1, 2}),
    ]
    return encode(version, BROKERS, "cluster", 2, topics)


@pytest.mark.parametrize("version", ALL)
def test_metadata_response_has_the_same_bytes_as_encoded_from_the_table(version: int) -> None:
    def partition(
        index: int, leader: int, error: int, offline: tuple[int, ...]
    ) -> dict[str, object]:
        old = version == 0
        return {
            "error_code": error or (ErrorCode.REPLICA_NOT_AVAILABLE if old else 0),
            "partition_index": index,
            "leader_id": leader,
            "leader_epoch": 5,
            "replica_nodes": (1, 2) if old else (1, 2, 3),
            "isr_nodes": (1, 2),
            "offline_replicas": offline,
        }

    expected = codec.response(
        versions.METADATA,
        version,
        brokers=[
            {"node_id": 1, "host": "host-one", "port": 9092, "rack": "east"},
            {"node_id": 2, "host": "host-two", "port": 9093, "rack": None},
        ],
        cluster_id="cluster",
        controller_id=2,
        topics=[
            {
                "name": "t",
                "topic_id": TOPIC_ID,
                "partitions": [
                    partition(0, 1, 0, (3,)),
                    partition(1, -1, ErrorCode.LEADER_NOT_AVAILABLE, (3,)),
                    partition(2, 2, 0, (1, 3)),
                ],
            },
            {"name": "nö", "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        ],
    )
    assert body(version, [state(0, 1), state(1, 3), state(2, 2, (1,))]) == expected


@pytest.mark.parametrize("version", ALL)
def test_kafka_python_decodes_the_metadata_response(version: int) -> None:
    frame = codec.encode_response(9, versions.METADATA, version, body(version, [state(0, 1)]))
    decoded = MetadataResponse.decode(frame, version=version, header=True, framed=True)
    assert decoded.header.correlation_id == 9
    assert [broker.host for broker in decoded.brokers] == ["host-one", "host-two"]
    assert [topic.name for topic in decoded.topics] == ["t", "nö"]
    assert decoded.topics[0].partitions[0].leader_id == 1


def test_topic_requested_by_unknown_id_has_no_name() -> None:
    topic = encode_topic(12, None, TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID, (), set())
    frame = codec.encode_response(1, versions.METADATA, 12, encode(12, (), "c", -1, [topic]))
    entity = codec.decode_response(versions.METADATA, 12, frame[4:])
    assert entity.topics[0].name is None
    assert entity.topics[0].topic_id == TOPIC_ID
