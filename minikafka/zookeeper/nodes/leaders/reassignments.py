"""The nodes of reassignments, each with the new replicas of one partition, or empty for a deletion.

An administrator creates them, with any ZooKeeper client; the partition's leader removes them. A new node always has
version 0. An administrator who withdraws or replaces a reassignment therefore writes the replica list again, unchanged,
in the same multi: its new version makes a completion fail that the leader has decided before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.names import parse_number
from minikafka.base.ports import Create, Delete, MultiOp, Set, ZooKeeper
from minikafka.deciders.leaders.model import PartitionView, Replicas
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import layout
from minikafka.zookeeper.nodes.reader import NodeReader

DIRECTORY: Final = layout.REASSIGNMENTS
"""Parent of the topics' parents."""

path_of = layout.reassignment_path
parent_of = layout.reassignments_path


async def ensure_parent(zookeeper: ZooKeeper, topic: str) -> None:
    """Create the parent of a topic's reassignments if it does not exist. Raises CoordinationError."""
    await zookeeper.ensure(layout.reassignments_path(topic))


async def read_writes(
    nodes: NodeReader, topic: str, names: Sequence[str], faults: Faults
) -> dict[TopicPartition, int]:
    """Return the zxid of the last write of each request that exists among `names`, the children of a topic's parent.

    Other names are reported to `faults`. Raises CoordinationError.
    """
    tps = []
    for name in names:
        try:
            tps.append(TopicPartition(topic, parse_number(name)))
        except ValueError as fault:
            faults.report(f"{layout.reassignments_path(topic)}/{name}", fault)
    found = await nodes.get_many([layout.reassignment_path(tp) for tp in tps])
    return {tp: node.stat.mzxid for tp, node in zip(tps, found, strict=True) if node is not None}


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
