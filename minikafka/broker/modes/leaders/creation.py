"""The creation of topics and partitions by an administrator's side (C20, C21; note of the design, row 11).

    request      the partition's node below the reassignments gets its replicas
    start        each replica gets a start request without a leader
    wait         the live replicas have carried it out; a dead one finds it when it starts
    replicas     one multi writes the replica list and removes the request: the partition exists

A creation that ends before leaves requests without a replica list. The next creation of the topic removes them
(`deletion.py`). Many partitions of a topic are created side by side, in the order of their numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from minikafka.base.errors import (
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    OutcomeUnknown,
)
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Create, Gate, MultiOp, ZooKeeper
from minikafka.broker.capabilities import TopicPlan
from minikafka.broker.modes.leaders import admin_requests
from minikafka.broker.modes.leaders.admin_requests import AT_ONCE, AdminRequests
from minikafka.broker.modes.zookeeper.lost_answers import read_back
from minikafka.broker.turns.side_by_side import all_of
from minikafka.leaders.model import Replicas
from minikafka.leaders.steps import CREATION
from minikafka.zk.nodes import configs
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import reassignments, topics

logger = logging.getLogger(__name__)

WAIT_MS: Final = 30_000
"""Time that a live replica has to carry out a request of a creation."""


class Creations:
    """Writes new topics and partitions. Nobody else may work on the topic."""

    def __init__(
        self, zookeeper: ZooKeeper, requests: AdminRequests, gate: Gate, faults: Faults
    ) -> None:
        self._zookeeper = zookeeper
        self._faults = faults
        self._requests = requests
        self._gate = gate

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
