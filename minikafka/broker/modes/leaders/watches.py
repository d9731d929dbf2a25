"""The watches of one broker (C36).

It watches its queue, the node `leader` of each partition that it hosts, and the reassignments of each topic of which it
leads a partition. As leader, it also watches each reassignment in progress.

A watch says only that something may have changed: the partition is read again. A one-shot watch is set again before
each read that it causes. Invariant: a watch wakes only the replicas of its partition, or of its topic (C42).
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.base.model import TopicPartition
from minikafka.base.ports import WatchKind, ZooKeeper
from minikafka.broker.modes.leaders.era import Era
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import partitions, reassignments


class PartitionWatches:
    """The watches on the nodes `leader` of hosted partitions. `on_change(era, tp)` is called when one fires."""

    def __init__(
        self, zookeeper: ZooKeeper, on_change: Callable[[Era, TopicPartition], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._on_change = on_change
        self._hosted: set[TopicPartition] = set()
        self._armed: dict[str, Era] = {}
        """Path of each watched node, and the era in which the watch was set."""

    def add(self, tp: TopicPartition) -> None:
        """Watch the partition from its next `arm` on."""
        self._hosted.add(tp)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._hosted

    async def arm(self, era: Era, tp: TopicPartition) -> None:
        """Set the watch on `leader` if it is not set. Raises CoordinationError."""
        if tp in self._hosted:
            await self._arm(era, tp, partitions.leader_path(tp))

    async def arm_replicas(self, era: Era, tp: TopicPartition) -> bool:
        """Watch `replicas`, which did not exist just now; return True if it exists. Raises CoordinationError."""
        path = partitions.replicas_path(tp)
        if tp not in self._hosted or not await self._arm(era, tp, path):
            return False
        self._armed.pop(path, None)
        await self._zookeeper.unwatch(WatchKind.EXISTS, path)  # only a missing list is watched
        return True

    async def arm_reassignment(self, era: Era, tp: TopicPartition) -> None:
        """Watch a reassignment whose replicas an administrator may replace. Raises CoordinationError."""
        if tp in self._hosted:
            await self._arm(era, tp, reassignments.path_of(tp))

    async def disarm_reassignment(self, tp: TopicPartition) -> None:
        """Remove the watch on a reassignment: another broker leads the partition (C36). Raises CoordinationError."""
        await self._disarm(reassignments.path_of(tp))

    async def _arm(self, era: Era, tp: TopicPartition, path: str) -> bool:
        """Set a watch if it is not set; return True if the node exists."""
        if self._armed.get(path) is era:
            return False
        self._armed[path] = era
        watch = self._zookeeper.watch(WatchKind.EXISTS, path)

        def fired(_: object) -> None:
            if self._armed.get(path) is era:
                del self._armed[path]
                self._on_change(era, tp)

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
        """Forget all watches: the era has ended."""
        self._hosted.clear()
        self._armed.clear()


class ReassignmentWatches:
    """The watches on the reassignments of topics that this broker leads partitions of.

    `on_change(era, topic)` is called when one fires.
    """

    def __init__(
        self, zookeeper: ZooKeeper, faults: Faults, on_change: Callable[[Era, str], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._faults = faults
        self._on_change = on_change
        self._armed: dict[str, tuple[Era, WatchKind]] = {}
        """Topic -> the era in which its watch was set, and the kind of the watch."""
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """Topic -> the partitions that have a reassignment, each with the number of its last write."""

    async def arm(self, era: Era, topic: str) -> set[TopicPartition]:
        """Set the watch of a topic if it is not set; return the partitions whose reassignment has changed since.

        Raises CoordinationError.
        """
        if topic in self._armed and self._armed[topic][0] is era:
            return set()
        path = reassignments.parent_of(topic)
        names: list[str] = []
        while True:
            try:
                names = await self._arm(era, topic, WatchKind.CHILDREN, path)
                break
            except NoNode:
                await self._zookeeper.unwatch(WatchKind.CHILDREN, path)
            if not await self._arm(era, topic, WatchKind.EXISTS, path):
                break
            await self.remove(topic)  # the node was created in between: watch its children
        written = await reassignments.read_writes(self._zookeeper, topic, names, self._faults)
        before = self._written.get(topic, {})
        self._written[topic] = written
        return {tp for tp, _ in written.items() ^ before.items()}

    async def _arm(self, era: Era, topic: str, kind: WatchKind, path: str) -> list[str]:
        """Set a watch; return the names of the children, or, for EXISTS, any name if the node exists."""
        armed = self._armed[topic] = era, kind
        watch = self._zookeeper.watch(kind, path)

        def fired(_: object) -> None:
            if self._armed.get(topic) is armed:
                del self._armed[topic]
                self._on_change(era, topic)

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
        """Forget all watches: the era has ended."""
        self._armed.clear()
        self._written.clear()
