"""Functions that read ZooKeeper's data about one partition in a separate session, without writes or watches."""

from __future__ import annotations

import asyncio
from typing import Final

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.base.model import (
    NO_EPOCH,
    NO_LEADER,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.ports import Clock, Rng, Znode, ZooKeeper
from minikafka.deciders.leaders.model import PartitionView
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.explain.evidence import Nodes
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess
from minikafka.zookeeper.client.client import ZooKeeperClient
from minikafka.zookeeper.nodes import (
    admin_requests,
    coordination,
    election,
    layout,
    partition_states,
    registrations,
    topics,
)
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import partitions, queues, tree

TIMEOUT_MS: Final = 1_500
_SESSION_TIMEOUT_MS: Final = 6_000
_NO_SESSION: Final = -1


async def read_nodes(
    connect: str, tp: TopicPartition, clock: Clock, rng: Rng, access: ZooKeeperAccess = OPEN_ACCESS
) -> Nodes | None:
    """Return ZooKeeper's data about the partition, None if ZooKeeper does not answer within TIMEOUT_MS.

    `connect`: host:port[/chroot]. `access`: encryption and authentication.
    """
    tasks = TaskRegistry()
    zookeeper = ZooKeeperClient(
        connect, _SESSION_TIMEOUT_MS, clock, rng, tasks, SocketTransport(), access=access
    )
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
    if await coordination.read(zookeeper) == coordination.LEADERS:
        return await nodes_of_leaders(zookeeper, tp)
    paths = [
        layout.topic_path(tp.topic),
        layout.delete_topic_path(tp.topic),
        layout.REASSIGN_PARTITIONS,
    ]
    topic, mark, reassignments = await zookeeper.get_many(paths)
    faults = Faults()
    names = await _children(zookeeper, layout.BROKER_IDS)
    return Nodes(
        controller=await _controller(zookeeper),
        brokers=tuple(sorted(registrations.ids(names, faults))),
        assignment=_assignment(topic, tp),
        state=(await partition_states.read(zookeeper, [tp], faults)).get(tp),
        is_marked=mark is not None,
        target=admin_requests.targets(reassignments, faults).get(tp),
    )


async def nodes_of_leaders(zookeeper: ZooKeeper, tp: TopicPartition) -> Nodes:
    """Return ZooKeeper's data about the partition in the leader-coordinated mode. Raises CoordinationError."""
    faults = Faults()
    view = (await partitions.read_views(zookeeper, [tp], _NO_SESSION, faults))[tp]
    names = await _children(zookeeper, tree.REGISTRATIONS)
    queued = queues.brokers(await _children(zookeeper, queues.DIRECTORY), faults)
    backlog = {id_: len(await _children(zookeeper, queues.path_of(id_))) for id_ in queued}
    requested = view.reassignment.replicas if view.reassignment else None
    assignment = None if view.replicas is None else ReplicaAssignment(view.replicas)
    if assignment is not None and requested:
        assignment = assignment.reassigned_to(requested)
    return Nodes(
        controller=None,
        brokers=tuple(sorted(registrations.ids(names, faults))),
        assignment=assignment,
        state=_state(view),
        is_marked=view.is_being_deleted,
        target=None,
        coordination=coordination.LEADERS,
        is_being_created=assignment is None and bool(requested),
        backlog=backlog,
        faults=faults.found,
    )


def _state(view: PartitionView) -> LeaderAndIsr | None:
    """Return the leader and the ISR of a partition, None before its first leader."""
    if view.isr is None:
        return None
    leader = NO_LEADER if view.leader is None else view.leader.broker_id
    return LeaderAndIsr(leader, view.isr.epoch, view.isr.ids, NO_EPOCH, view.isr.version)


async def _children(zookeeper: ZooKeeper, path: str) -> list[str]:
    try:
        names, _ = await zookeeper.children(path)
    except NoNode:
        return []
    return names


async def _controller(zookeeper: ZooKeeper) -> int | None:
    try:
        found = await election.read_controller(zookeeper)
    except ValueError:
        return None
    return None if found is None else found.broker_id


def _assignment(node: Znode | None, tp: TopicPartition) -> ReplicaAssignment | None:
    try:
        return topics.decode(node.data).assignment.get(tp.partition) if node else None
    except ValueError:
        return None
