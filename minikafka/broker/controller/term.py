"""One term in office: the loading of the cluster, the queue of events, the machine and its effects.

The queue holds signals (a path is to be read again) and events that carry their data. One consumer takes
them in order: a signal is read, the machine is asked, its effects are carried out, and when the last of
them is a question its outcome goes back to the machine; only when the machine is no longer busy comes
the next item. Signals are level-triggered: equal ones that wait are one, and each read arms its
watch first (S31). Invariant: once `over`, a term hands nothing to brokers or ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Final, Protocol

from minikafka.base.errors import (
    ControllerMoved,
    CoordinationError,
    ErrorCode,
    KafkaError,
    NoNode,
    StaleSession,
)
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    TopicPartition,
)
from minikafka.base.ports import Clock, Coordination, Stat, Watch, WatchKind
from minikafka.broker.controller.store import ControllerStore, all_of
from minikafka.controller.events import (
    AnswerControlledShutdown,
    AssignmentChanged,
    BrokersChanged,
    ControlledShutdownRequested,
    ControllerElected,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    DeletionsChanged,
    Effect,
    ExternalEvent,
    IsrChanged,
    LeaderAndIsrAnswered,
    LeaderAndIsrRead,
    LogDirsFailed,
    Outcome,
    ReadLeaderAndIsr,
    ReadUncleanSettings,
    SendRequest,
    StartChannel,
    StopChannel,
    TopicImage,
    TopicsChanged,
    UncleanSettingsRead,
    WriteLeaderAndIsr,
)
from minikafka.controller.machine import ControllerMachine
from minikafka.zk import layout

logger = logging.getLogger(__name__)

_READS_IN_FLIGHT: Final = 256


class Signal(Enum):
    """A part of ZooKeeper that is to be read again; the value names the controller's state meanwhile (D14)."""

    CONTROLLER = "ControllerChange"
    BROKERS = "BrokerChange"
    TOPICS = "TopicChange"
    ASSIGNMENTS = "PartitionModifications"
    DELETIONS = "TopicDeletion"
    ISR_CHANGES = "IsrChange"
    LOG_DIRS = "LogDirChange"


_CHILDREN: Final = {
    Signal.BROKERS: layout.BROKER_IDS,
    Signal.TOPICS: layout.TOPICS,
    Signal.DELETIONS: layout.DELETE_TOPICS,
    Signal.ISR_CHANGES: layout.ISR_CHANGES,
    Signal.LOG_DIRS: layout.LOG_DIR_EVENTS,
}


class Channels(Protocol):
    """The ordered queues to the brokers (`rpc/channels.py`)."""

    def add(self, broker: Broker) -> None:
        """Open the channel to a registered broker."""

    def remove(self, broker_id: BrokerId) -> None:
        """Drop the channel and what waits in it."""

    def send(
        self,
        broker_id: BrokerId,
        request: ControllerRequest,
        on_response: Callable[[BrokerId, ControllerRequest, ControllerResponse], None],
    ) -> None:
        """Queue a request."""

    def stop(self) -> None:
        """Drop all channels at once."""


class Term:
    """Runs one `ControllerMachine` from its election until it resigns or is told that it is over.

    `is_ours()` reads `/controller` again, with its watch, and says whether it still names this session.
    """

    def __init__(
        self,
        coordination: Coordination,
        store: ControllerStore,
        channels: Channels,
        clock: Clock,
        machine: ControllerMachine,
        is_ours: Callable[[], Awaitable[bool]],
    ) -> None:
        self.machine = machine
        self.over = False
        self.state = "ControllerChange"
        self._coordination = coordination
        self._store = store
        self._channels = channels
        self._clock = clock
        self._is_ours = is_ours
        self._queue: deque[Signal | ExternalEvent] = deque()
        self._filled = asyncio.Event()
        self._armed: dict[tuple[WatchKind, str], Watch] = {}
        self._topics: dict[str, int] = {}
        """Known topics and the czxid of their nodes, by which a re-created one is told apart."""
        self._dirty_topics: dict[str, None] = {}
        self._shutdowns: dict[int, asyncio.Future[list[TopicPartition]]] = {}
        self._tickets = 0

    @property
    def generation(self) -> int:
        """The session that the term rests on."""
        return self._store.generation

    @property
    def queue_size(self) -> int:
        """Signals and events that wait."""
        return len(self._queue)

    # The queue.

    def put(self, item: Signal | ExternalEvent) -> None:
        """Add to the queue; a signal that waits already is not added again."""
        if self.over or (isinstance(item, Signal) and item in self._queue):
            return
        self._queue.append(item)
        self._filled.set()

    async def shut_down(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Queue a controlled shutdown; the partitions the broker still leads. Raises KafkaError."""
        if self.over:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self._tickets += 1
        ticket = self._tickets
        future: asyncio.Future[list[TopicPartition]] = asyncio.get_running_loop().create_future()
        self._shutdowns[ticket] = future
        self.put(ControlledShutdownRequested(ticket, broker_id, broker_epoch))
        try:
            return await future
        finally:
            self._shutdowns.pop(ticket, None)

    def end(self) -> None:
        """At once: nothing more is sent, what waits is dropped, callers hear NOT_CONTROLLER (R9, R13)."""
        if self.over:
            return
        self.over = True
        self._channels.stop()
        self._queue.clear()
        for future in self._shutdowns.values():
            if not future.done():
                future.set_exception(
                    KafkaError(ErrorCode.NOT_CONTROLLER, "the controller resigned")
                )
        self._filled.set()

    async def run(self) -> None:
        """Load, then handle the queue until over. Raises ControllerMoved, StaleSession, CoordinationError."""
        await self._carry_out(await self._load())
        while not self.over:
            while self._queue:
                await self._process(self._queue.popleft())
            self.state = "Idle"
            self._filled.clear()
            if not self.over:
                await self._filled.wait()

    async def _process(self, item: Signal | ExternalEvent) -> None:
        self.state = item.value if isinstance(item, Signal) else type(item).__name__
        if not isinstance(item, Signal):
            await self._carry_out(item)
            return
        for event in await self._read(item):
            await self._carry_out(event)

    async def _carry_out(self, event: ExternalEvent) -> None:
        """One event through the machine, its outcomes included, before anything else is looked at."""
        self._stay_in_office()
        effects = self.machine.handle(event, self._clock.now())
        while True:
            outcome = None
            for effect in effects:
                outcome = await self._execute(effect)
                self._stay_in_office()
            if outcome is None:
                return
            effects = self.machine.handle(outcome, self._clock.now())

    def _stay_in_office(self) -> None:
        if self.over or self._coordination.generation != self.generation:
            raise StaleSession("the term is over")

    # Effects.

    async def _execute(self, effect: Effect) -> Outcome | None:
        """Carry out one effect; the outcome if it was a question."""
        if isinstance(effect, SendRequest):
            await self._hold_authority()
            self._channels.send(effect.broker_id, effect.request, self._on_response)
        elif isinstance(effect, StartChannel):
            self._channels.add(effect.broker)
        elif isinstance(effect, StopChannel):
            self._channels.remove(effect.broker_id)
        elif isinstance(effect, DeleteIsrChanges):
            await self._store.delete_nodes(_below(layout.ISR_CHANGES, effect.names))
        elif isinstance(effect, DeleteLogDirEvents):
            await self._store.delete_nodes(_below(layout.LOG_DIR_EVENTS, effect.names))
        elif isinstance(effect, AnswerControlledShutdown):
            self._answer(effect)
        elif isinstance(effect, WriteLeaderAndIsr):
            return await self._store.write_states(effect.states)
        elif isinstance(effect, ReadLeaderAndIsr):
            return LeaderAndIsrRead(await self._store.read_states(effect.partitions))
        elif isinstance(effect, ReadUncleanSettings):
            return UncleanSettingsRead(await self._store.read_unclean_settings(effect.topics))
        return None

    async def _hold_authority(self) -> None:
        """Wait until the lease proves that no other controller can have been elected (`zookeeper.md` §4.3).

        Any answered request renews it.
        """
        while not self._coordination.lease_valid():
            await self._store.attached()
            await self._store.steady(lambda: self._coordination.exists(layout.CONTROLLER_EPOCH))
            self._stay_in_office()

    def _answer(self, effect: AnswerControlledShutdown) -> None:
        future = self._shutdowns.get(effect.ticket)
        if future is None or future.done():
            return
        if effect.error is ErrorCode.NONE:
            future.set_result(list(effect.remaining))
        else:
            future.set_exception(KafkaError(effect.error))

    def _on_response(
        self, broker_id: BrokerId, request: ControllerRequest, response: ControllerResponse
    ) -> None:
        """R16: answers come back as events, when there is something in them that the machine can use."""
        if response.error:
            logger.warning(
                "broker %d answered %s with error %d",
                broker_id,
                type(request).__name__,
                response.error,
            )
        elif isinstance(request, LeaderAndIsrRequest):
            lost = any(code == ErrorCode.KAFKA_STORAGE_ERROR for _, code in response.partitions)
            if lost or broker_id in self.machine.context.offline_directories:
                self.put(LeaderAndIsrAnswered(broker_id, request.broker_epoch, response))

    # Reading.

    async def _load(self) -> ControllerElected:
        """D5, D6: stale notifications go first (trap 9), and every watch is set before its read (trap 8)."""
        for signal in (Signal.ISR_CHANGES, Signal.LOG_DIRS):
            names = await self._children(signal)
            await self._store.delete_nodes(_below(_CHILDREN[signal], names))
        brokers = await self._read_brokers()
        deletions = frozenset(await self._children(Signal.DELETIONS))
        topics = await self._read_topics(await self._children(Signal.TOPICS))
        partitions = [
            TopicPartition(topic, partition)
            for topic, image in topics.items()
            for partition in image.assignment
        ]
        leadership = await self._store.read_states(partitions)
        return ControllerElected(brokers, topics, leadership, deletions)

    async def _read(self, signal: Signal) -> list[ExternalEvent]:
        """The events that a signal turns out to be, read at the time they are handled."""
        if signal is Signal.CONTROLLER:
            if not await self._store.steady(self._is_ours):
                raise ControllerMoved("/controller names another broker or session")
            return []
        if signal is Signal.BROKERS:
            return [BrokersChanged(await self._read_brokers())]
        if signal is Signal.TOPICS:
            return await self._read_topic_names()
        if signal is Signal.ASSIGNMENTS:
            return await self._read_assignments()
        names = await self._children(signal)
        if signal is Signal.DELETIONS:
            return [DeletionsChanged(frozenset(names))]
        if not names:
            return []
        if signal is Signal.ISR_CHANGES:
            return [await self._read_isr_changes(names)]
        return [await self._read_log_dir_events(names)]

    async def _read_brokers(self) -> dict[BrokerId, Broker]:
        ids = [int(name) for name in await self._children(Signal.BROKERS) if name.isdigit()]
        paths = [layout.broker_path(id_) for id_ in ids]
        brokers = {}
        for id_, node in zip(ids, await self._data(Signal.BROKERS, paths), strict=True):
            if node is None:
                continue
            try:
                brokers[id_] = layout.decode_broker(id_, *node)
            except ValueError as error:
                logger.error("registration of broker %d is not readable: %s", id_, error)
        return brokers

    async def _read_topic_names(self) -> list[ExternalEvent]:
        names = await self._children(Signal.TOPICS)
        gone = tuple(topic for topic in self._topics if topic not in set(names))
        for topic in gone:
            del self._topics[topic]
        added = await self._read_topics([topic for topic in names if topic not in self._topics])
        return [TopicsChanged(added, gone)] if added or gone else []

    async def _read_assignments(self) -> list[ExternalEvent]:
        """Topic nodes whose data changed; one made anew has another czxid."""
        dirty, self._dirty_topics = list(self._dirty_topics), {}
        before = {topic: self._topics.get(topic) for topic in dirty}
        images = await self._read_topics(dirty)
        events: list[ExternalEvent] = []
        for topic, image in images.items():
            if before[topic] == self._topics[topic]:
                events.append(AssignmentChanged(topic, image.assignment))
            else:
                gone = (topic,) if before[topic] is not None else ()
                events.append(TopicsChanged({topic: image}, gone))
        return events

    async def _read_topics(self, topics: Sequence[str]) -> dict[str, TopicImage]:
        """Topic nodes that are there and readable, their czxids remembered."""
        images = {}
        nodes = await self._data(Signal.ASSIGNMENTS, [layout.topic_path(topic) for topic in topics])
        for topic, node in zip(topics, nodes, strict=True):
            if node is None:
                continue
            try:
                images[topic] = TopicImage(*layout.decode_topic(node[0]))
            except ValueError as error:
                logger.error("node of topic %s is not readable: %s", topic, error)
                continue
            self._topics[topic] = node[1].czxid
        return images

    async def _read_isr_changes(self, names: Sequence[str]) -> IsrChanged:
        changed: dict[TopicPartition, None] = {}
        for node in await self._store.get_many(_below(layout.ISR_CHANGES, names)):
            try:
                changed.update(dict.fromkeys(layout.decode_isr_change(node[0]) if node else ()))
            except ValueError as error:
                logger.error("ISR change notification is not readable: %s", error)
        return IsrChanged(tuple(names), await self._store.read_states(list(changed)))

    async def _read_log_dir_events(self, names: Sequence[str]) -> LogDirsFailed:
        brokers: dict[BrokerId, None] = {}
        for node in await self._store.get_many(_below(layout.LOG_DIR_EVENTS, names)):
            try:
                if node is not None:
                    brokers[layout.decode_log_dir_event(node[0])] = None
            except ValueError as error:
                logger.error("log directory notification is not readable: %s", error)
        return LogDirsFailed(tuple(names), tuple(brokers))

    # Watches.

    async def _children(self, signal: Signal) -> list[str]:
        """Names under the signal's path, its watch armed."""
        path = _CHILDREN[signal]
        arm = self._arm(WatchKind.CHILDREN, path, signal)
        names, _ = await self._store.steady(lambda: self._coordination.children(path, watch=arm))
        return names

    async def _data(self, signal: Signal, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Data and Stat of each node, each with its watch armed; None where there is no node."""
        nodes: list[tuple[bytes, Stat] | None] = []
        for start in range(0, len(paths), _READS_IN_FLIGHT):
            window = paths[start : start + _READS_IN_FLIGHT]
            nodes += await all_of(self._get(signal, path) for path in window)
        return nodes

    async def _get(self, signal: Signal, path: str) -> tuple[bytes, Stat] | None:
        arm = self._arm(WatchKind.DATA, path, signal)
        try:
            return await self._store.steady(lambda: self._coordination.get(path, watch=arm))
        except NoNode:
            if self._armed.pop((WatchKind.DATA, path), None):
                await self._unwatch(WatchKind.DATA, path)
            return None

    def _arm(self, kind: WatchKind, path: str, signal: Signal) -> bool:
        """Register the watch unless it is; whether the read that follows must arm it."""
        if (kind, path) in self._armed:
            return False
        watch = self._coordination.watch(kind, path)
        self._armed[kind, path] = watch
        watch.on_signal(lambda _: self._fired(kind, path, signal))
        return True

    def _fired(self, kind: WatchKind, path: str, signal: Signal) -> None:
        if self.over:
            return
        self._armed.pop((kind, path), None)
        if signal is Signal.ASSIGNMENTS:
            self._dirty_topics[path.rpartition("/")[2]] = None
        self.put(signal)

    async def disarm(self) -> None:
        """Take every watch of the term off the server (D10)."""
        armed, self._armed = list(self._armed), {}
        for start in range(0, len(armed), _READS_IN_FLIGHT):
            window = armed[start : start + _READS_IN_FLIGHT]
            await all_of(self._unwatch(kind, path) for kind, path in window)

    async def _unwatch(self, kind: WatchKind, path: str) -> None:
        if self._coordination.generation != self.generation:
            return
        try:
            await self._coordination.unwatch(kind, path)
        except CoordinationError as error:
            logger.info("watch on %s not removed: %s", path, error)

    def describe(self) -> dict[str, Any]:
        """The term's part of `ControllerService.describe`."""
        context = self.machine.context
        return {
            "state": self.state,
            "queue_size": self.queue_size,
            "brokers": {str(id_): broker.epoch for id_, broker in context.brokers.items()},
            "shutting_down": sorted(context.shutting_down),
            "topics_marked_for_deletion": sorted(context.deletions),
            "offline_partition_count": len(context.unavailable),
            "unclean_elections": context.unclean_elections,
            "partitions": [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "state": context.partition_status(tp).value,
                    "leader": state.leader,
                    "leader_epoch": state.leader_epoch,
                    "isr": list(state.isr),
                    "replicas": list(context.replicas(tp)),
                    "zk_version": state.zk_version,
                }
                for tp, state in context.leadership.items()
            ],
        }


def _below(path: str, names: Sequence[str]) -> list[str]:
    return [f"{path}/{name}" for name in names]
