"""The output of `topics describe`: lines in the format of kafka-topics.sh, or JSON.

A partition is under-replicated if a replica is not in the ISR. Replicas that a reassignment is still adding are
ignored.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.base.names import ids
from minikafka.client import PartitionInfo, TopicInfo
from minikafka.client.administration.admin import Admin
from minikafka.client.administration.results import ConfigSource, Resource, ResourceType
from minikafka.tools.cli.terminal.topic_errors import unknown_topics

NOT_MOVING = ReplicaAssignment(())


class TopicsView(NamedTuple):
    """Topics, the topic-level settings of each topic, and the reassignments in progress."""

    topics: Sequence[TopicInfo]
    configs: Mapping[str, Mapping[str, str]]
    moving: Mapping[TopicPartition, ReplicaAssignment]

    def only(self, *, under_replicated: bool, unavailable: bool) -> TopicsView:
        """Return a view with only the partitions that match one of the given conditions, and their topics."""
        topics = []
        for topic in self.topics:
            kept = {
                number: partition
                for number, partition in topic.partitions.items()
                if (under_replicated and self.is_under_replicated(topic.name, partition))
                or (unavailable and partition.leader < 0)
            }
            if kept:
                topics.append(topic._replace(partitions=kept))
        return self._replace(topics=topics)

    def is_under_replicated(self, topic: str, partition: PartitionInfo) -> bool:
        """True if a replica is missing from the ISR; replicas that are being added are ignored."""
        adding = self.reassignment_of(topic, partition.partition).adding
        return bool(set(partition.replicas) - set(adding) - set(partition.isr))

    def reassignment_of(self, topic: str, number: int) -> ReplicaAssignment:
        """Return the reassignment of a partition; NOT_MOVING if the partition is not being reassigned."""
        return self.moving.get(TopicPartition(topic, number), NOT_MOVING)


async def read_topics(admin: Admin, names: Sequence[str]) -> TopicsView:
    """Return these topics; if `names` is empty, all topics. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION).

    Without a controller the view contains only the metadata of one broker, no settings and no reassignments.
    """
    cluster, topics_found = await admin.describe(names or None)
    known = {topic.name: topic for topic in topics_found}
    if cluster.controller_id >= 0 and names:
        known |= await admin.describe_topics(names)
    missing = [name for name in names if name not in known]
    if missing:
        raise unknown_topics(missing)
    topics = [known[name] for name in dict.fromkeys(names)] if names else list(known.values())
    if cluster.controller_id < 0:
        return TopicsView(topics, {}, {})
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
    return TopicsView(topics, configs, await admin.list_reassignments())


def topic_id(topic: TopicInfo) -> str:
    """Return the topic id in the format of Kafka's tools: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")


def as_json_topic(topic: TopicInfo, view: TopicsView) -> dict[str, Any]:
    """Return the JSON object of one topic; `leader` is null in partitions without a leader."""
    return {
        "topic": topic.name,
        "topic_id": topic_id(topic),
        "internal": topic.is_internal,
        "configs": dict(view.configs.get(topic.name, {})),
        "partitions": [
            {
                "partition": number,
                "leader": partition.leader if partition.leader >= 0 else None,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "adding": list(view.reassignment_of(topic.name, number).adding),
                "removing": list(view.reassignment_of(topic.name, number).removing),
            }
            for number, partition in sorted(topic.partitions.items())
        ],
    }


def lines(topic: TopicInfo, view: TopicsView, *, with_header: bool) -> Iterator[str]:
    """Yield lines in the format of kafka-topics.sh, so that existing scripts can parse the lines."""
    if with_header:
        factor = max((len(p.replicas) for p in topic.partitions.values()), default=0)
        configs = ",".join(f"{k}={v}" for k, v in view.configs.get(topic.name, {}).items())
        yield (
            f"Topic: {topic.name}\tTopicId: {topic_id(topic)}"
            f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}"
            f"\tConfigs: {configs}"
        )
    for number, partition in sorted(topic.partitions.items()):
        moving = view.reassignment_of(topic.name, number)
        text = (
            f"\tTopic: {topic.name}\tPartition: {number}"
            f"\tLeader: {partition.leader if partition.leader >= 0 else 'none'}"
            f"\tReplicas: {ids(partition.replicas)}\tIsr: {ids(partition.isr)}"
        )
        if moving.is_being_reassigned:
            text += f"\tAdding Replicas: {ids(moving.adding)}"
            text += f"\tRemoving Replicas: {ids(moving.removing)}"
        yield text
