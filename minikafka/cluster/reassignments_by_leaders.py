"""Reassignment requests in `/leaders/brokers/partitions_reassigned`, for a cluster without a controller.

Each partition has a node of its own, which its leader removes when the move has completed. Invariant: the nodes of one
plan are created together or not at all. `take_back` removes only requests of partitions without a leader, which nobody
has begun to carry out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from minikafka.base.errors import MultiFailed, NodeExists
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.base.ports import Clock, Rng, WatchKind, ZooKeeper
from minikafka.cluster.directory import ClusterError
from minikafka.cluster.reassign_node import (
    Plan,
    ReassignmentNode,
    check_alive,
)
from minikafka.cluster.zookeeper_session import zookeeper_session
from minikafka.leaders.model import PartitionView
from minikafka.zk.nodes import coordination
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import partitions, reassignments, tree

_NO_SESSION: Final = -1


class ReassignmentsByLeaders:
    """The nodes that reassign the partitions of one plan. Methods raise CoordinationError."""

    receiver: Final = "the leaders"
    place: Final = reassignments.DIRECTORY

    def __init__(self, zookeeper: ZooKeeper, plan: Plan) -> None:
        self._zookeeper = zookeeper
        self._plan = plan

    async def assignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the current assignments of the plan's partitions; unknown partitions are left out."""
        return {
            tp: assigned.reassigned_to(view.reassignment.replicas)
            if view.reassignment and view.reassignment.replicas
            else assigned
            for tp, view in (await self._views()).items()
            if view.replicas is not None and (assigned := ReplicaAssignment(view.replicas))
        }

    async def submit(self) -> None:
        """Create the request of every partition, in one multi.

        Raises ClusterError if a partition has a request or does not exist, or if a target broker is not registered.
        """
        await check_alive(self._zookeeper, tree.REGISTRATIONS, self._plan)
        views = await self._views()
        if unknown := [tp for tp, view in views.items() if view.replicas is None]:
            raise ClusterError(f"there is no partition {', '.join(map(str, unknown))}")
        for topic in dict.fromkeys(tp.topic for tp in self._plan):
            await reassignments.ensure_parent(self._zookeeper, topic)
        creates = [reassignments.request(tp, target) for tp, target in self._plan.items()]
        try:
            await self._zookeeper.multi(creates)
        except (MultiFailed, NodeExists):
            moving = [tp for tp, view in (await self._views()).items() if view.reassignment]
            names = ", ".join(map(str, moving)) or "a partition"
            raise ClusterError(
                f"{names} has a request in {self.place}: another reassignment or deletion is in progress; wait until "
                "it has ended (minikafka reassign --list), or leave --via-zookeeper out"
            ) from None

    async def finished(self) -> None:
        """Wait until the leaders have removed every request of the plan."""
        for tp in self._plan:
            path = reassignments.path_of(tp)
            while True:
                watch = self._zookeeper.watch(WatchKind.EXISTS, path)
                if await self._zookeeper.exists(path, watch=True) is None:
                    break
                await watch.wait()

    async def take_back(self) -> list[TopicPartition]:
        """Remove the requests of partitions that have no leader; return these partitions."""
        taken = []
        for tp, view in (await self._views()).items():
            request = view.reassignment
            if request is None or request.replicas != self._plan[tp] or view.leader is not None:
                continue
            try:
                await self._zookeeper.multi(reassignments.withdrawal(tp, view))
            except MultiFailed:
                continue  # since the read, a leader has begun or ended the reassignment
            taken.append(tp)
        return taken

    async def _views(self) -> Mapping[TopicPartition, PartitionView]:
        return await partitions.read_views(self._zookeeper, self._plan, _NO_SESSION, Faults())


@asynccontextmanager
async def reassignment_request(
    connect: str, plan: Plan, clock: Clock, rng: Rng
) -> AsyncIterator[ReassignmentNode | ReassignmentsByLeaders]:
    """Yield the request of a plan, for the cluster's mode, with a session that ends with the `with` block.

    `connect`: host:port[/chroot]. Raises ClusterError and ConfigError.
    """
    async with zookeeper_session(connect, clock, rng) as zookeeper:
        is_led = await coordination.read(zookeeper) == coordination.LEADERS
        yield (ReassignmentsByLeaders if is_led else ReassignmentNode)(zookeeper, plan)
