"""Partition states: the leader and ISR of each partition, in a node below its topic's node (A10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.ports import Create, Set
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import NodeReader

ABSENT: Final = -1
"""The `state_version` of a state whose node does not exist yet."""


def parents_of(tp: TopicPartition) -> tuple[str, str]:
    """Return the paths of the two nodes directly above a partition's state node, the upper node first."""
    return layout.partitions_path(tp.topic), layout.partition_path(tp)


def write(tp: TopicPartition, state: LeaderAndIsr) -> Create | Set:
    """Return the operation that writes a partition's state if the node has the version `state.state_version`.

    The operation creates the node if the version is `ABSENT`.
    """
    path, data = layout.state_path(tp), layout.encode_state(state)
    return (
        Create(path, data)
        if state.state_version == ABSENT
        else Set(path, data, state.state_version)
    )


async def read(
    nodes: NodeReader, partitions: Sequence[TopicPartition], faults: Faults
) -> dict[TopicPartition, LeaderAndIsr]:
    """Return the state of each partition that has a readable state node. Report unreadable nodes to `faults`.

    Raises CoordinationError.
    """
    found = await nodes.get_many([layout.state_path(tp) for tp in partitions])
    states = {}
    for tp, node in zip(partitions, found, strict=True):
        if node is None:
            continue
        try:
            states[tp] = layout.decode_state(node.data, node.stat.version)
        except ValueError as fault:
            faults.report(layout.state_path(tp), fault)
    return states
