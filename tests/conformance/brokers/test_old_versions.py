"""Requests of the oldest versions, which older clients send and Kafka 3.9 answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.kafka.raw_answers import answer
from support.until import until

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
)
from minikafka.simulation.cluster import MemoryCluster

pytestmark = pytest.mark.usefixtures("each_mode")

ONE = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}
COMMITTED = 1_700_000_000_123


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with asyncio.timeout(60), MemoryCluster(1, **ONE) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 1))
            for timestamp in (100, 200, 300):
                await client.produce("t", [Record(timestamp=timestamp, value=b"v")], partition=0)
        yield cluster


async def ask(cluster: MemoryCluster, api: int, version: int, **values: Any) -> Any:
    frame = encode_request(api, version, 7, "old", request(api, version, **values))
    data = await answer(cluster, frame)
    assert data is not None
    return decode_response(api, version, data)


async def test_topic_is_created_described_and_deleted_with_version_0(
    cluster: MemoryCluster,
) -> None:
    configs = [{"name": "retention.ms", "value": "5000"}]
    topic = {"name": "old", "num_partitions": 2, "replication_factor": 1, "configs": configs}
    created = await ask(cluster, CREATE_TOPICS, 0, topics=[topic], timeout_ms=5_000)
    assert [(row.name, row.error_code) for row in created.topics] == [("old", 0)]
    resource = {"resource_type": 2, "resource_name": "old"}
    described = await ask(cluster, DESCRIBE_CONFIGS, 0, resources=[resource])
    found = {row.name: (row.value, row.is_default) for row in described.results[0].configs}
    assert found["retention.ms"] == ("5000", False)
    assert found["cleanup.policy"] == ("delete", True)
    directories = await ask(cluster, DESCRIBE_LOG_DIRS, 0, topics=None)
    assert {topic.name for topic in directories.results[0].topics} >= {"old", "t"}
    deleted = await ask(cluster, DELETE_TOPICS, 0, topic_names=["old"], timeout_ms=5_000)
    assert [(row.name, row.error_code) for row in deleted.responses] == [("old", 0)]


@pytest.mark.parametrize(
    ("timestamp", "most", "offsets"),
    [(-1, 1, [3]), (-1, 9, [3, 0]), (-2, 9, [0]), (300, 9, [3, 0]), (50, 9, []), (-1, 0, [])],
)
async def test_list_offsets_0_returns_offsets_in_descending_order(
    cluster: MemoryCluster, timestamp: int, most: int, offsets: list[int]
) -> None:
    partition = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": most}
    topics = [{"name": "t", "partitions": [partition]}]
    listed = await ask(cluster, LIST_OFFSETS, 0, replica_id=-1, topics=topics)
    (row,) = listed.topics[0].partitions
    assert (row.error_code, list(row.old_style_offsets)) == (0, offsets)


@pytest.mark.parametrize(
    ("version", "timestamp", "outcome"),
    [
        (8, -4, (0, 0)),
        (7, -4, (35, -1)),
        (9, -5, (0, -1)),
        (8, -5, (35, -1)),
        (9, -6, (35, -1)),
        (9, -(2**63), (35, -1)),
        (9, 2**63 - 1, (0, -1)),
    ],
)
async def test_list_offsets_answers_special_timestamps_from_their_version_on(
    cluster: MemoryCluster, version: int, timestamp: int, outcome: tuple[int, int]
) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    listed = await ask(cluster, LIST_OFFSETS, version, replica_id=-1, topics=topics)
    (row,) = listed.topics[0].partitions
    assert (row.error_code, row.offset) == outcome


@pytest.mark.parametrize("version", [0, 1])
async def test_epoch_end_is_returned_to_a_request_without_the_current_epoch(
    cluster: MemoryCluster, version: int
) -> None:
    epoch = cluster.brokers[0].replicas.partitions[TopicPartition("t", 0)].leader_epoch
    topics = [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": epoch}]}]
    found = await ask(cluster, OFFSET_FOR_LEADER_EPOCH, version, topics=topics)
    assert found.topics[0].partitions[0].end_offset == 3


@pytest.mark.parametrize("version", [0, 1, 9])
async def test_offsets_are_committed_and_fetched_in_an_old_or_new_version(
    cluster: MemoryCluster, version: int
) -> None:
    await ask(cluster, FIND_COORDINATOR, 0, key="g")
    row = {"partition_index": 0, "committed_offset": 2, "commit_timestamp": COMMITTED}
    topics = [{"name": "t", "partitions": [row]}]

    async def is_committed() -> bool:
        done = await ask(
            cluster,
            OFFSET_COMMIT,
            version,
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=topics,
        )
        return done.topics[0].partitions[0].error_code == 0

    while not await is_committed():
        await until(lambda: True)
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    fetched = await ask(cluster, OFFSET_FETCH, version, groups=[asked], **asked)
    group = fetched if version < 8 else fetched.groups[0]
    assert group.topics[0].partitions[0].committed_offset == 2


@pytest.mark.parametrize(("types", "count"), [([], 1), (["Classic"], 1), (["consumer"], 0)])
async def test_groups_are_listed_by_type(
    cluster: MemoryCluster, types: list[str], count: int
) -> None:
    await test_offsets_are_committed_and_fetched_in_an_old_or_new_version(cluster, 0)
    listed = await ask(cluster, LIST_GROUPS, 5, types_filter=types)
    assert [group.group_type for group in listed.groups] == ["classic"] * count
