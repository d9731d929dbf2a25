"""Functions that read ZooKeeper's data about one partition in a separate session, without writes or watches."""

from __future__ import annotations

import asyncio
from typing import Final

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.base.ports import Clock, Node, Rng, ZooKeeper
from minikafka.explain.picture import Nodes
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zk.client import ZooKeeperClient
from minikafka.zk.nodes import (
    admin_requests,
    election,
    partition_states,
    registrations,
    topics,
)
from minikafka.zk.nodes.faults import Faults

TIMEOUT_MS: Final = 1_500
_SESSION_TIMEOUT_MS: Final = 6_000


async def read_nodes(connect: str, tp: TopicPartition, clock: Clock, rng: Rng) -> Nodes | None:
    """Return ZooKeeper's data about the partition, None if ZooKeeper does not answer within TIMEOUT_MS.

    `connect`: host:port[/chroot].
    """
    tasks = TaskRegistry()
    zookeeper = ZooKeeperClient(connect, _SESSION_TIMEOUT_MS, clock, rng, tasks)
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await zookeeper.start()
            nodes = await nodes_of(zookeeper, tp)
            await zookeeper.close()
            return nodes
    except (CoordinationError, OSError, TimeoutError):
        return None
    finally:
        await tasks.close()


async def nodes_of(zookeeper: ZooKeeper, tp: TopicPartition) -> Nodes:
    """Return ZooKeeper's data about the partition. An absent or unreadable node gives the value None.

    Raises CoordinationError.
    """
    paths = [
        topics.path_of(tp.topic),
        admin_requests.deletion_path(tp.topic),
        admin_requests.REASSIGNMENTS,
    ]
    topic, mark, reassignments = await zookeeper.get_many(paths)
    faults = Faults()
    try:
        names, _ = await zookeeper.children(registrations.DIRECTORY)
    except NoNode:
        names = []
    return Nodes(
        controller=await _controller(zookeeper),
        brokers=tuple(sorted(registrations.ids(names, faults))),
        assignment=_assignment(topic, tp),
        state=(await partition_states.read(zookeeper, [tp], faults)).get(tp),
        is_marked=mark is not None,
        target=admin_requests.targets(reassignments, faults).get(tp),
    )


async def _controller(zookeeper: ZooKeeper) -> int | None:
    try:
        found = await election.read_controller(zookeeper)
    except ValueError:
        return None
    return None if found is None else found.broker_id


def _assignment(node: Node | None, tp: TopicPartition) -> ReplicaAssignment | None:
    try:
        return topics.decode(node.data).assignment.get(tp.partition) if node else None
    except ValueError:
        return None
