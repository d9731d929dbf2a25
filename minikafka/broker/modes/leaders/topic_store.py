"""Creating, extending and deleting topics in the leader-coordinated mode. Any broker may do it.

Invariants: a topic's node and its settings are written together or not at all (C20). A partition exists as soon as it
has a replica list. The steps of a creation (C20, C21):

    request      the partition's node below the reassignments gets its replicas
    start        each replica gets a start request without a leader
    wait         the live replicas have carried it out; a dead one finds it when it starts
    replicas     one multi writes the replica list and removes the request: the partition exists

A creation that ends before leaves requests without a replica list. The next creation of the topic removes them
(`deletion.py`). Many partitions of a topic are created side by side, in the order of their numbers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
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
    NodeExists,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Create, MultiOp
from minikafka.broker.capabilities import Assignment, PartitionPlan, TopicPlan
from minikafka.broker.modes.leaders import admin_requests
from minikafka.broker.modes.leaders.admin_requests import AT_ONCE, AdminRequests
from minikafka.broker.modes.leaders.deletion import OwnDeletions, check_readable
from minikafka.broker.modes.leaders.peers import Peers, in_work
from minikafka.broker.modes.zookeeper.lost_answers import read_back
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.side_by_side import all_of
from minikafka.deciders.leaders.model import PartitionView, Replicas
from minikafka.deciders.leaders.steps import CREATION
from minikafka.zookeeper.nodes import configs
from minikafka.zookeeper.nodes.leaders import reassignments, topics
from minikafka.zookeeper.nodes.leaders.topics import TopicView

logger = logging.getLogger(__name__)

_CREATED_AT_ONCE: Final = 25
"""Topics of one request that are created side by side."""
_ATTEMPTS: Final = 5


class LeadersTopics:
    """TopicStore of the leader-coordinated mode. `refresh(topics)` reads their metadata again."""

    def __init__(
        self,
        ports: Ports,
        requests: AdminRequests,
        deletions: OwnDeletions,
        peers: Peers,
        refresh: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        self._zookeeper = ports.zookeeper
        self._faults = ports.faults
        self._creations = Creations(ports, requests)
        self._deletions = deletions
        self._peers = peers
        self._work = peers.work
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


WAIT_MS: Final = 30_000
"""Time that a live replica has to carry out a request of a creation."""


class Creations:
    """Writes new topics and partitions. Nobody else may work on the topic."""

    def __init__(self, ports: Ports, requests: AdminRequests) -> None:
        self._zookeeper = ports.zookeeper
        self._gate = ports.gate
        self._faults = ports.faults
        self._requests = requests

    async def create(self, plan: TopicPlan) -> None:
        """Create a topic without nodes, partition by partition. Raises KafkaError, CoordinationError."""
        await self._requests.check_receivers(_brokers(plan.assignment))
        await self._gate.reached(CREATION, "topic")
        await self._write_topic(plan)
        await self.add(plan.name, plan.topic_id, 0, plan.assignment)
        logger.info("created topic %s with %d partitions", plan.name, len(plan.assignment))

    async def add(
        self, topic: str, topic_id: bytes, version: int, assignment: Mapping[int, Replicas]
    ) -> None:
        """Add partitions to a topic. `version`: the version of the topic's node, which all writes check.

        Raises KafkaError, CoordinationError: MultiFailed if another broker has taken over the topic.
        """
        await self._requests.check_receivers(_brokers(assignment))
        await reassignments.ensure_parent(self._zookeeper, topic)
        added = [
            (TopicPartition(topic, number), assignment[number]) for number in sorted(assignment)
        ]
        for first in range(0, len(added), AT_ONCE):
            await self._add(topic_id, version, added[first : first + AT_ONCE])

    async def check_deleted(self, topic: str, topic_id: bytes, numbers: Collection[int]) -> None:
        """Raise KafkaError if a broker has not deleted its replica of a former partition with one of these numbers.

        A new partition has the epochs of a former one with the same topic id again, so that the records of the former
        one would count as its own. Raises CoordinationError.
        """
        tps = {TopicPartition(topic, number) for number in numbers}
        closing = await self._requests.closing(tps, topic_id)
        if closing:
            named = ", ".join(map(str, closing))
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"brokers that have not deleted their replicas of former partitions of topic '{topic}' yet: {named}; "
                "start them, or remove them with `minikafka brokers remove`",
            )

    async def _write_topic(self, plan: TopicPlan) -> None:
        """Write the topic's node and its settings in one multi."""
        entity = configs.Entity(configs.TOPICS, plan.name)
        left_behind = await configs.existing(self._zookeeper, [entity])
        create = topics.creation(plan.name, plan.topic_id)
        settings = configs.write(entity, plan.overrides, -1 if left_behind else None)
        try:
            await self._write([settings, create], create)
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists):
                raise
            raise already_exists(plan.name) from failed

    async def _add(
        self, topic_id: bytes, version: int, group: Sequence[tuple[TopicPartition, Replicas]]
    ) -> None:
        await all_of(self._request(version, *one) for one in group)
        await self._gate.reached(CREATION, "start")
        starts = [
            addressed
            for tp, replicas in group
            for addressed in admin_requests.start(tp, topic_id, replicas)
        ]
        entries = await self._requests.send((), starts)
        await self._gate.reached(CREATION, "wait")
        late = await self._requests.wait(entries, WAIT_MS)
        if late:
            named = ", ".join(sorted({str(entry.broker_id) for entry in late}))
            message = f"brokers that have not started their replicas in time: {named}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
        await self._gate.reached(CREATION, "replicas")
        await self._check_id(group[0][0].topic, topic_id)
        await all_of(self._complete(version, *one) for one in group)

    async def _check_id(self, topic: str, topic_id: bytes) -> None:
        """Raise KafkaError if the topic was deleted, and perhaps created again, while the replicas started.

        The nodes of a topic that was created again can have the versions that the fence checks.
        """
        found = await topics.read_ids(self._zookeeper, [topic], self._faults)
        if found.get(topic) != topic_id:
            message = f"The topic '{topic}' was deleted or created again by another request."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    async def _request(self, version: int, tp: TopicPartition, replicas: Replicas) -> None:
        await self._gate.reached(CREATION, "request")
        create = reassignments.request(tp, replicas)
        await self._write([topics.fence(tp.topic, version), create], create)

    async def _complete(self, version: int, tp: TopicPartition, replicas: Replicas) -> None:
        node, assigned = topics.assignment(tp, replicas)
        removal = reassignments.removal(tp, 0)
        await self._write([topics.fence(tp.topic, version), node, assigned, removal], assigned)

    async def _write(self, multi: Sequence[MultiOp], create: Create) -> None:
        """Send a multi. After a lost answer, the node that `create` creates shows whether it was applied."""
        try:
            await self._zookeeper.multi(multi)
        except OutcomeUnknown:
            if await read_back(self._zookeeper, create.path) != create.data:
                raise


def _brokers(assignment: Mapping[int, Replicas]) -> set[BrokerId]:
    return {replica for replicas in assignment.values() for replica in replicas}


def already_exists(topic: str) -> KafkaError:
    """Return the error of the creation of a topic that exists."""
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")
