"""Creating, extending and deleting topics in the leader-coordinated mode. Any broker may do it.

Invariants: a topic's node and its settings are written together or not at all (C20). A partition exists as soon as it
has a replica list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Final

from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    ErrorCode,
    FollowerStateChangeQueueFull,
    KafkaError,
    MultiFailed,
    NoNode,
)
from minikafka.base.model import ReplicaAssignment
from minikafka.base.ports import ZooKeeper
from minikafka.broker.capabilities import Assignment, PartitionPlan, TopicPlan
from minikafka.broker.modes.leaders.creation import Creations, already_exists
from minikafka.broker.modes.leaders.deletion import Deletions, check_readable
from minikafka.broker.modes.leaders.peers import Peers
from minikafka.broker.modes.leaders.topics_in_work import TopicsInWork, in_work
from minikafka.broker.turns.side_by_side import all_of
from minikafka.leaders.model import PartitionView, Replicas
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import topics
from minikafka.zk.nodes.leaders.topics import TopicView

_CREATED_AT_ONCE: Final = 25
"""Topics of one request that are created side by side."""
_ATTEMPTS: Final = 5


class LeadersTopics:
    """TopicStore of the leader-coordinated mode. `refresh(topics)` reads their metadata again."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        creations: Creations,
        deletions: Deletions,
        work: TopicsInWork,
        peers: Peers,
        faults: Faults,
        refresh: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        self._zookeeper = zookeeper
        self._creations = creations
        self._deletions = deletions
        self._work = work
        self._peers = peers
        self._faults = faults
        self._refresh = refresh
        self._extending = asyncio.Lock()
        """Held while partitions are added to a topic."""

    async def names(self) -> list[str]:
        return await topics.names(self._zookeeper)

    async def existing(self, names: Sequence[str], *, half_made: bool = True) -> set[str]:
        """Return the names in `names` that are existing topics. Raises CoordinationError.

        `half_made`: also topics without partitions, whose creation has not ended or has failed.
        """
        found = set(await topics.read_ids(self._zookeeper, list(names), self._faults))
        if half_made:
            return found
        views = await all_of(self._read(topic) for topic in sorted(found))
        return {view.name for view in views if view.is_complete}

    async def _read(self, topic: str) -> TopicView:
        return await topics.read(self._zookeeper, topic, self._faults)

    # Creation.

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        """Create topics; return topic -> error for the topics that were not created."""
        errors: dict[str, Exception] = {}

        async def create(plan: TopicPlan) -> None:
            try:
                await self._create(plan)
            except (KafkaError, CoordinationError) as error:
                errors[plan.name] = _explained(error, plan.name)

        await all_of(map(create, plans), _CREATED_AT_ONCE)
        with suppress(CoordinationError):  # the background reads them too
            await self._refresh([plan.name for plan in plans if plan.name not in errors])
        return errors

    async def _create(self, plan: TopicPlan) -> None:
        """Remove what a failed attempt has left (C21), then create the topic."""
        if plan.name in self._work:
            raise already_exists(plan.name)
        with self._work.hold(plan.name):
            view = await self._read(plan.name)
            if view.is_complete:
                raise already_exists(plan.name)
            if view.exists or view.views:
                if await self._peers.work_on(plan.name):
                    raise already_exists(plan.name)
                await self._deletions.remove_half_made(view)
            await self._creations.create(plan)

    # Deletion.

    async def mark_for_deletion(self, topic: str) -> bool:
        """Write the requests to delete a topic's partitions, and delete them in the background.

        Return False if they were written before. Raises KafkaError, CoordinationError.
        """
        return await self._deletions.mark(topic)

    # More partitions.

    async def add_partitions(self, topic: str, plan: PartitionPlan, *, validate_only: bool) -> None:
        if not topic or "/" in topic:
            raise _unknown(topic)
        async with self._extending:
            if topic in self._work:
                raise in_work(topic)
            with self._work.hold(topic):
                await self._extend(topic, plan, validate_only=validate_only)

    async def _extend(self, topic: str, plan: PartitionPlan, *, validate_only: bool) -> None:
        for _ in range(_ATTEMPTS):
            view = await self._extensible(topic)
            added = await plan(_assignment(view))
            if validate_only:
                return
            assert view.topic_id is not None, view
            wanted = _numbered(view, (new.replicas for _, new in sorted(added.items())))
            await self._creations.check_deleted(topic, view.topic_id, wanted)
            try:
                await self._creations.add(topic, view.topic_id, view.version, wanted)
            except MultiFailed:
                continue  # another request changes the topic
            except FollowerStateChangeQueueFull as error:
                raise _explained(error, topic) from error
            await self._refresh([topic])
            return
        raise in_work(topic)

    async def _extensible(self, topic: str) -> TopicView:
        """Return a topic that can be extended, after the removal of a failed extension. Raises KafkaError."""
        view = await self._read(topic)
        if not view.exists or not view.views:
            raise _unknown(topic)
        check_readable(view)
        if any(one.is_being_deleted for one in view.views.values()):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        if all(one.replicas is not None for one in view.views.values()):
            return view
        if await self._peers.work_on(topic):
            raise in_work(topic)
        await self._deletions.remove_half_made(view)
        return await self._read(topic)


def _assignment(view: TopicView) -> Assignment:
    """Return the replicas of a topic's partitions, in order. They are numbered from 0, also if a partition is missing.

    A partition is missing if its reassignment was empty, so that it was deleted alone.
    """
    return dict(enumerate(map(assignment_of, view.views.values())))


def _numbered(view: TopicView, added: Iterable[Replicas]) -> dict[int, Replicas]:
    """Return the replicas of new partitions under the lowest numbers that no partition of the topic has."""
    numbers = {tp.partition for tp in view.views}
    return dict(zip((number for number in count() if number not in numbers), added))  # noqa: B905


def assignment_of(view: PartitionView) -> ReplicaAssignment:
    """Return the replicas of a partition as Kafka shows them: during a reassignment those of AR ∪ RAR."""
    assigned = ReplicaAssignment(view.replicas or ())
    target = view.reassignment
    return assigned if target is None else assigned.reassigned_to(target.replicas)


def _explained(error: Exception, topic: str) -> Exception:
    """Return the error with a message for the client, where another module's default says less."""
    if isinstance(error, FollowerStateChangeQueueFull):
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    if isinstance(error, MultiFailed) and isinstance(error.error, BadVersion | NoNode):
        message = f"The topic '{topic}' was deleted or created again by another request."
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return error


def _unknown(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
