"""Adding partitions to existing topics, on the active controller (I9).

Invariant: the assignments of a topic's existing partitions do not change. A request for a topic that is being
reassigned is refused, because the reassignment writes the same topic node.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from functools import partial
from typing import Final, NamedTuple

from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.model import NO_LEADER, BrokerId, ReplicaAssignment
from minikafka.base.names import GROUP_TOPIC
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.admin.topics import Record, unlimited
from minikafka.broker.capabilities import Administration, Assignment, TopicStore
from minikafka.broker.clients.access import EVERYTHING
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.side_by_side import AT_ONCE, all_of
from minikafka.broker.turns import Pauses
from minikafka.deciders.controller.assignments import (
    PARTITIONS_MAX,
    assign_more,
    check_replication_factor,
    check_room,
)

logger = logging.getLogger(__name__)

Replicas = tuple[BrokerId, ...]
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")


class MorePartitions(NamedTuple):
    """A request to increase a topic to `total` partitions.

    `assignments`: the replicas of each new partition; None if the controller chooses the replicas.
    """

    topic: str
    total: int
    assignments: tuple[Replicas, ...] | None = None


class CreatePartitionsResult(NamedTuple):
    """The result for one topic of a CreatePartitions request."""

    topic: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class _Room:
    """The limits on the number of partitions that one request creates in all its topics."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._counted: dict[str, int] = {}

    def count(self, topic: str, partitions: int) -> None:
        """Record the number of new partitions of a topic, replacing its earlier number.

        Raises KafkaError POLICY_VIOLATION if the request would create too many partitions, and the error of `record`.
        """
        is_new = topic not in self._counted
        self._counted[topic] = 0
        check_room(partitions, PARTITIONS_MAX - sum(self._counted.values()))
        if is_new:
            self._record(partitions)
        self._counted[topic] = partitions


class PartitionAdmin:
    """Adds partitions to topics while this broker may carry out such requests."""

    def __init__(
        self,
        store: TopicStore,
        administration: Administration,
        metadata: MetadataCache,
        pauses: Pauses,
    ) -> None:
        self._pauses = pauses
        self._store = store
        self._administration = administration
        self._metadata = metadata

    async def create_partitions(
        self,
        asked: Sequence[MorePartitions],
        timeout_ms: int,
        validate_only: bool = False,
        allowed: Container[str] = EVERYTHING,
        record: Record = unlimited,
    ) -> list[CreatePartitionsResult]:
        """Add partitions, wait for their leaders in this broker's metadata, and return one result per topic.

        If a leader is still missing after `timeout_ms`, the result of the topic is REQUEST_TIMED_OUT, although
        the partitions were added. `allowed`: the topics that the client may alter. `record` is called before
        partitions are added to a topic.
        """
        named: dict[str, None] = {}
        repeated: dict[str, None] = {}
        each = self._pauses.each
        async for item in each(asked):
            (repeated if item.topic in named else named)[item.topic] = None
        try:
            self._administration.check_may_act()
        except KafkaError as error:
            return [
                CreatePartitionsResult(topic, error.code, error.detail)
                async for topic in each(named)
            ]
        once = [item async for item in each(asked) if item.topic not in repeated]
        twice = (ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        results = [CreatePartitionsResult(topic, *twice) async for topic in each(repeated)]
        results += [
            CreatePartitionsResult(item.topic, *_DENIED)
            async for item in each(once)
            if item.topic not in allowed
        ]
        once = [item async for item in each(once) if item.topic in allowed]
        room = _Room(unlimited if validate_only else record)
        results += await all_of((self._add(item, room, validate_only) for item in once), AT_ONCE)
        if validate_only:
            return results
        done = {result.topic for result in results if not result.error}
        added = [item for item in once if item.topic in done]
        await self._metadata.wait_until(lambda: all(map(self._is_led, added)), timeout_ms, done)
        late = {item.topic for item in added if not self._is_led(item)}
        return [self._late(result) if result.topic in late else result for result in results]

    def _late(self, result: CreatePartitionsResult) -> CreatePartitionsResult:
        message = "the partitions were created but have no leaders yet"
        return CreatePartitionsResult(result.topic, ErrorCode.REQUEST_TIMED_OUT, message)

    def _is_led(self, item: MorePartitions) -> bool:
        states = self._metadata.topics.get(item.topic, {}).values()
        return len(states) >= item.total and all(state.leader != NO_LEADER for state in states)

    async def _add(
        self, item: MorePartitions, room: _Room, validate_only: bool
    ) -> CreatePartitionsResult:
        try:
            await self._store.add_partitions(
                item.topic, partial(self._planned, item, room), validate_only=validate_only
            )
        except (KafkaError, CoordinationError) as error:
            return CreatePartitionsResult(item.topic, *refusal(error, f"topic {item.topic}"))
        if not validate_only:
            logger.info("topic %s has %d partitions now", item.topic, item.total)
        return CreatePartitionsResult(item.topic)

    async def _planned(
        self, item: MorePartitions, room: _Room, existing: Assignment
    ) -> dict[int, ReplicaAssignment]:
        """Return the replicas of the new partitions, by partition number.

        Raises KafkaError if the partitions cannot be added.
        """
        topic, count, given = item
        if topic == GROUP_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"partitions cannot be added to {topic}: their number determines which one stores each group",
            )
        if any(assignment.is_being_reassigned for assignment in existing.values()):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{topic}'.",
            )
        more = count - len(existing)
        if more < 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic currently has {len(existing)} partitions, "
                f"which is higher than the requested {count}.",
            )
        if more == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions."
            )
        room.count(topic, more)
        replicas = existing[0].replicas
        if given is not None:
            added = self._by_hand(given, more, len(existing), len(replicas))
            return {partition: ReplicaAssignment(chosen) for partition, chosen in added.items()}
        check_replication_factor(len(replicas), len(self._metadata.brokers))
        return await self._chosen(replicas, len(existing), count)

    async def _chosen(
        self, first_replicas: Replicas, count: int, total: int
    ) -> dict[int, ReplicaAssignment]:
        """Return replicas for the new partitions `count` to `total - 1` of a topic, by partition number."""
        brokers = list(self._metadata.brokers.values())
        added: dict[int, ReplicaAssignment] = {}
        async for numbers in self._pauses.parts(range(count, total)):
            part = assign_more(brokers, first_replicas, count, numbers)
            added |= {number: ReplicaAssignment(chosen) for number, chosen in part.items()}
        return added

    def _by_hand(
        self, given: Sequence[Replicas], more: int, first: int, factor: int
    ) -> dict[int, Replicas]:
        unknown = {id_ for replicas in given for id_ in replicas} - self._metadata.brokers.keys()
        if unknown:
            raise _invalid(f"Unknown broker(s) in replica assignment: {_listed(sorted(unknown))}.")
        if len(given) != more:
            raise _invalid(
                f"Increasing the number of partitions by {more} "
                f"but {len(given)} assignments provided."
            )
        for partition, replicas in enumerate(given, first):
            if not replicas:
                raise _invalid(f"Cannot have replication factor of 0 for partition id {partition}.")
            if len(set(replicas)) < len(replicas):
                raise _invalid(
                    "Duplicate brokers not allowed in replica assignment: "
                    f"{_listed(replicas)} for partition id {partition}."
                )
        odd = {
            p: len(replicas) for p, replicas in enumerate(given, first) if len(replicas) != factor
        }
        if odd:
            raise _invalid(
                f"Inconsistent replication factor between partitions, partition 0 has {factor} "
                f"while partitions [{_listed(list(odd))}] have replication factors "
                f"[{_listed(list(odd.values()))}], respectively."
            )
        return dict(enumerate(given, first))


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _listed(ids: Sequence[BrokerId]) -> str:
    return ", ".join(map(str, ids))
