"""Administrators' requests to the controller under `/admin`: deletions, reassignments, preferred elections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeAlias

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Create, Delete, Set, Znode
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults

Targets: TypeAlias = dict[TopicPartition, tuple[BrokerId, ...]]
"""Target replicas by partition."""


def deletion_paths(topics: Iterable[str]) -> list[str]:
    """Return the paths of the nodes that mark these topics for deletion."""
    return [layout.delete_topic_path(topic) for topic in topics]


def deletion_mark(topic: str) -> Create:
    """Return the operation that marks a topic for deletion."""
    return Create(layout.delete_topic_path(topic), b"")


def targets(node: Znode | None, faults: Faults) -> Targets:
    """Return the requested reassignments in the node `/admin/reassign_partitions`; report unreadable parts to `faults`.

    `node`: the node's data and Stat, None if the node is absent. If `node` is None, return {}.
    """
    if node is None:
        return {}
    try:
        return layout.decode_reassignments(
            node.data, partial(faults.report, layout.REASSIGN_PARTITIONS)
        )
    except ValueError as fault:
        faults.report(layout.REASSIGN_PARTITIONS, fault)
        return {}


def reassignments(plan: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Create:
    """Return the operation that requests these reassignments by creating the node `/admin/reassign_partitions`.

    The operation fails while the node exists, because the existing node contains an earlier request.
    """
    return Create(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(plan))


def extended(node: Znode, plan: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Set:
    """Return the operation that adds these reassignments to the request in the node `/admin/reassign_partitions`.

    The operation fails if the node's version is no longer the version in `node`.
    """
    wanted = targets(node, Faults()) | dict(plan)
    return Set(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(wanted), node.stat.version)


def asks_for(node: Znode | None, plan: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> bool:
    """Return True if the node `/admin/reassign_partitions` still contains every reassignment in `plan`."""
    if node is None:
        return False
    try:
        wanted = layout.decode_reassignments(node.data, _ignore)
    except ValueError:
        return False
    return all(wanted.get(tp) == target for tp, target in plan.items())


def without(
    node: Znode, finished: Mapping[TopicPartition, tuple[BrokerId, ...]]
) -> Set | Delete | None:
    """Return the operation that removes the finished reassignments from the node `/admin/reassign_partitions`.

    A partition stays in the node if its target in the node differs from its target in `finished`. The node is
    deleted if no partition is left or the node is not readable. The operation fails if the node's version is no
    longer the version in `node`. Return None if there is nothing to remove.
    """
    try:
        wanted = layout.decode_reassignments(node.data, _ignore)
    except ValueError:
        wanted = {}
    left = {tp: target for tp, target in wanted.items() if finished.get(tp) != target}
    if not left:
        return Delete(layout.REASSIGN_PARTITIONS, node.stat.version)
    if left == wanted:
        return None
    return Set(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(left), node.stat.version)


def _ignore(_: ValueError) -> None:
    """Ignore the fault of a skipped partition, because `targets` reports this fault."""


def preferred_election(node: Znode | None, faults: Faults) -> tuple[TopicPartition, ...] | None:
    """Return the partitions in the node `/admin/preferred_replica_election`; report unreadable parts to `faults`.

    `node`: the node's data and Stat, None if the node is absent. If `node` is None, return None.
    """
    if node is None:
        return None
    skip = partial(faults.report, layout.PREFERRED_ELECTION)
    try:
        return tuple(layout.decode_preferred_election(node.data, skip))
    except ValueError as fault:
        skip(fault)
        return ()
