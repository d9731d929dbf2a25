"""The nodes of a cluster that is rebuilt after ZooKeeper lost its data.

`/cluster/id` is written last: until then no broker joins, and the writes can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from minikafka.base.coordination import CONTROLLER
from minikafka.base.errors import NoNode
from minikafka.base.model import (
    NO_LEADER,
    BrokerId,
    Epoch,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.ports import Create, MultiOp, ZooKeeper
from minikafka.zookeeper.nodes import configs, coordination, ids, layout, partition_states, topics
from minikafka.zookeeper.nodes.leaders import layout as leaders_layout
from minikafka.zookeeper.nodes.leaders import topics as leaders_topics
from minikafka.zookeeper.nodes.leaders import tree as leaders_tree

_OPS_MAX: Final = 500
_REBUILT: Final = (layout.TOPICS, layout.TOPIC_CONFIGS, leaders_layout.TOPICS)
"""Nodes whose children a repeated recovery removes first."""


class PartitionToWrite(Protocol):
    """A partition to write. See `tools/cluster/recovery/plan.py`."""

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        """The assigned replicas."""

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The in-sync replicas."""

    @property
    def epoch(self) -> Epoch:
        """The leader epoch."""


class TopicToWrite(Protocol):
    """A topic to write."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def topic_id(self) -> bytes:
        """The topic's id, 16 bytes."""

    @property
    def partitions(self) -> Mapping[int, PartitionToWrite]:
        """The topic's partitions by number."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The topic's settings."""


async def has_topics(zookeeper: ZooKeeper) -> bool:
    """True if ZooKeeper has a topic of either mode. Raises CoordinationError."""
    found = await zookeeper.children_many([layout.TOPICS, leaders_layout.TOPICS])
    return any(found)


async def has_brokers(zookeeper: ZooKeeper) -> bool:
    """True if a broker of either mode is registered. Raises CoordinationError."""
    found = await zookeeper.children_many([layout.BROKER_IDS, leaders_layout.BROKER_IDS])
    return any(found)


async def write(
    zookeeper: ZooKeeper,
    mode: str,
    cluster_id: str,
    found: Sequence[TopicToWrite],
    controller_epoch: Epoch,
    producer_ids: tuple[int, int],
) -> None:
    """Write the nodes of a cluster, and remove first those that an interrupted recovery has left.

    Raises CoordinationError.
    """
    for path in (layout.CLUSTER_ID, layout.CONTROLLER_EPOCH, layout.COORDINATION):
        with suppress(NoNode):
            await zookeeper.delete(path, -1)
    for parent in _REBUILT:
        await _remove_below(zookeeper, parent)
    await coordination.claim(zookeeper, mode)
    ensure = coordination.ensure_parents if mode == CONTROLLER else leaders_tree.ensure
    await ensure(zookeeper)
    operations: list[MultiOp] = []
    if mode == CONTROLLER:
        operations.append(Create(layout.CONTROLLER_EPOCH, b"%d" % controller_epoch))
    for topic in found:
        operations += _topic(mode, topic, controller_epoch)
    for some in _groups(operations):
        await zookeeper.multi(some)
    block = layout.encode_producer_ids(0, *producer_ids)
    await zookeeper.set(layout.PRODUCER_ID_BLOCK, block, -1)
    await ids.restore(zookeeper, cluster_id)


def _topic(mode: str, topic: TopicToWrite, controller_epoch: Epoch) -> Iterator[MultiOp]:
    yield configs.write(configs.Entity(configs.TOPICS, topic.name), topic.settings, None)
    if mode == CONTROLLER:
        assignment = {n: ReplicaAssignment(one.replicas) for n, one in topic.partitions.items()}
        yield topics.creation(topic.name, topic.topic_id, assignment)
        yield Create(layout.partitions_path(topic.name), b"")
        for number, one in topic.partitions.items():
            tp = TopicPartition(topic.name, number)
            yield Create(layout.partition_path(tp), b"")
            absent = partition_states.ABSENT
            state = LeaderAndIsr(NO_LEADER, one.epoch, one.isr, controller_epoch, absent)
            yield partition_states.write(tp, state)
        return
    yield leaders_topics.creation(topic.name, topic.topic_id)
    for number, one in topic.partitions.items():
        tp = TopicPartition(topic.name, number)
        yield from leaders_topics.assignment(tp, one.replicas)
        isr = leaders_layout.encode_isr(one.isr, one.epoch)
        yield Create(leaders_layout.isr_path(tp), isr)


def _groups(operations: Iterable[MultiOp]) -> Iterator[list[MultiOp]]:
    every = list(operations)
    for first in range(0, len(every), _OPS_MAX):
        yield every[first : first + _OPS_MAX]


async def _remove_below(zookeeper: ZooKeeper, parent: str) -> None:
    """Remove the children of a node, with everything below them."""
    try:
        names, _ = await zookeeper.children(parent)
    except NoNode:
        return
    for name in names:
        path = f"{parent}/{name}"
        await _remove_below(zookeeper, path)
        await zookeeper.delete(path, -1)
