"""A reassignment request in `/admin/reassign_partitions`, as the tool of KAFKA-42 writes it (K2, K7).

Invariant: the reassignment of a partition is either taken back or begins, never both. `take_back` removes only
partitions whose topic nodes do not have the requested reassignment in progress. If one of these topic nodes changes
before the removal, the removal fails and `take_back` reads the nodes again. The controller writes a topic node only
while the request is in `/admin/reassign_partitions`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from minikafka.base.errors import MultiFailed, NodeExists
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.names import ids
from minikafka.base.ports import Check, MultiOp, WatchKind, Znode, ZooKeeper
from minikafka.tools.cluster.directory import ClusterError
from minikafka.zookeeper.nodes import admin_requests, layout, registrations, topics
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import get_one

Plan = Mapping[TopicPartition, tuple[BrokerId, ...]]
_SHOWN: Final = 5
"""Maximum number of moves that an error names."""


class ReassignmentNode:
    """The node `/admin/reassign_partitions`, used to reassign the partitions of one plan.

    Methods raise CoordinationError.
    """

    receiver: Final = "the controller"
    place: Final = layout.REASSIGN_PARTITIONS

    def __init__(self, zookeeper: ZooKeeper, plan: Plan) -> None:
        self._zookeeper = zookeeper
        self._plan = plan

    async def assignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the current assignments of the plan's partitions; unknown partitions are left out."""
        nodes = await self._topic_nodes()
        found = {tp: _assignment(nodes[tp.topic], tp) for tp in self._plan}
        return {tp: assignment for tp, assignment in found.items() if assignment is not None}

    async def submit(self) -> bool:
        """Write the request to the node `/admin/reassign_partitions`; return False if it was there already.

        If the node has a request of an earlier command whose moves are all in this plan, the missing moves are added.
        Raises ClusterError if the node has another request, because the controller processes one at a time, and if a
        new target broker is not registered, because the controller would wait forever.
        """
        while True:
            node = await get_one(self._zookeeper, layout.REASSIGN_PARTITIONS)
            missing = self._plan if node is None else await self._missing(node)
            await check_alive(self._zookeeper, layout.BROKER_IDS, missing)
            try:
                if node is None:
                    request = admin_requests.reassignments(missing)
                    await self._zookeeper.create(request.path, request.data)
                elif missing:
                    await self._zookeeper.multi([admin_requests.extended(node, missing)])
            except (NodeExists, MultiFailed):
                continue  # since the read, another command or the controller has changed the node
            return node is None

    async def _missing(self, node: Znode) -> Plan:
        """Return the moves of the plan that the request in the node lacks, and that have not completed.

        Raises ClusterError if the request asks for something else than the plan.
        """
        asked = admin_requests.targets(node, Faults())
        found = await self.assignments()
        missing = {
            tp: target
            for tp, target in self._plan.items()
            if asked.get(tp) != target and found.get(tp) != ReplicaAssignment(target)
        }
        others = {tp: target for tp, target in asked.items() if self._plan.get(tp) != target}
        if missing and (others or not asked):
            raise OtherRequest(self.place, others)
        return missing

    async def left(self) -> AsyncIterator[list[TopicPartition]]:
        """Yield the partitions of the plan that are still in the node, at each change, until there are none."""
        path = layout.REASSIGN_PARTITIONS
        while True:
            watch = self._zookeeper.watch(WatchKind.EXISTS, path)
            if await self._zookeeper.exists(path, watch=True) is None:
                return
            left = self._asked(await get_one(self._zookeeper, path))
            if not left:
                return
            yield left
            await watch.wait()

    async def take_back(self) -> list[TopicPartition]:
        """Remove from the node the partitions whose reassignment has not begun; return these partitions.

        A partition that has its target replicas, so that there is nothing to do, is removed but not returned.
        """
        while True:
            node = await get_one(self._zookeeper, layout.REASSIGN_PARTITIONS)
            nodes = await self._topic_nodes()
            waiting = [
                tp
                for tp in self._asked(node)
                if (found := _assignment(nodes[tp.topic], tp)) is None
                or not found.is_being_reassigned
                or found.target != self._plan[tp]
            ]
            if node is None or not waiting:
                return []
            change = admin_requests.without(node, {tp: self._plan[tp] for tp in waiting})
            assert change is not None
            unchanged: list[MultiOp] = [
                Check(layout.topic_path(topic), there.stat.version)
                for topic in dict.fromkeys(tp.topic for tp in waiting)
                if (there := nodes[topic]) is not None
            ]
            try:
                await self._zookeeper.multi([*unchanged, change])
            except MultiFailed:
                continue  # since the read, the controller has begun or ended a reassignment
            return [
                tp
                for tp in waiting
                if (found := _assignment(nodes[tp.topic], tp)) is None
                or found.replicas != self._plan[tp]
            ]

    def _asked(self, node: Znode | None) -> list[TopicPartition]:
        asked = admin_requests.targets(node, Faults())
        return [tp for tp, target in self._plan.items() if asked.get(tp) == target]

    async def _topic_nodes(self) -> dict[str, Znode | None]:
        names = list(dict.fromkeys(tp.topic for tp in self._plan))
        nodes = await self._zookeeper.get_many(list(map(layout.topic_path, names)))
        return dict(zip(names, nodes, strict=True))


class OtherRequest(ClusterError):
    """The refusal of a request, because `place` has a request for `others` already; no others: it is not readable."""

    def __init__(self, place: str, others: Plan) -> None:
        self.others = others
        if not others:
            super().__init__(f"{place} has a request without a readable move: delete this node")
            return
        shown = list(others.items())[:_SHOWN]
        moves = ", ".join(f"{tp} to {ids(to) or 'no brokers (a deletion)'}" for tp, to in shown)
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        super().__init__(
            f"another reassignment is in progress in {place}: {moves}{more}; wait until it has ended "
            "(minikafka reassign --list), cancel it, or leave --via-zookeeper out"
        )


async def check_alive(zookeeper: ZooKeeper, directory: str, plan: Plan) -> None:
    """Raise ClusterError if a target broker of the plan has no registration in this directory."""
    names, _ = await zookeeper.children(directory)
    alive = registrations.ids(names, Faults())
    if missing := {broker for target in plan.values() for broker in target} - set(alive):
        unknown, known = (", ".join(map(str, sorted(some))) for some in (missing, alive))
        raise ClusterError(f"broker {unknown} is not alive; the live brokers are {known}")


def _assignment(node: Znode | None, tp: TopicPartition) -> ReplicaAssignment | None:
    if node is None:
        return None
    try:
        return topics.decode(node.data).assignment.get(tp.partition)
    except ValueError:
        return None
