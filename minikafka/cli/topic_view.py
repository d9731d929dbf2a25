"""Topics as `topics describe` shows them: in the lines of Kafka's own tool, and as JSON.

Invariant: a replica that a reassignment is only adding is not missed: a partition is under-replicated
when one of the others is not in the ISR.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.cli.target import unknown_topics
from minikafka.client import PartitionInfo, TopicInfo
from minikafka.client.admin import Admin
from minikafka.client.answers import ConfigSource, Resource, ResourceType

NOT_MOVING = ReplicaAssignment(())


class Found(NamedTuple):
    """Topics with their own settings, and what is being reassigned."""

    topics: Sequence[TopicInfo]
    configs: Mapping[str, Mapping[str, str]]
    moving: Mapping[TopicPartition, ReplicaAssignment]

    def only(self, *, under_replicated: bool, unavailable: bool) -> Found:
        """The partitions that are one or the other, as asked for, and their topics."""
        topics = []
        for topic in self.topics:
            kept = {
                number: partition
                for number, partition in topic.partitions.items()
                if (under_replicated and self.misses_replicas(topic.name, partition))
                or (unavailable and partition.leader < 0)
            }
            if kept:
                topics.append(topic._replace(partitions=kept))
        return self._replace(topics=topics)

    def misses_replicas(self, topic: str, partition: PartitionInfo) -> bool:
        """Whether a replica that should be there is not in the ISR."""
        coming = self.of(topic, partition.partition).adding
        return bool(set(partition.replicas) - set(coming) - set(partition.isr))

    def of(self, topic: str, number: int) -> ReplicaAssignment:
        """What moves a partition."""
        return self.moving.get(TopicPartition(topic, number), NOT_MOVING)


async def find(admin: Admin, names: Sequence[str]) -> Found:
    """These topics (none: all). Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION).

    Without a controller topics are shown as the brokers know them, as if nothing were being reassigned.
    """
    cluster, found = await admin.describe(names or None)
    known = {topic.name: topic for topic in found}
    if cluster.controller_id >= 0 and names:
        known |= await admin.describe_topics(names)
    missing = [name for name in names if name not in known]
    if missing:
        raise unknown_topics(missing)
    topics = [known[name] for name in dict.fromkeys(names)] if names else list(known.values())
    if cluster.controller_id < 0:
        return Found(topics, {}, {})
    resources = [Resource(ResourceType.TOPIC, topic.name) for topic in topics]
    settings = await admin.describe_configs(resources)
    configs = {
        resource.name: {
            entry.name: entry.value or ""
            for entry in held.entries
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        for resource, held in settings.items()
    }
    return Found(topics, configs, await admin.list_reassignments())


def topic_id(topic: TopicInfo) -> str:
    """As Kafka's tools write it: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")


def as_json_topic(topic: TopicInfo, found: Found) -> dict[str, Any]:
    """One topic for a program; `leader` is null where there is none."""
    return {
        "topic": topic.name,
        "topic_id": topic_id(topic),
        "configs": dict(found.configs.get(topic.name, {})),
        "partitions": [
            {
                "partition": number,
                "leader": partition.leader if partition.leader >= 0 else None,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "adding": list(found.of(topic.name, number).adding),
                "removing": list(found.of(topic.name, number).removing),
            }
            for number, partition in sorted(topic.partitions.items())
        ],
    }


def lines(topic: TopicInfo, found: Found, *, with_header: bool) -> Iterator[str]:
    """The lines of Kafka's own tool, which scripts know how to read."""
    if with_header:
        factor = max((len(p.replicas) for p in topic.partitions.values()), default=0)
        configs = ",".join(f"{k}={v}" for k, v in found.configs.get(topic.name, {}).items())
        yield (
            f"Topic: {topic.name}\tTopicId: {topic_id(topic)}"
            f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}"
            f"\tConfigs: {configs}"
        )
    for number, partition in sorted(topic.partitions.items()):
        moving = found.of(topic.name, number)
        text = (
            f"\tTopic: {topic.name}\tPartition: {number}"
            f"\tLeader: {partition.leader if partition.leader >= 0 else 'none'}"
            f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
        )
        if moving.is_being_reassigned:
            text += f"\tAdding Replicas: {_ids(moving.adding)}"
            text += f"\tRemoving Replicas: {_ids(moving.removing)}"
        yield text


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
