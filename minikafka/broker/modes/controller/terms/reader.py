"""The controller's reads in ZooKeeper, and the watches that cause these reads (E1-E10).

A signal names a part of ZooKeeper. `read` returns the current content of that part as events. A watch fires only once.
A read therefore sets a watch that has fired again, and only then reads, so that no later change is missed (T8, S31).
Invariants: a watch is set at most once at a time. After `disarm`, no watch of this term is left on the server (D10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.base.model import Broker, BrokerId, LeaderAndIsr, TopicPartition
from minikafka.base.names import parse_topic
from minikafka.base.ports import Watch, WatchKind, Znode, ZooKeeper
from minikafka.broker.modes.controller.terms.probes import BrokerProbes
from minikafka.broker.modes.controller.terms.store import ControllerStore
from minikafka.broker.side_by_side import all_of
from minikafka.deciders.controller.events import (
    AssignmentChanged,
    BrokersChanged,
    ControllerElected,
    DeletionsChanged,
    Event,
    IsrChanged,
    LogDirsFailed,
    PreferredElectionSubmitted,
    ReassignmentsSubmitted,
    TopicImage,
    TopicsChanged,
)
from minikafka.zookeeper.nodes import (
    admin_requests,
    layout,
    notifications,
    partition_states,
    registrations,
    topics,
)

logger = logging.getLogger(__name__)

_READS_IN_FLIGHT: Final = 256


class Signal(Enum):
    """A part of ZooKeeper to read again. The value is the name of the controller's state during the read (D14)."""

    CONTROLLER = "ControllerChange"
    BROKERS = "BrokerChange"
    TOPICS = "TopicChange"
    ASSIGNMENTS = "PartitionModifications"
    DELETIONS = "TopicDeletion"
    ISR_CHANGES = "IsrChange"
    LOG_DIRS = "LogDirChange"
    REASSIGNMENTS = "ZkPartitionReassignment"
    STATES = "PartitionReassignmentIsrChange"
    PREFERRED_ELECTION = "ReplicaLeaderElection"


_CHILDREN: Final = {
    Signal.BROKERS: layout.BROKER_IDS,
    Signal.TOPICS: layout.TOPICS,
    Signal.DELETIONS: layout.DELETE_TOPICS,
    Signal.ISR_CHANGES: layout.ISR_CHANGES,
    Signal.LOG_DIRS: layout.LOG_DIR_EVENTS,
}


_RESIGNATION: Final = (
    Signal.ISR_CHANGES,
    Signal.REASSIGNMENTS,
    Signal.PREFERRED_ELECTION,
    Signal.LOG_DIRS,
    Signal.STATES,
    Signal.TOPICS,
    Signal.ASSIGNMENTS,
    Signal.DELETIONS,
    Signal.BROKERS,
)
"""The order in which a controller that resigns removes its watches (D10)."""


class ClusterReader:
    """The reads and watches of one term; `put(signal)` is called when a watch fires."""

    def __init__(
        self, zookeeper: ZooKeeper, store: ControllerStore, put: Callable[[Signal], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._store = store
        self._session = store.session
        self._faults = store.session.faults
        self._put = put
        self._armed: dict[tuple[WatchKind, str], tuple[Watch, Signal]] = {}
        self._topics: dict[str, int] = {}
        """Known topic -> czxid of its node. A topic that is deleted and created again has another czxid."""
        self._dirty_topics: dict[str, None] = {}
        self._reassigning: dict[str, TopicPartition] = {}
        """Path of a state node -> partition, for the partitions that are being reassigned."""
        self._dirty_states: dict[TopicPartition, None] = {}
        self._is_over = False
        self.probes: BrokerProbes | None = None
        """The probes of the term, which get each read of the brokers; None if fast failover is switched off."""

    async def load(self) -> ControllerElected:
        """Set all watches, delete old notifications (T9), and read the whole cluster (D5, D6, T8).

        The topic names are read after the deletion marks, so that the names include every marked topic.
        """
        reassignments = await self._read_reassignments()
        for signal in (Signal.ISR_CHANGES, Signal.LOG_DIRS):
            names = await self._children(signal)
            await self._session.delete_nodes(notifications.paths(_CHILDREN[signal], names))
        elections = await self._read_preferred_election()
        await self._children(Signal.TOPICS)
        deletions = frozenset(await self._children(Signal.DELETIONS))
        topic_names = await self._children(Signal.TOPICS)
        brokers = await self._read_brokers()
        images = await self._read_topics(topic_names)
        partitions = [
            TopicPartition(topic, partition)
            for topic, image in images.items()
            for partition in image.assignment
        ]
        leadership = await self._read_states(partitions)
        suspects = self.probes.suspects() if self.probes is not None else {}
        return ControllerElected(
            brokers, images, leadership, deletions, reassignments, elections, suspects
        )

    async def read(self, signal: Signal) -> list[Event]:
        """Read the part of ZooKeeper that the signal names; return the content as events."""
        if signal is Signal.BROKERS:
            return [BrokersChanged(await self._read_brokers())]
        if signal is Signal.TOPICS:
            return await self._read_topic_names()
        if signal is Signal.ASSIGNMENTS:
            return await self._read_assignments()
        if signal is Signal.REASSIGNMENTS:
            targets = await self._read_reassignments()
            return [ReassignmentsSubmitted(targets)] if targets else []
        if signal is Signal.STATES:
            return await self._read_reassigned_states()
        if signal is Signal.DELETIONS:
            return await self._read_deletions()
        if signal is Signal.PREFERRED_ELECTION:
            partitions = await self._read_preferred_election()
            return [PreferredElectionSubmitted(partitions)] if partitions is not None else []
        names = await self._children(signal)
        if not names:
            return []
        if signal is Signal.ISR_CHANGES:
            return [await self._read_isr_changes(names)]
        return [await self._read_log_dir_events(names)]

    async def _read_brokers(self) -> dict[BrokerId, Broker]:
        ids = registrations.ids(await self._children(Signal.BROKERS), self._faults)
        nodes = _WatchedNodes(self, Signal.BROKERS)
        brokers = await registrations.read(nodes, ids, self._faults)
        if self.probes is not None:
            self.probes.brokers_read(brokers)
        return brokers

    async def _read_topic_names(self) -> list[Event]:
        names = await self._children(Signal.TOPICS)
        there = set(names)
        gone = tuple(topic for topic in self._topics if topic not in there)
        for topic in gone:
            del self._topics[topic]
        added = await self._read_topics([topic for topic in names if topic not in self._topics])
        return [TopicsChanged(added, gone)] if added or gone else []

    async def _read_assignments(self) -> list[Event]:
        """Read the topic nodes whose watch has fired; return their content as events.

        If a node has another czxid than before, the topic was deleted and created again.
        """
        dirty, self._dirty_topics = list(self._dirty_topics), {}
        before = {topic: self._topics.get(topic) for topic in dirty}
        images = await self._read_topics(dirty)
        ended = tuple(topic for topic in dirty if before[topic] and topic not in self._topics)
        events: list[Event] = [TopicsChanged({}, ended)] if ended else []
        for topic, image in images.items():
            if before[topic] == self._topics[topic]:
                has_id = image.topic_id is not None
                events.append(AssignmentChanged(topic, image.assignment, has_id))
            else:
                gone = (topic,) if before[topic] is not None else ()
                events.append(TopicsChanged({topic: image}, gone))
        return events

    async def _read_deletions(self) -> list[Event]:
        """Read deletion marks, topic names and changed topic nodes; return the content as events.

        The events of new and changed topics come first, because the machine removes the deletion mark of an
        unknown topic (R65).
        """
        marked = frozenset(await self._children(Signal.DELETIONS))
        changed = await self._read_topic_names()
        return [*changed, *await self._read_assignments(), DeletionsChanged(marked)]

    async def _read_topics(self, names: Sequence[str]) -> dict[str, TopicImage]:
        """Return the content of the readable topic nodes, and update the known czxids.

        A topic without a node is forgotten. If such a topic is created later, the next read of the topic
        names reports a new topic.
        """
        images = {}
        nodes = await self.read_watched(Signal.ASSIGNMENTS, list(map(layout.topic_path, names)))
        for topic, node in zip(names, nodes, strict=True):
            if node is None:
                self._topics.pop(topic, None)
                self._faults.mended(layout.topic_path(topic))
                continue
            try:
                images[topic] = _image(topic, node.data)
            except ValueError as fault:
                self._faults.report(layout.topic_path(topic), fault)
                continue
            self._faults.mended(layout.topic_path(topic))
            self._topics[topic] = node.stat.czxid
        return images

    async def _read_reassignments(self) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Return the reassignments in `/admin/reassign_partitions`; delete a node without reassignments."""
        node = await self._node(Signal.REASSIGNMENTS, layout.REASSIGN_PARTITIONS)
        targets = admin_requests.targets(node, self._faults)
        if node is not None and not targets:
            await self._store.trim_reassignments({})
        return targets

    async def _read_preferred_election(self) -> tuple[TopicPartition, ...] | None:
        """Return the partitions in `/admin/preferred_replica_election`, None if the node is absent."""
        node = await self._node(Signal.PREFERRED_ELECTION, layout.PREFERRED_ELECTION)
        return admin_requests.preferred_election(node, self._faults)

    async def _read_reassigned_states(self) -> list[Event]:
        """Read the state nodes whose watch is new or has fired (E10).

        Skip partitions that are no longer being reassigned.
        """
        dirty, self._dirty_states = list(self._dirty_states), {}
        dirty = [tp for tp in dirty if layout.state_path(tp) in self._reassigning]
        nodes = _WatchedNodes(self, Signal.STATES)
        states = await partition_states.read(nodes, dirty, self._faults)
        return [IsrChanged((), states)] if dirty else []

    async def watch_states(self, partitions: Iterable[TopicPartition]) -> None:
        """Queue a read of the state nodes of these partitions, which are being reassigned.

        The read also sets a watch on each node (E10).
        """
        for tp in partitions:
            self._reassigning[layout.state_path(tp)] = tp
            self._dirty_states[tp] = None
        if self._dirty_states:
            self._put(Signal.STATES)

    async def unwatch_states(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove the watches of partitions that are no longer being reassigned."""
        for tp in partitions:
            path = layout.state_path(tp)
            self._reassigning.pop(path, None)
            self._dirty_states.pop(tp, None)
            if self._armed.pop((WatchKind.DATA, path), None):
                await self._unwatch(WatchKind.DATA, path)

    async def _read_isr_changes(self, names: Sequence[str]) -> IsrChanged:
        changed = await notifications.read_isr_changes(self._session, names, self._faults)
        return IsrChanged(tuple(names), await self._read_states(changed))

    async def _read_log_dir_events(self, names: Sequence[str]) -> LogDirsFailed:
        brokers = await notifications.read_log_dir_failures(self._session, names, self._faults)
        return LogDirsFailed(tuple(names), tuple(brokers))

    async def _read_states(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        return await partition_states.read(self._session, partitions, self._faults)

    # Watches.

    async def _children(self, signal: Signal) -> list[str]:
        """Watch the children of the signal's node; return the names of the children."""
        path = _CHILDREN[signal]
        arm = self._arm(WatchKind.CHILDREN, path, signal)
        names, _ = await self._session.steady(lambda: self._zookeeper.children(path, watch=arm))
        return names

    async def read_watched(self, signal: Signal, paths: Sequence[str]) -> list[Znode | None]:
        """Return data and Stat of each node, None for an absent node. Also watch each existing node."""
        nodes: list[Znode | None] = []
        for start in range(0, len(paths), _READS_IN_FLIGHT):
            window = paths[start : start + _READS_IN_FLIGHT]
            nodes += await all_of(self._get(signal, path) for path in window)
        return nodes

    async def _get(self, signal: Signal, path: str) -> Znode | None:
        arm = self._arm(WatchKind.DATA, path, signal)
        try:
            return await self._session.steady(lambda: self._zookeeper.get(path, watch=arm))
        except NoNode:
            if self._armed.pop((WatchKind.DATA, path), None):
                await self._unwatch(WatchKind.DATA, path)
            return None

    async def _node(self, signal: Signal, path: str) -> Znode | None:
        """Set a watch that fires when the node is created or changed; return the node, None if absent."""
        arm = self._arm(WatchKind.EXISTS, path, signal)
        stat = await self._session.steady(lambda: self._zookeeper.exists(path, watch=arm))
        if stat is None:
            return None
        (node,) = await self._session.get_many([path])
        return node

    def _arm(self, kind: WatchKind, path: str, signal: Signal) -> bool:
        """Return True if the next read must set the watch on the server, False if the watch is already set.

        Before the method returns True, it registers a callback that is called when the watch fires.
        """
        if (kind, path) in self._armed:
            return False
        watch = self._zookeeper.watch(kind, path)
        self._armed[kind, path] = watch, signal
        watch.on_signal(lambda _: self._fired(kind, path, signal))
        return True

    def _fired(self, kind: WatchKind, path: str, signal: Signal) -> None:
        if self._is_over:
            return
        self._armed.pop((kind, path), None)
        if signal is Signal.ASSIGNMENTS:
            self._dirty_topics[topics.name_of(path)] = None
        elif signal is Signal.STATES and path in self._reassigning:
            self._dirty_states[self._reassigning[path]] = None
        self._put(signal)

    async def disarm(self) -> None:
        """Remove every watch of the term from the server, in the order of `_RESIGNATION` (D10)."""
        self._is_over = True
        armed, self._armed = self._armed, {}
        for signal in _RESIGNATION:
            keys = [key for key, (_, about) in armed.items() if about is signal]
            for start in range(0, len(keys), _READS_IN_FLIGHT):
                window = keys[start : start + _READS_IN_FLIGHT]
                await all_of(self._unwatch(kind, path) for kind, path in window)

    async def _unwatch(self, kind: WatchKind, path: str) -> None:
        if self._zookeeper.generation != self._session.generation:
            return
        try:
            await self._zookeeper.unwatch(kind, path)
        except CoordinationError as error:
            logger.info("watch on %s not removed: %s", path, error)


class _WatchedNodes:
    """A NodeReader that watches every node that it reads. Each watch queues the given signal."""

    def __init__(self, reader: ClusterReader, signal: Signal) -> None:
        self._reader = reader
        self._signal = signal

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return data and Stat of each node, None for an absent node. Also watch each existing node."""
        return await self._reader.read_watched(self._signal, paths)


def _image(topic: str, data: bytes) -> TopicImage:
    """Return the content of a topic's node. Raises ValueError if the content or the topic's name is invalid.

    The controller skips such topics: brokers refuse a whole request if one topic in it has an invalid name.
    """
    parse_topic(topic)
    return TopicImage(*topics.decode(data))
