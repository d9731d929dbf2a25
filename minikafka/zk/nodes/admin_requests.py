"""Requests that administrators leave under `/admin` for the controller: deletions, reassignments, elections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Create, Delete, Node, Set
from minikafka.zk import layout
from minikafka.zk.nodes.faults import Faults

DELETIONS: Final = layout.DELETE_TOPICS
"""Parent of the deletion marks; each is named after the topic to delete (A13)."""
REASSIGNMENTS: Final = layout.REASSIGN_PARTITIONS
"""Node with the target replicas of partitions to reassign (A11)."""
PREFERRED_ELECTION: Final = layout.PREFERRED_ELECTION
"""Node with the partitions whose preferred replicas should lead again (A12)."""

Targets: TypeAlias = dict[TopicPartition, tuple[BrokerId, ...]]
"""Target replicas by partition."""


def deletion_path(topic: str) -> str:
    """Return the path of the node that marks a topic for deletion."""
    return layout.delete_topic_path(topic)


def deletion_paths(topics: Iterable[str]) -> list[str]:
    """Return the paths of the nodes that mark these topics for deletion."""
    return [layout.delete_topic_path(topic) for topic in topics]


def deletion_mark(topic: str) -> Create:
    """Return the operation that marks a topic for deletion."""
    return Create(layout.delete_topic_path(topic), b"")


def targets(node: Node | None, faults: Faults) -> Targets:
    """Return the reassignments in `REASSIGNMENTS`, {} if it is absent; report unreadable parts."""
    if node is None:
        return {}
    try:
        return layout.decode_reassignments(node.data, partial(faults.report, REASSIGNMENTS))
    except ValueError as fault:
        faults.report(REASSIGNMENTS, fault)
        return {}


def reassignments(plan: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Create:
    """Return the operation that asks the controller for these reassignments by creating `REASSIGNMENTS`.

    The operation fails while the node exists, because it holds an earlier request.
    """
    return Create(REASSIGNMENTS, layout.encode_reassignments(plan))


def asks_for(node: Node | None, plan: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> bool:
    """Return True if `REASSIGNMENTS`, as read, still asks for each of these targets."""
    if node is None:
        return False
    try:
        wanted = layout.decode_reassignments(node.data, _ignore)
    except ValueError:
        return False
    return all(wanted.get(tp) == target for tp, target in plan.items())


def without(
    node: Node, finished: Mapping[TopicPartition, tuple[BrokerId, ...]]
) -> Set | Delete | None:
    """Return the operation that removes finished reassignments from `REASSIGNMENTS`, at the node's version.

    A partition stays if the node asks for another target than `finished`. The node is deleted when no
    partition is left, and when it is not readable. Return None when there is nothing to remove.
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
    """Ignore the fault of a skipped partition: it was reported when the node was read."""


def preferred_election(node: Node | None, faults: Faults) -> tuple[TopicPartition, ...] | None:
    """Return the partitions in `PREFERRED_ELECTION`, None if it is absent; report unreadable parts."""
    if node is None:
        return None
    skip = partial(faults.report, PREFERRED_ELECTION)
    try:
        return tuple(layout.decode_preferred_election(node.data, skip))
    except ValueError as fault:
        skip(fault)
        return ()
