"""ZooKeeper's data about one partition, read in a session of its own without writes or watches."""

from __future__ import annotations

import asyncio
from typing import Final

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Clock, Coordination, Rng, Stat
from minikafka.explain.picture import Nodes
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zk import layout
from minikafka.zk.coordination import ZooKeeperCoordination

TIMEOUT_MS: Final = 3_000
_SESSION_TIMEOUT_MS: Final = 6_000
_Node = tuple[bytes, Stat] | None


async def read_nodes(connect: str, tp: TopicPartition, clock: Clock, rng: Rng) -> Nodes | None:
    """Read the partition's nodes; None if ZooKeeper does not answer in time. `connect` is
    host:port[/chroot].
    """
    tasks = TaskRegistry()
    coordination = ZooKeeperCoordination(connect, _SESSION_TIMEOUT_MS, clock, rng, tasks)
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await coordination.start()
            nodes = await nodes_of(coordination, tp)
            await coordination.close()
            return nodes
    except (CoordinationError, OSError, TimeoutError):
        return None
    finally:
        await tasks.close()


async def nodes_of(coordination: Coordination, tp: TopicPartition) -> Nodes:
    """Read the partition's nodes in an open session. Raises CoordinationError."""
    paths = [
        layout.CONTROLLER,
        layout.topic_path(tp.topic),
        layout.state_path(tp),
        layout.delete_topic_path(tp.topic),
        layout.REASSIGN_PARTITIONS,
    ]
    controller, topic, state, mark, reassignments = await coordination.get_many(paths)
    try:
        brokers, _ = await coordination.children(layout.BROKER_IDS)
    except NoNode:
        brokers = []
    return Nodes(
        controller=_controller(controller),
        brokers=tuple(sorted(int(name) for name in brokers if name.isdigit())),
        assignment=_assignment(topic, tp),
        state=_state(state),
        is_marked=mark is not None,
        target=_target(reassignments, tp),
    )


def _controller(node: _Node) -> int | None:
    try:
        return layout.decode_controller(node[0]) if node else None
    except ValueError:
        return None


def _assignment(node: _Node, tp: TopicPartition) -> ReplicaAssignment | None:
    try:
        return layout.decode_topic(node[0])[1].get(tp.partition) if node else None
    except ValueError:
        return None


def _state(node: _Node) -> LeaderAndIsr | None:
    try:
        return layout.decode_state(node[0], node[1].version) if node else None
    except ValueError:
        return None


def _target(node: _Node, tp: TopicPartition) -> tuple[int, ...] | None:
    try:
        return layout.decode_reassignments(node[0]).get(tp) if node else None
    except ValueError:
        return None
