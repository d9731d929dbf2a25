"""The nodes of topics, each with the topic id, and the creation and deletion of the nodes below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.names import parse_number
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, ZooKeeper
from minikafka.deciders.leaders.model import PartitionView, Replicas
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import layout, partitions
from minikafka.zookeeper.nodes.reader import NodeReader

DIRECTORY: Final = layout.TOPICS
"""Parent of the topic nodes. The name of each node is the topic's name."""

path_of = layout.topic_path
partition_path = layout.partition_path


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic, and its partitions in the order of their numbers.

    `views` also has partitions that are only below the reassignments: their creation has not ended, or has failed.
    """

    name: str
    topic_id: bytes | None
    """None if the topic has no node, or an unreadable one."""
    version: int
    """Version of the topic's node, -1 if it does not exist."""
    views: Mapping[TopicPartition, PartitionView]
    noded: frozenset[TopicPartition]
    """The partitions that have a node below the topic."""

    @property
    def exists(self) -> bool:
        """True if the topic has a node."""
        return self.version >= 0

    @property
    def is_complete(self) -> bool:
        """True if a partition has been created. Otherwise the creation of the topic has not ended, or has failed."""
        return any(view.replicas is not None for view in self.views.values())


async def read(zookeeper: ZooKeeper, topic: str, faults: Faults) -> TopicView:
    """Return the nodes of a topic and its partitions. Raises CoordinationError.

    The topic's node is read first: with its version as a fence, no partition of an earlier topic is acted on.
    """
    path, requests = layout.topic_path(topic), layout.reassignments_path(topic)
    [node] = await zookeeper.get_many([path])
    requested, noded = await zookeeper.children_many([requests, path])
    below = frozenset(_partitions(topic, path, noded, faults))
    tps = sorted(below.union(_partitions(topic, requests, requested, faults)))
    views = await partitions.read_views(zookeeper, tps, zookeeper.session_id, faults)
    topic_id = None
    if node is not None:
        try:
            topic_id = layout.decode_topic(node.data)
        except ValueError as fault:
            faults.report(path, fault)
    return TopicView(topic, topic_id, -1 if node is None else node.stat.version, views, below)


def _partitions(
    topic: str, parent: str, names: Sequence[str] | None, faults: Faults
) -> list[TopicPartition]:
    found = []
    for name in names or ():
        try:
            found.append(TopicPartition(topic, parse_number(name)))
        except ValueError as fault:
            faults.report(f"{parent}/{name}", fault)
    return found


async def names(zookeeper: ZooKeeper) -> list[str]:
    """Return the names of all topics. Raises CoordinationError."""
    found, _ = await zookeeper.children(layout.TOPICS)
    return found


async def read_ids(
    nodes: NodeReader, topics: Sequence[str], faults: Faults
) -> dict[str, bytes | None]:
    """Return the topic ids of the existing topics, None for an unreadable one. Raises CoordinationError."""
    found = await nodes.get_many([layout.topic_path(topic) for topic in topics])
    ids: dict[str, bytes | None] = {}
    for topic, node in zip(topics, found, strict=True):
        if node is None:
            continue
        try:
            ids[topic] = layout.decode_topic(node.data)
        except ValueError as fault:
            faults.report(layout.topic_path(topic), fault)
            ids[topic] = None
    return ids


def creation(topic: str, topic_id: bytes) -> Create:
    """Return the operation that creates a topic's node."""
    return Create(layout.topic_path(topic), layout.encode_topic(topic_id))


def removal(topic: str, version: int) -> Delete:
    """Return the operation that deletes a topic's node, which must have no partitions any more."""
    return Delete(layout.topic_path(topic), version)


def fence(topic: str, version: int) -> Check:
    """Return the check that nobody has taken over the topic, or created it again, since this version was read."""
    return Check(layout.topic_path(topic), version)


def takeover(topic: str, topic_id: bytes, version: int) -> Set:
    """Return the operation after which every write fails that has the fence of this version."""
    return Set(layout.topic_path(topic), layout.encode_topic(topic_id), version)


def assignment(tp: TopicPartition, replicas: Replicas) -> tuple[Create, Create]:
    """Return the operations that create a partition's node, and its replica list, which makes it a partition."""
    return (
        Create(layout.partition_path(tp), b""),
        Create(layout.replicas_path(tp), layout.encode_ids(replicas)),
    )


def partition_removal(
    tp: TopicPartition, view: PartitionView, *, has_node: bool = True
) -> list[MultiOp]:
    """Return the operations that delete all nodes of a partition and its request, at the versions in the view.

    The multi fails while the partition has a leader, or has other nodes than those in the view. `has_node`: the
    partition has a node below its topic.
    """
    multi: list[MultiOp] = []
    if view.isr is not None:
        multi.append(Delete(layout.isr_path(tp), view.isr.version))
    if view.replicas is not None:
        multi.append(Delete(layout.replicas_path(tp), view.replicas_version))
    if has_node:
        multi.append(Delete(layout.partition_path(tp), -1))
    if view.reassignment is not None:
        multi.append(Delete(layout.reassignment_path(tp), view.reassignment.version))
    return multi
