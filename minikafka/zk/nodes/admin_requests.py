"""Requests that administrators leave under `/admin` for the controller: deletions, reassignments, elections."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Create, Delete, Set
from minikafka.zk import layout
from minikafka.zk.nodes.reader import Node

logger = logging.getLogger(__name__)

DELETIONS: Final = layout.DELETE_TOPICS
"""Its children are the names of the topics marked for deletion (A13)."""
REASSIGNMENTS: Final = layout.REASSIGN_PARTITIONS
"""Holds the target replicas of partitions to reassign (A11)."""
PREFERRED_ELECTION: Final = layout.PREFERRED_ELECTION
"""Holds the partitions to give back to their preferred replicas (A12)."""

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


def targets(node: Node | None) -> Targets:
    """Return the reassignments asked for by `REASSIGNMENTS`: none if it is absent, or not readable, which is logged."""
    try:
        return layout.decode_reassignments(node[0]) if node is not None else {}
    except ValueError as error:
        logger.error("%s is not readable: %s", layout.REASSIGN_PARTITIONS, error)
        return {}


def without(
    node: Node, finished: Mapping[TopicPartition, tuple[BrokerId, ...]]
) -> Set | Delete | None:
    """Return the operation that takes finished reassignments out of `REASSIGNMENTS`, at the node's version.

    A reassignment is finished if the node still asks for the target in `finished`. The node is deleted when none is
    left, and when it is not readable. None when there is nothing to take out.
    """
    try:
        wanted = layout.decode_reassignments(node[0])
    except ValueError:
        wanted = {}
    left = {tp: target for tp, target in wanted.items() if finished.get(tp) != target}
    if not left:
        return Delete(layout.REASSIGN_PARTITIONS, node[1].version)
    if left == wanted:
        return None
    return Set(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(left), node[1].version)


def preferred_election(node: Node | None) -> tuple[TopicPartition, ...] | None:
    """Return the partitions named by `PREFERRED_ELECTION`: None if it is absent, none if it is not readable."""
    if node is None:
        return None
    try:
        return tuple(layout.decode_preferred_election(node[0]))
    except ValueError as error:
        logger.error("%s is not readable: %s", layout.PREFERRED_ELECTION, error)
        return ()
