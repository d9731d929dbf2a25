"""The nodes of reassignments, each with the new replicas of one partition, or empty for a deletion.

An administrator creates them, with any ZooKeeper client; the partition's leader removes them. A new node always has
version 0. An administrator who withdraws or replaces a reassignment therefore writes the replica list again, unchanged,
in the same multi: its new version makes a completion fail that the leader has decided before.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Create, Delete, MultiOp, Set, ZooKeeper
from minikafka.leaders.model import PartitionView, Replicas
from minikafka.zk.nodes.leaders import layout

DIRECTORY: Final = layout.REASSIGNMENTS
"""Parent of the topics' parents."""

path_of = layout.reassignment_path
parent_of = layout.reassignments_path


async def ensure_parent(zookeeper: ZooKeeper, topic: str) -> None:
    """Create the parent of a topic's reassignments if it does not exist. Raises CoordinationError."""
    await zookeeper.ensure(layout.reassignments_path(topic))


def request(tp: TopicPartition, replicas: Replicas) -> Create:
    """Return the operation that requests a reassignment; no replicas: the deletion of the partition.

    It fails while the partition has an earlier request.
    """
    return Create(layout.reassignment_path(tp), layout.encode_ids(replicas))


def replacement(tp: TopicPartition, view: PartitionView, replicas: Replicas) -> list[MultiOp]:
    """Return the multi that replaces the reassignment in the view. The watch of the leader fires."""
    return [*withdrawal(tp, view), request(tp, replicas)]


def withdrawal(tp: TopicPartition, view: PartitionView) -> list[MultiOp]:
    """Return the multi that removes the reassignment in the view without having carried it out."""
    assert view.reassignment is not None
    multi: list[MultiOp] = [removal(tp, view.reassignment.version)]
    if view.replicas is not None:
        same = layout.encode_ids(view.replicas)
        multi.append(Set(layout.replicas_path(tp), same, view.replicas_version))
    return multi


def removal(tp: TopicPartition, version: int) -> Delete:
    """Return the operation that removes a request that has been carried out."""
    return Delete(layout.reassignment_path(tp), version)


def parent_removal(topic: str) -> Delete:
    """Return the operation that removes the parent of a deleted topic's reassignments."""
    return Delete(layout.reassignments_path(topic), -1)
