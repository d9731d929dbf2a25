"""The deletion of topics and partitions by an administrator's side (C22 to C25).

    request      each partition's node below the reassignments becomes empty: the partition is to be deleted
    close        each replica gets a close request without a leader, also on brokers that are down
    wait         the live replicas have carried it out; a dead one finds it when it returns
    partition    the nodes of the partition are removed, with its request
    topic        the topic's node and its settings go with the last partitions, in one multi

A partition's leader sends close requests too, because anyone may write the request. Every step can be repeated, and by
several brokers at once: if the broker that performs them dies, the live broker with the lowest id goes on. Every broker
finds empty requests when it reads the metadata. A close request has the topic's id, so that it never deletes a topic
that was created again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from minikafka.base.errors import (
    Closed,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    OutcomeUnknown,
)
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Delete, MultiOp
from minikafka.broker.modes.leaders import admin_requests
from minikafka.broker.modes.leaders.admin_requests import AT_ONCE, AdminRequests
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.broker.modes.leaders.queue import QueuedRequest
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.deciders.leaders.model import PartitionView
from minikafka.deciders.leaders.steps import CREATION, DELETION
from minikafka.zookeeper.nodes import configs
from minikafka.zookeeper.nodes.leaders import reassignments, topics
from minikafka.zookeeper.nodes.leaders.topics import TopicView

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_WAIT_MS: Final = 30_000
"""Time that a live replica has to carry out a close request of a clean-up."""
_PATIENCE_MS: Final = 2_000
"""Time that a request to delete a topic waits for the end of the deletion."""
_RESUMED_AFTER_MS: Final = 3_000
"""Time after which a deletion that has not ended may have lost its broker. The other brokers are asked then."""
_POLL_MS: Final = 200
"""Time between two looks at partitions that still have a leader."""
_RETRY_MS: Final = 2_000


class OwnDeletions:
    """The deletions of one broker. `refresh(topics)` reads their metadata again when they are gone."""

    def __init__(
        self,
        ports: Ports,
        requests: AdminRequests,
        peers: Peers,
        refresh: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        self._broker_id = ports.broker_id
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._gate = ports.gate
        self._faults = ports.faults
        self._requests = requests
        self._peers = peers
        self._work = peers.work
        self._refresh = refresh
        self._deleting: dict[str, asyncio.Event] = {}
        """Topics that have a task of this broker, and an event at its end."""
        self._noticed: dict[str, int] = {}
        """Topics whose deletion this broker may have to go on with, and since when."""

    # Beginning.

    async def mark(self, topic: str) -> bool:
        """Write the requests to delete all partitions of a topic; return False if there was nothing to write.

        Everything else happens in the background. Most deletions have ended at the return, so that the topic can be
        created again at once. Raises KafkaError, CoordinationError.
        """
        for attempt in range(_ATTEMPTS):
            view = await topics.read(self._zookeeper, topic, self._faults)
            if not view.exists:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise KafkaError(code, f"The topic '{topic}' does not exist.")
            unmarked = [tp for tp, one in view.views.items() if not one.is_being_deleted]
            await self._gate.reached(DELETION, "request")
            try:
                if unmarked:
                    await self._mark(view, unmarked)
            except (MultiFailed, OutcomeUnknown) as error:
                logger.info("the requests to delete %s are written again: %s", topic, error)
                continue
            self.begin(topic)
            await self._wait_for_end(topic)
            return bool(unmarked or not view.views or attempt)
        message = "the topic is being changed by other requests; retry"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)

    async def _wait_for_end(self, topic: str) -> None:
        ended = self._deleting.get(topic)
        if ended is not None:
            timer = self._clock.call_later(_PATIENCE_MS, ended.set)
            await ended.wait()
            timer.cancel()

    async def remove_half_made(self, view: TopicView) -> None:
        """Remove what a failed creation has left: everything of a topic without partitions, else the requests.

        Nobody else may work on the topic, and the creation, if it goes on, fails at its next write. Raises KafkaError,
        CoordinationError.
        """
        await self._gate.reached(CREATION, "cleanup")
        half_made = [tp for tp, one in view.views.items() if one.replicas is None]
        logger.info("removing what a failed creation of topic %s has left", view.name)
        entries = await self._mark(view, half_made)
        if await self._requests.wait(entries, _WAIT_MS):
            message = f"replicas of a failed creation of topic '{view.name}' are not deleted yet"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
        await self._remove(view.name, half_made)

    async def _mark(self, view: TopicView, tps: Collection[TopicPartition]) -> list[QueuedRequest]:
        """Make the requests of these partitions empty; return the close requests that were sent with that.

        A request that names replicas outside the replica list is the only trace of them, so that their close
        requests are in the same multi. The topic's node is written again, unchanged: a creation that goes on fails.
        """
        check_readable(view)
        await reassignments.ensure_parent(self._zookeeper, view.name)
        entries: list[QueuedRequest] = []
        version = view.version
        chosen = list(tps)
        for first in range(0, max(len(chosen), 1), AT_ONCE):
            changes: list[MultiOp] = []
            closes: list[admin_requests.Addressed] = []
            if view.topic_id is not None:
                changes.append(topics.takeover(view.name, view.topic_id, version))
                version += 1
            for tp in chosen[first : first + AT_ONCE]:
                one = view.views[tp]
                changes += _emptying(tp, one)
                if view.topic_id is not None:
                    unlisted = one.hosts.difference(one.replicas or ())
                    closes += admin_requests.close(tp, view.topic_id, unlisted, one.epoch)
            entries += await self._requests.send(changes, closes)
        return entries

    # Carrying out.

    def noticed(
        self, views: Mapping[TopicPartition, PartitionView], live: Collection[BrokerId]
    ) -> bool:
        """Go on with the deletions that nobody performs; return True if there are deletions to watch over.

        `views`: all partitions; `live`: the registered brokers.
        """
        marked: set[str] = set()
        if self._broker_id == min(live, default=None):
            marked = {
                tp.topic for tp, one in views.items() if one.is_readable and one.is_being_deleted
            }
        now = self._clock.now()
        self._noticed = {topic: self._noticed.get(topic, now) for topic in marked}
        for topic, since in self._noticed.items():
            if now - since < _RESUMED_AFTER_MS or topic in self._deleting or topic in self._work:
                continue
            self._noticed[topic] = now
            self._spawn(topic, is_resumed=True)
        return bool(marked)

    def begin(self, topic: str) -> None:
        """Delete the marked partitions of a topic in the background."""
        if topic not in self._deleting:
            self._spawn(topic, is_resumed=False)

    def _spawn(self, topic: str, *, is_resumed: bool) -> None:
        self._deleting[topic] = asyncio.Event()
        self._tasks.spawn(self._run(topic, is_resumed=is_resumed), f"deletion-{topic}")

    async def _run(self, topic: str, *, is_resumed: bool) -> None:
        try:
            if is_resumed and await self._peers.work_on(topic):
                return
            with self._work.hold(topic):
                await self._delete_until_done(topic)
        except CoordinationError as error:
            logger.info("the deletion of %s is left to others: %r", topic, error)
        finally:
            self._deleting.pop(topic).set()

    async def _delete_until_done(self, topic: str) -> None:
        while True:
            try:
                await self._zookeeper.connected()
                await self._delete(topic)
            except Closed:
                raise
            except (CoordinationError, KafkaError) as error:
                logger.info("the deletion of topic %s is repeated: %r", topic, error)
                await self._clock.sleep(_RETRY_MS)
            else:
                return

    async def _delete(self, topic: str) -> None:
        """Delete the partitions of a topic that are marked now. Raises KafkaError, CoordinationError."""
        view = await topics.read(self._zookeeper, topic, self._faults)
        marked = [tp for tp, one in view.views.items() if one.is_being_deleted]
        if not marked and view.views:
            return
        check_readable(view)
        await self._gate.reached(DELETION, "close")
        entries: list[QueuedRequest] = []
        for first in range(0, len(marked), AT_ONCE):
            closes = _closes(view, marked[first : first + AT_ONCE])
            entries += await self._requests.send((), closes)
        await self._gate.reached(DELETION, "wait")
        while entries:
            entries = await self._requests.wait(entries, _WAIT_MS)
        await self._remove(topic, marked)

    async def _remove(self, topic: str, tps: Iterable[TopicPartition]) -> None:
        """Remove the nodes of these partitions as soon as they have no leader, and those of an empty topic."""
        wanted = frozenset(tps)
        while True:
            view = await topics.read(self._zookeeper, topic, self._faults)
            marked = [tp for tp, one in view.views.items() if tp in wanted and one.is_being_deleted]
            if not view.views and not view.exists:
                await self._refresh([topic])
                return
            if not marked and view.views:
                return
            free = [tp for tp in marked if view.views[tp].leader is None][:AT_ONCE]
            if marked and not free:
                await self._clock.sleep(_POLL_MS)
                continue
            try:
                await self._remove_some(view, free)
            except (MultiFailed, OutcomeUnknown) as error:
                logger.info("partitions of topic %s are removed again: %s", topic, error)
                await self._clock.sleep(_POLL_MS)

    async def _remove_some(self, view: TopicView, tps: Collection[TopicPartition]) -> None:
        multi: list[MultiOp] = [topics.fence(view.name, view.version)] if view.exists else []
        for tp in tps:
            has_node = tp in view.noded
            multi += topics.partition_removal(tp, view.views[tp], has_node=has_node)
        await self._gate.reached(DELETION, "partition")
        if len(tps) == len(view.views):
            await self._gate.reached(DELETION, "topic")
            multi += await self._topic_removal(view)
        await self._zookeeper.multi(multi)

    async def _topic_removal(self, view: TopicView) -> list[MultiOp]:
        multi: list[MultiOp] = []
        if await self._zookeeper.exists(reassignments.parent_of(view.name)) is not None:
            multi.append(reassignments.parent_removal(view.name))
        if view.exists:
            multi.append(topics.removal(view.name, view.version))
        entity = configs.Entity(configs.TOPICS, view.name)
        if await configs.existing(self._zookeeper, [entity]):
            multi.append(Delete(configs.path_of(entity), -1))
        return multi


def _emptying(tp: TopicPartition, view: PartitionView) -> list[MultiOp]:
    if view.is_being_deleted:
        return []
    if view.reassignment is None:
        return [reassignments.request(tp, ())]
    return reassignments.replacement(tp, view, ())


def _closes(view: TopicView, tps: Iterable[TopicPartition]) -> list[admin_requests.Addressed]:
    topic_id = view.topic_id
    if topic_id is None:
        return []  # without the topic's node, no broker has started a replica
    return [
        addressed
        for tp in tps
        for addressed in admin_requests.close(
            tp, topic_id, view.views[tp].hosts, view.views[tp].epoch
        )
    ]


def check_readable(view: TopicView) -> None:
    """Raise KafkaError if a node of the topic is not readable: another program wrote it."""
    unreadable = [str(tp) for tp, one in view.views.items() if not one.is_readable]
    if view.exists and view.topic_id is None:
        unreadable.append(topics.path_of(view.name))
    if unreadable:
        message = f"nodes in ZooKeeper are not readable: {', '.join(unreadable[:10])}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
