"""Reading and watching of partitions in ZooKeeper.

All partitions that are asked for in one turn of the event loop are read together. Invariant: a partition is read after
it was asked for. If it has no leader, the registered brokers are read after it: only an election depends on them.

A broker watches its queue, the node `leader` of each partition that it hosts, and the reassignments of each topic of
which it leads a partition (C36). As leader, it also watches each reassignment in progress. A watch says only that
something may have changed: the partition is read again. A one-shot watch is set again before each read that it causes.
Invariant: a watch wakes only the replicas of its partition, or of its topic (C42).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import WatchKind, ZooKeeper
from minikafka.broker.modes.leaders.lease import Lease
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.deciders.leaders.model import PartitionView
from minikafka.zookeeper.nodes import registrations
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import partitions, reassignments
from minikafka.zookeeper.nodes.leaders.tree import REGISTRATIONS


class PartitionSnapshot(NamedTuple):
    """One partition as it was read, and the brokers that are registered."""

    view: PartitionView
    live: frozenset[BrokerId]


_Waiting: TypeAlias = dict[TopicPartition, list[asyncio.Future[PartitionSnapshot]]]


class PartitionReads:
    """Reads the partitions of one broker."""

    def __init__(self, ports: Ports) -> None:
        self._zookeeper = ports.zookeeper
        self._tasks = ports.tasks
        self._faults = ports.faults
        self.unclean_default = ports.config.unclean_leader_election_enable
        """The broker's unclean.leader.election.enable, which topics inherit."""
        self._waiting: _Waiting = {}
        self._unclean: set[TopicPartition] = set()
        """Partitions whose next leader may be unclean, because an administrator has said so."""
        self.live: frozenset[BrokerId] = frozenset()
        """The registered brokers, as they were last read."""

    def allow_unclean(self, tp: TopicPartition) -> None:
        """Let this broker lead a partition although it may lack records, until the partition has a leader."""
        self._unclean.add(tp)

    async def one(self, tp: TopicPartition) -> PartitionSnapshot:
        """Return a partition and the registered brokers. Raises CoordinationError."""
        if not self._waiting:
            self._tasks.spawn(self._read_waiting(), "partition-reads")
        answer: asyncio.Future[PartitionSnapshot] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tp, []).append(answer)
        return await answer

    async def _read_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        try:
            views = await self.many(waiting)
            live = await self._live_for(views.values())
        except CoordinationError as error:
            for answer in _all(waiting):
                if not answer.done():
                    answer.set_exception(error)
            return
        for tp, answers in waiting.items():
            for answer in answers:
                if not answer.done():
                    answer.set_result(PartitionSnapshot(views[tp], live))

    async def many(
        self, tps: _Waiting | list[TopicPartition]
    ) -> dict[TopicPartition, PartitionView]:
        """Return the views of these partitions. Raises CoordinationError."""
        views = await partitions.read_views(
            self._zookeeper,
            tps,
            self._zookeeper.session_id,
            self._faults,
            unclean_default=self.unclean_default,
        )
        for tp in self._unclean.intersection(views):
            if views[tp].leader is None and views[tp].replicas is not None:
                views[tp] = replace(views[tp], unclean_election=True)
            else:
                self._unclean.discard(tp)
        return views

    async def _live_for(self, views: Iterable[PartitionView]) -> frozenset[BrokerId]:
        """Return the registered brokers: read now if one of the partitions may need an election, else as last read."""
        if any(view.leader is None and view.replicas is not None for view in views):
            return await self.read_live()
        return self.live

    async def read_live(self) -> frozenset[BrokerId]:
        """Return the ids of the registered brokers. Raises CoordinationError."""
        names, _ = await self._zookeeper.children(REGISTRATIONS)
        self.live = frozenset(registrations.ids(names, self._faults, REGISTRATIONS))
        return self.live


def _all(waiting: _Waiting) -> list[asyncio.Future[PartitionSnapshot]]:
    return [answer for answers in waiting.values() for answer in answers]


class PartitionWatches:
    """The watches on the nodes `leader` of hosted partitions. `on_change(lease, tp)` is called when one fires."""

    def __init__(
        self, zookeeper: ZooKeeper, on_change: Callable[[Lease, TopicPartition], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._on_change = on_change
        self._hosted: set[TopicPartition] = set()
        self._armed: dict[str, Lease] = {}
        """Path of each watched node, and the lease in which the watch was set."""

    def add(self, tp: TopicPartition) -> None:
        """Watch the partition from its next `arm` on."""
        self._hosted.add(tp)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._hosted

    async def arm(self, lease: Lease, tp: TopicPartition) -> None:
        """Set the watch on `leader` if it is not set. Raises CoordinationError."""
        if tp in self._hosted:
            await self._arm(lease, tp, partitions.leader_path(tp))

    async def arm_replicas(self, lease: Lease, tp: TopicPartition) -> bool:
        """Watch `replicas`, which did not exist just now; return True if it exists. Raises CoordinationError."""
        path = partitions.replicas_path(tp)
        if tp not in self._hosted or not await self._arm(lease, tp, path):
            return False
        self._armed.pop(path, None)
        await self._zookeeper.unwatch(WatchKind.EXISTS, path)  # only a missing list is watched
        return True

    async def arm_reassignment(self, lease: Lease, tp: TopicPartition) -> None:
        """Watch a reassignment whose replicas an administrator may replace. Raises CoordinationError."""
        if tp in self._hosted:
            await self._arm(lease, tp, reassignments.path_of(tp))

    async def disarm_reassignment(self, tp: TopicPartition) -> None:
        """Remove the watch on a reassignment: another broker leads the partition (C36). Raises CoordinationError."""
        await self._disarm(reassignments.path_of(tp))

    async def _arm(self, lease: Lease, tp: TopicPartition, path: str) -> bool:
        """Set a watch if it is not set; return True if the node exists."""
        if self._armed.get(path) is lease:
            return False
        self._armed[path] = lease  # before the call, during which the watch may fire already
        watch = self._zookeeper.watch(WatchKind.EXISTS, path)

        def fired(_: object) -> None:
            if self._armed.get(path) is lease:
                del self._armed[path]
                self._on_change(lease, tp)

        watch.on_signal(fired)
        try:
            return await self._zookeeper.exists(path, watch=True) is not None
        except CoordinationError:
            self._armed.pop(path, None)
            raise

    async def remove(self, tp: TopicPartition) -> None:
        """Remove the watches of a partition. Raises CoordinationError."""
        self._hosted.discard(tp)
        for path_of in (partitions.leader_path, partitions.replicas_path, reassignments.path_of):
            await self._disarm(path_of(tp))

    async def _disarm(self, path: str) -> None:
        if self._armed.pop(path, None) is not None:
            await self._zookeeper.unwatch(WatchKind.EXISTS, path)

    def clear(self) -> None:
        """Forget all watches: the lease has ended."""
        self._hosted.clear()
        self._armed.clear()


class ReassignmentWatches:
    """The watches on the reassignments of topics that this broker leads partitions of.

    `on_change(lease, topic)` is called when one fires.
    """

    def __init__(
        self, zookeeper: ZooKeeper, faults: Faults, on_change: Callable[[Lease, str], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._faults = faults
        self._on_change = on_change
        self._armed: dict[str, tuple[Lease, WatchKind]] = {}
        """Topic -> the lease in which its watch was set, and the kind of the watch."""
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """Topic -> the partitions that have a reassignment, each with the number of its last write."""

    async def arm(self, lease: Lease, topic: str) -> set[TopicPartition]:
        """Set the watch of a topic if it is not set; return the partitions whose reassignment has changed since.

        Raises CoordinationError.
        """
        if topic in self._armed and self._armed[topic][0] is lease:
            return set()
        path = reassignments.parent_of(topic)
        names: list[str] = []
        while True:
            try:
                names = await self._arm(lease, topic, WatchKind.CHILDREN, path)
                break
            except NoNode:
                await self._zookeeper.unwatch(WatchKind.CHILDREN, path)
            if not await self._arm(lease, topic, WatchKind.EXISTS, path):
                break
            await self.remove(topic)  # the node was created in between: watch its children
        written = await reassignments.read_writes(self._zookeeper, topic, names, self._faults)
        before = self._written.get(topic, {})
        self._written[topic] = written
        return {tp for tp, _ in written.items() ^ before.items()}

    async def _arm(self, lease: Lease, topic: str, kind: WatchKind, path: str) -> list[str]:
        """Set a watch; return the names of the children, or, for EXISTS, any name if the node exists."""
        armed = self._armed[topic] = lease, kind
        watch = self._zookeeper.watch(kind, path)

        def fired(_: object) -> None:
            if self._armed.get(topic) is armed:
                del self._armed[topic]
                self._on_change(lease, topic)

        watch.on_signal(fired)
        try:
            if kind is WatchKind.CHILDREN:
                return (await self._zookeeper.children(path, watch=True))[0]
            return [] if await self._zookeeper.exists(path, watch=True) is None else [path]
        except CoordinationError:
            self._armed.pop(topic, None)
            raise

    async def remove(self, topic: str) -> None:
        """Remove the watch of a topic, if it is set. Raises CoordinationError."""
        self._written.pop(topic, None)
        armed = self._armed.pop(topic, None)
        if armed is not None:
            await self._zookeeper.unwatch(armed[1], reassignments.parent_of(topic))

    def clear(self) -> None:
        """Forget all watches: the lease has ended."""
        self._armed.clear()
        self._written.clear()
