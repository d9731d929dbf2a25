"""The client lists offsets of partitions with different leaders, also while leaders change."""

from __future__ import annotations

import pytest
from support.clients.stub_cluster import StubCluster

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, Record
from minikafka.client.log_offsets import EARLIEST, LATEST
from minikafka.kafka.records.batch import build
from minikafka.kafka.wire import versions

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def client_of(cluster: StubCluster, api_timeout_ms: int = 60_000) -> Client:
    return Client(cluster.bootstrap, transport=cluster.transport, api_timeout_ms=api_timeout_ms)


def fill(cluster: StubCluster) -> None:
    cluster.create("t", [1, 2])
    cluster.create("u", [2])
    for tp in (T0, T1, U0):
        for stamp in (1, 2):
            record = Record(timestamp=stamp, value=b"v")
            cluster.topics[tp.topic][tp.partition].append(build([record]))


async def test_one_request_per_leader_finds_the_offsets(cluster: StubCluster) -> None:
    fill(cluster)
    async with client_of(cluster) as client:
        found = await client.log_offsets({T0: EARLIEST, T1: LATEST, U0: 2})
    assert found == {T0: 0, T1: 2, U0: 1}
    assert sorted(cluster.asked(versions.LIST_OFFSETS)) == [1, 2]


async def test_offsets_are_requested_again_from_the_new_leader(cluster: StubCluster) -> None:
    fill(cluster)
    async with client_of(cluster) as client:
        await client.log_offsets({T0: LATEST})
        cluster.lead("t", 0, 3)
        assert await client.log_offsets({T0: LATEST, T1: LATEST}) == {T0: 2, T1: 2}


async def test_offset_lookup_error_names_the_partition_without_a_leader(
    cluster: StubCluster,
) -> None:
    fill(cluster)
    cluster.lead("t", 0, -1)
    async with client_of(cluster, api_timeout_ms=500) as client:
        offsets, errors = await client.log_offsets.look_up_once({T0: LATEST, T1: LATEST})
        assert offsets == {T1: 2}
        assert errors[T0].code is ErrorCode.LEADER_NOT_AVAILABLE
        with pytest.raises(KafkaError, match="t-0"):
            await client.log_offsets({T0: LATEST, T1: LATEST})
