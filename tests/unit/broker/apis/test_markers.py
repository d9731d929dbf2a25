"""WriteTxnMarkers in every version: markers, fencing, and the offsets that a marker completes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from support.clients.group_client import GroupClient
from support.clients.transactional_client import TransactionalProducer, committed_values

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.client import NewTopic
from minikafka.kafka.wire.versions import WRITE_TXN_MARKERS
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

A, B = (TopicPartition("t", number) for number in range(2))
OFFSETS = TopicPartition(GROUP_TOPIC, 0)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Scenario = Callable[[MemoryCluster, TransactionalProducer], Coroutine[Any, Any, None]]
SMALL = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}
Marker = tuple[int, int, bool, int, Sequence[TopicPartition]]
"""Producer id, epoch, result, coordinator epoch and partitions."""


def run(scenario: Scenario) -> None:
    async def scene() -> None:
        async with MemoryCluster(1, **SMALL) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("t", 2, 1)])
            producer = TransactionalProducer(cluster, "x")
            await producer.init()
            await scenario(cluster, producer)
            producer.close()

    run_seeded(1, scene())


async def write(
    producer: TransactionalProducer, version: int, *markers: Marker
) -> list[tuple[int, dict[TopicPartition, int]]]:
    """Send markers to the only broker; return producer id and the errors of each entry in the response."""
    answer = await producer.send(
        9092,
        WRITE_TXN_MARKERS,
        version,
        markers=[
            {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "transaction_result": result,
                "coordinator_epoch": coordinator_epoch,
                "topics": [
                    {"name": tp.topic, "partition_indexes": [tp.partition]} for tp in partitions
                ],
            }
            for producer_id, epoch, result, coordinator_epoch, partitions in markers
        ],
    )
    return [
        (
            marker.producer_id,
            {
                TopicPartition(topic.name, row.partition_index): row.error_code
                for topic in marker.topics
                for row in topic.partitions
            },
        )
        for marker in answer.markers
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_marker_ends_a_transaction_in_its_partitions(version: int) -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        for tp in (A, B):
            await producer.produce(tp, b"1")
        commit = producer.producer_id, 0, True, 0, (A, B)
        assert await write(producer, version, commit) == [
            (producer.producer_id, {A: NONE, B: NONE})
        ]
        assert await committed_values(cluster, A) == [b"1"]
        assert await committed_values(cluster, B) == [b"1"]

    run(scenario)


def test_each_producer_has_one_entry_in_the_response() -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        missing = TopicPartition("missing", 0)
        answer = await write(
            producer, 1, (7, 0, True, 0, (A,)), (8, 0, False, 0, (missing,)), (7, 0, True, 0, (B,))
        )
        assert answer == [(7, {A: NONE, B: NONE}), (8, {missing: UNKNOWN})]
        assert await write(producer, 1) == []

    run(scenario)


def test_markers_of_earlier_epochs_are_fenced() -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        await write(producer, 1, (7, 1, True, 5, (A,)))
        assert await write(producer, 1, (7, 0, True, 5, (A, B))) == [
            (7, {A: ErrorCode.INVALID_PRODUCER_EPOCH, B: NONE})
        ]
        assert await write(producer, 1, (7, 1, True, 4, (A,))) == [
            (7, {A: ErrorCode.TRANSACTION_COORDINATOR_FENCED})
        ]
        assert await write(producer, 1, (-1, 0, True, 4, (A,))) == [
            (-1, {A: ErrorCode.UNKNOWN_SERVER_ERROR})
        ]

    run(scenario)


@pytest.mark.parametrize(("result", "expected"), [(True, {("t", 0): 5}), (False, {})])
def test_marker_completes_the_offsets_of_a_group(
    result: bool, expected: dict[tuple[str, int], int]
) -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        group = GroupClient(cluster, "g")
        await producer.commit_offsets(group, {("t", 0): 5})
        assert await group.committed() == {}
        await write(producer, 1, (producer.producer_id, 0, result, 0, (OFFSETS,)))
        assert await group.committed() == expected
        group.close()

    run(scenario)


def test_request_with_many_partitions_lets_other_requests_pass() -> None:
    async def scenario(cluster: MemoryCluster, producer: TransactionalProducer) -> None:
        many = [(number, 0, True, 0, (A, B)) for number in range(500)]
        answer = await write(producer, 1, *many)
        assert [number for number, _ in answer] == list(range(500))
        assert all(set(errors.values()) == {NONE} for _, errors in answer)

    run(scenario)
