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
from minikafka.deciders.leaders.model import PartitionView
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.zookeeper.reassign_node import (
    OtherRequest,
    Plan,
    ReassignmentNode,
    check_alive,
)
from minikafka.tools.cluster.zookeeper.session import zookeeper_session
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess
from minikafka.zookeeper.nodes import coordination
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import partitions, reassignments, tree

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

    async def submit(self) -> bool:
        """Create the request of every partition, in one multi; return False if requests of the plan were there already.

        Requests of an earlier command that ask for the same are resumed: only requests that are missing, for partitions
        that do not have their target replicas, are created. Raises ClusterError if a partition has another request or
        does not exist, or if a new target broker is not registered.
        """
        while True:
            views = await self._views()
            if unknown := [tp for tp, view in views.items() if view.replicas is None]:
                raise ClusterError(f"there is no partition {', '.join(map(str, unknown))}")
            asked = {
                tp: view.reassignment.replicas for tp, view in views.items() if view.reassignment
            }
            if others := {tp: to for tp, to in asked.items() if to != self._plan[tp]}:
                raise OtherRequest(self.place, others)
            missing = {
                tp: target
                for tp, target in self._plan.items()
                if tp not in asked and not (asked and views[tp].replicas == target)
            }
            await check_alive(self._zookeeper, tree.REGISTRATIONS, missing)
            for topic in dict.fromkeys(tp.topic for tp in missing):
                await reassignments.ensure_parent(self._zookeeper, topic)
            creates = [reassignments.request(tp, target) for tp, target in missing.items()]
            try:
                if creates:
                    await self._zookeeper.multi(creates)
            except (MultiFailed, NodeExists):
                continue  # since the read, another command has created a request
            return not asked

    async def left(self) -> AsyncIterator[list[TopicPartition]]:
        """Yield the partitions of the plan whose requests are still there, until the leaders have removed them all."""
        while True:
            watches = {
                tp: self._zookeeper.watch(WatchKind.EXISTS, reassignments.path_of(tp))
                for tp in self._plan
            }
            found = [
                tp
                for tp in self._plan
                if await self._zookeeper.exists(reassignments.path_of(tp), watch=True) is not None
            ]
            if not found:
                return
            yield found
            await watches[found[0]].wait()

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
    connect: str, plan: Plan, clock: Clock, rng: Rng, access: ZooKeeperAccess = OPEN_ACCESS
) -> AsyncIterator[ReassignmentNode | ReassignmentsByLeaders]:
    """Yield the request of a plan, for the cluster's mode, with a session that ends with the `with` block.

    `connect`: host:port[/chroot]. `access`: encryption and authentication. Raises ClusterError and ConfigError.
    """
    async with zookeeper_session(connect, clock, rng, access=access) as zookeeper:
        is_led = await coordination.read(zookeeper) == coordination.LEADERS
        yield (ReassignmentsByLeaders if is_led else ReassignmentNode)(zookeeper, plan)
