"""The nodes of topics, each with the topic id, and the creation and deletion of the nodes below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Create, Delete, MultiOp, ZooKeeper
from minikafka.leaders.model import PartitionView, Replicas
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import layout
from minikafka.zk.nodes.reader import NodeReader

DIRECTORY: Final = layout.TOPICS
"""Parent of the topic nodes. The name of each node is the topic's name."""

path_of = layout.topic_path
partition_path = layout.partition_path


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


def removal(topic: str) -> Delete:
    """Return the operation that deletes a topic's node, which must have no partitions any more."""
    return Delete(layout.topic_path(topic), -1)


def assignment(tp: TopicPartition, replicas: Replicas) -> list[MultiOp]:
    """Return the operations that create a partition's node with its replica list, which makes it a partition."""
    return [
        Create(layout.partition_path(tp), b""),
        Create(layout.replicas_path(tp), layout.encode_ids(replicas)),
    ]


def partition_removal(tp: TopicPartition, view: PartitionView) -> list[MultiOp]:
    """Return the operations that delete all nodes of a partition, at the versions in the view.

    The multi fails while the partition has a leader, or has other nodes than those in the view.
    """
    multi: list[MultiOp] = []
    if view.isr is not None:
        multi.append(Delete(layout.isr_path(tp), view.isr.version))
    if view.replicas is not None:
        multi.append(Delete(layout.replicas_path(tp), view.replicas_version))
    return [*multi, Delete(layout.partition_path(tp), -1)]
