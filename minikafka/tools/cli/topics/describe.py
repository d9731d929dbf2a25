"""`topics describe`: partitions in the format of kafka-topics.sh, or as JSON.

A partition is under-replicated if a replica is not in the ISR. Replicas that a reassignment is still adding are
ignored.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import click

import minikafka.client as clients
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.base.names import ids
from minikafka.client import PartitionInfo, TopicInfo
from minikafka.client.administration.admin import Admin
from minikafka.client.administration.results import ConfigSource, Resource, ResourceType
from minikafka.tools.cli.arguments.options import client_options, topics_argument
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, labelled, objects
from minikafka.tools.cli.terminal.echo import show
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


class _Row(NamedTuple):
    """A row of `topics describe`."""

    topic: str
    info: PartitionInfo
    moving: ReplicaAssignment


def _partitions(topic: TopicInfo, view: TopicsView) -> list[_Row]:
    return [
        _Row(topic.name, one, view.reassignment_of(topic.name, number))
        for number, one in sorted(topic.partitions.items())
    ]


_MOVE: Final = (
    Column("Adding Replicas", "adding", lambda row: list(row.moving.adding), text=ids),
    Column("Removing Replicas", "removing", lambda row: list(row.moving.removing), text=ids),
)


_PARTITION: Final = (
    Column("Topic", "", attrgetter("topic")),
    Column("Partition", "partition", attrgetter("info.partition")),
    Column(
        "Leader",
        "leader",
        lambda row: None if row.info.leader < 0 else row.info.leader,
        text=lambda leader: "none" if leader is None else str(leader),
    ),
    Column("", "leader_epoch", attrgetter("info.leader_epoch")),
    Column("Replicas", "replicas", lambda row: list(row.info.replicas), text=ids),
    Column("Isr", "isr", lambda row: list(row.info.isr), text=ids),
)


def _topic(view: TopicsView) -> tuple[Column, ...]:
    """Return the columns of topics. A row is a `TopicInfo`."""
    return (
        Column("Topic", "topic", attrgetter("name")),
        Column("TopicId", "topic_id", topic_id),
        Column("", "internal", attrgetter("is_internal")),
        Column("PartitionCount", "", lambda topic: len(topic.partitions)),
        Column(
            "ReplicationFactor",
            "",
            lambda topic: max((len(one.replicas) for one in topic.partitions.values()), default=0),
        ),
        Column(
            "Configs",
            "configs",
            lambda topic: dict(view.configs.get(topic.name, {})),
            text=lambda configs: ",".join(f"{key}={value}" for key, value in configs.items()),
        ),
        Column(
            "", "partitions", lambda topic: objects((*_PARTITION, *_MOVE), _partitions(topic, view))
        ),
    )


def as_json_topic(topic: TopicInfo, view: TopicsView) -> dict[str, Any]:
    """Return the JSON object of one topic; `leader` is null in partitions without a leader."""
    return objects(_topic(view), [topic])[0]


def lines(topic: TopicInfo, view: TopicsView, *, with_header: bool) -> Iterator[str]:
    """Yield lines in the format of kafka-topics.sh, so that existing scripts can parse the lines."""
    if with_header:
        yield labelled(_topic(view), topic)
    for row in _partitions(topic, view):
        move = _MOVE if row.moving.is_being_reassigned else ()
        yield "\t" + labelled((*_PARTITION, *move), row)


@click.command()
@topics_argument(required=False)
@click.option(
    "--under-replicated", is_flag=True, help="Only partitions with a replica outside the ISR."
)
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@client_options
def describe(topics: tuple[str, ...], under_replicated: bool, unavailable: bool) -> None:
    """Show partitions, leaders, replicas and ISRs of each TOPIC (default: all)."""

    async def work(client: clients.Client) -> TopicsView:
        return await read_topics(client.admin, topics)

    view = run_with_client(work)
    filtered = under_replicated or unavailable
    if filtered:
        view = view.only(under_replicated=under_replicated, unavailable=unavailable)
    show(
        [as_json_topic(topic, view) for topic in view.topics],
        (line for t in view.topics for line in lines(t, view, with_header=not filtered)),
    )
