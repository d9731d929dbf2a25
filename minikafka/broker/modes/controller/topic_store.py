"""Creating topics, marking topics for deletion and adding partitions, in ZooKeeper.

Every write checks the controller epoch. Invariants: a topic's assignment and settings are written together or
not at all (C20). A topic node is replaced only if its version is still the version that was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    OutcomeUnknown,
)
from minikafka.base.model import ReplicaAssignment
from minikafka.base.ports import Znode, ZooKeeper
from minikafka.broker.capabilities import PartitionPlan, TopicPlan
from minikafka.broker.modes.controller.fenced_writes import FencedWrites
from minikafka.broker.modes.zookeeper.lost_answers import read_back
from minikafka.broker.side_by_side import all_of
from minikafka.zookeeper.nodes import admin_requests, configs, layout, topics

logger = logging.getLogger(__name__)

_CREATED_AT_ONCE: Final = 100
"""Topics of one request that are written in one turn of the event loop, which takes about 5 ms."""
_ATTEMPTS: Final = 5
"""Compare-and-set attempts on one topic node before giving up."""


class ZooKeeperTopics:
    """ZooKeeper implementation of TopicStore."""

    def __init__(self, zookeeper: ZooKeeper, writes: FencedWrites) -> None:
        self._zookeeper = zookeeper
        self._writes = writes
        self._extending = asyncio.Lock()
        """Held while partitions are added to a topic.

        A decoded assignment of 10,000 partitions takes megabytes, so only one topic is changed at a time.
        """

    async def names(self) -> list[str]:
        return await topics.names(self._zookeeper)

    async def existing(self, names: Sequence[str], *, half_made: bool = True) -> set[str]:
        """Return the names in `names` that are existing topics, none of them half made. Raises CoordinationError."""
        return await topics.existing(self._zookeeper, names)

    # Creation.

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        """Create topics; return topic -> error for the topics that were not created.

        The settings that a deleted topic of the same name left in ZooKeeper are replaced.
        """
        entities = [configs.Entity(configs.TOPICS, plan.name) for plan in plans]
        try:
            left_behind = await configs.existing(self._zookeeper, entities)
        except CoordinationError as error:
            return {plan.name: error for plan in plans}
        errors: dict[str, Exception] = {}

        async def create(plan: TopicPlan, entity: configs.Entity) -> None:
            try:
                await self._create(plan, entity, replaces=entity in left_behind)
            except (KafkaError, CoordinationError) as error:
                errors[plan.name] = error

        await all_of(map(create, plans, entities), _CREATED_AT_ONCE)
        return errors

    async def _create(self, plan: TopicPlan, entity: configs.Entity, *, replaces: bool) -> None:
        """Write the topic and its settings in one multi. Raises KafkaError, CoordinationError."""
        assignment = {
            partition: ReplicaAssignment(replicas)
            for partition, replicas in plan.assignment.items()
        }
        try:
            await self._writes.write(
                configs.write(entity, plan.overrides, -1 if replaces else None),
                topics.creation(plan.name, plan.topic_id, assignment),
            )
        except OutcomeUnknown:
            if not await self._has_created(plan):
                raise
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists):
                raise
            message = f"Topic '{plan.name}' already exists."
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, message) from failed
        logger.info("created topic %s with %d partitions", plan.name, len(assignment))

    async def _has_created(self, plan: TopicPlan) -> bool:
        """Return True if the topic's node exists and contains `plan.topic_id`.

        Called when the answer to the creation of the node was lost. Raises OutcomeUnknown if the node cannot be read.
        """
        data = await read_back(self._zookeeper, layout.topic_path(plan.name))
        try:
            return data is not None and topics.decode(data).topic_id == plan.topic_id
        except ValueError:
            return False  # another program wrote the node

    # Deletion.

    async def mark_for_deletion(self, topic: str) -> bool:
        """Mark a topic for deletion; return False if it is marked already."""
        try:
            await self._writes.write(admin_requests.deletion_mark(topic))
        except MultiFailed as failed:
            if isinstance(failed.error, NodeExists):
                return False
            raise
        return True

    # More partitions.

    async def add_partitions(self, topic: str, plan: PartitionPlan, *, validate_only: bool) -> None:
        """Add partitions by compare-and-set; `plan(current assignment)` returns the new partitions."""
        for _ in range(_ATTEMPTS):
            data, stat = await self._read(topic)
            async with self._extending:
                before = _decoded(topic, data)
                added = await plan(before.assignment)
                after = before._replace(assignment={**before.assignment, **added})
                if validate_only or await self._replace(topic, after, stat.version):
                    return
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "the topic is being changed by other requests; retry"
        )

    async def _read(self, topic: str) -> Znode:
        """Return the topic's node. Raises KafkaError if the topic is unknown or marked for deletion."""
        if not topic or "/" in topic:
            raise _unknown(topic)
        paths = [layout.topic_path(topic), layout.delete_topic_path(topic)]
        node, mark = await self._zookeeper.get_many(paths)
        if node is None:
            raise _unknown(topic)
        if mark is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        return node

    async def _replace(self, topic: str, content: topics.Topic, version: int) -> bool:
        """Replace the topic's node; return False if the node no longer has this version.

        If the answer is lost, read the node to find out whether the write succeeded.
        """
        write = topics.replacement(topic, content, version)
        try:
            await self._writes.write(write)
        except OutcomeUnknown:
            if await read_back(self._zookeeper, write.path) != write.data:
                raise
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion):
                return False
            raise
        return True


def _unknown(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")


def _decoded(topic: str, data: bytes) -> topics.Topic:
    try:
        content = topics.decode(data)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the node of topic {topic} is not readable: {error}"
        ) from error
    if sorted(content.assignment) != list(range(len(content.assignment))):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the partitions of topic {topic} are not numbered from 0",
        )
    return content
