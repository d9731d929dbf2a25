"""Topic settings of running brokers, written by a client or directly in ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Create
from minikafka.client import NewTopic
from minikafka.client.administration.admin import Resource, ResourceType
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.storage.replication.partition import Partition
from minikafka.zookeeper.nodes import layout

pytestmark = pytest.mark.row("R71")

T0 = TopicPartition("t", 0)
TOPIC = Resource(ResourceType.TOPIC, "t")
ALL_BROKERS = Resource(ResourceType.BROKER, "")
RECORD = Record(value=b"x")


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as running:
        async with running.client() as client:
            await client.create_topics(NewTopic("t", 1, 3))
        yield running


def partitions(cluster: MemoryCluster) -> list[Partition]:
    return [broker.replicas.partitions[T0] for broker in cluster.brokers.values()]


async def alter(cluster: MemoryCluster, resource: Resource, **values: str | None) -> None:
    changes = {name.replace("_", "."): value for name, value in values.items()}
    async with cluster.client() as client:
        (outcome,) = (await client.admin.alter_configs({resource: changes})).values()
    assert outcome.code == ErrorCode.NONE, outcome


def write_raw(cluster: MemoryCluster, kind: str, path: str, name: str, **values: str) -> None:
    """Write settings as Kafka's tools do with `--zookeeper`."""
    overrides = {key.replace("_", "."): value for key, value in values.items()}
    cluster.ensemble.put(path, layout.encode_config(overrides))
    notification = layout.encode_config_change(kind, name)
    cluster.ensemble.apply(Create(layout.CONFIG_CHANGE_PREFIX, notification, sequential=True), 0)


async def test_invalid_topic_setting_is_ignored_and_other_settings_apply(
    cluster: MemoryCluster,
) -> None:
    path = layout.topic_config_path("t")
    settings = {"min_insync_replicas": "3", "retention_ms": "soon", "of_a_later_kafka": "1"}
    write_raw(cluster, "topics", path, "t", **settings)
    await until(lambda: all(p.min_isr == 3 for p in partitions(cluster)))


@pytest.mark.key("segment.bytes", "max.message.bytes", "message.timestamp.type")
async def test_changed_topic_settings_apply_without_a_restart(
    cluster: MemoryCluster,
) -> None:
    await alter(
        cluster,
        TOPIC,
        min_insync_replicas="3",
        segment_bytes="500",
        max_message_bytes="300",
        message_timestamp_type="LogAppendTime",
    )
    await until(lambda: all(p.min_isr == 3 for p in partitions(cluster)))
    for partition in partitions(cluster):
        assert partition.log.config.segment_bytes == 500
        assert partition.log.config.max_message_bytes == 300
        assert partition.log_append_time
    async with cluster.client() as client:
        for _ in range(20):
            await client.produce("t", [RECORD])
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await client.produce("t", [Record(value=bytes(400))])
    assert len(partitions(cluster)[0].log.segments) > 1
    await alter(cluster, TOPIC, message_timestamp_type=None, min_insync_replicas=None)
    await until(lambda: not any(p.log_append_time for p in partitions(cluster)))


async def test_settings_written_in_zookeeper_apply_after_a_notification(
    cluster: MemoryCluster,
) -> None:
    path = layout.topic_config_path("t")
    write_raw(cluster, "topics", path, "t", min_insync_replicas="2")
    await until(lambda: all(p.min_isr == 2 for p in partitions(cluster)))
    path = layout.broker_config_path("<default>")
    write_raw(cluster, "brokers", path, "<default>", message_max_bytes="77")
    await until(lambda: all(p.log.config.max_message_bytes == 77 for p in partitions(cluster)))


async def test_partition_is_under_min_isr_when_the_minimum_is_raised_above_the_isr(
    cluster: MemoryCluster,
) -> None:
    await cluster.stop(2)
    await until(lambda: all(len(p.isr) == 2 for p in partitions(cluster) if p.is_leader))
    await alter(cluster, ALL_BROKERS, min_insync_replicas="3")
    await until(lambda: all(p.min_isr == 3 for p in partitions(cluster)))
    async with cluster.client() as client:
        leader = next(p for p in partitions(cluster) if p.is_leader)
        assert leader.under_min_isr
        await alter(cluster, ALL_BROKERS, min_insync_replicas=None)
        await until(lambda: not leader.under_min_isr)
        await client.produce("t", [RECORD])


async def test_recreated_topic_does_not_keep_the_old_settings(
    cluster: MemoryCluster,
) -> None:
    await alter(cluster, TOPIC, min_insync_replicas="2")
    async with cluster.client() as client:
        await client.delete_topics("t")
        await until(lambda: layout.topic_path("t") not in cluster.ensemble.nodes)
        await client.create_topics(NewTopic("t", 1, 3, {"retention.ms": "9"}))
    for partition in partitions(cluster):
        assert (partition.min_isr, partition.log.config.retention_ms) == (1, 9)


@pytest.mark.row("R63", "H4")
@pytest.mark.parametrize("resource", [TOPIC, ALL_BROKERS])
async def test_enabling_unclean_election_elects_a_leader_at_once(
    cluster: MemoryCluster, resource: Resource
) -> None:
    await cluster.stop(1)
    await cluster.stop(2)
    await until(lambda: all(p.isr == (0,) for p in partitions(cluster)))
    await cluster.stop(0)
    await cluster.start(1)
    await until(lambda: cluster.brokers[1].capabilities.diagnostics.is_active)
    metadata = cluster.brokers[1].metadata
    assert not metadata.is_alive(metadata.topics["t"][0].leader)
    await alter(cluster, resource, unclean_leader_election_enable="true")
    await until(lambda: metadata.topics["t"][0].leader == 1)
