"""More partitions for topics that exist (I9): fenced writes of the active controller.

Invariant: the topic's node is set at the version it was read at, its id and every other partition's
assignment kept; a topic that is being reassigned is left alone, as the controller writes there too.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
)
from minikafka.base.model import NO_LEADER, BrokerId, ReplicaAssignment
from minikafka.base.ports import Coordination, Ledger, Set, Stat
from minikafka.broker.admin.fenced import NOT_CONTROLLER, Controller, FencedWrites, refusal
from minikafka.broker.assignments import (
    PARTITIONS_MAX,
    assign_more,
    check_replication_factor,
    check_room,
)
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.side_by_side import all_of
from minikafka.ledger.record import NOTHING
from minikafka.zk import layout

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
"""Writes to one topic's node that others may be quicker than."""

Replicas = tuple[BrokerId, ...]
Assignment = Mapping[int, ReplicaAssignment]


class MorePartitions(NamedTuple):
    """So many partitions in all; `assignments`: replicas of each new one, None to have them chosen."""

    topic: str
    total: int
    assignments: tuple[Replicas, ...] | None = None


class Result(NamedTuple):
    """What became of one topic of a request."""

    topic: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class PartitionAdmin:
    """Adds partitions while this broker is the controller."""

    def __init__(
        self,
        coordination: Coordination,
        controller: Controller,
        metadata: MetadataCache,
        ledger: Ledger = NOTHING,
    ) -> None:
        self._coordination = coordination
        self._controller = controller
        self._writes = FencedWrites(coordination, controller, ledger)
        self._metadata = metadata

    async def create_partitions(
        self, asked: Sequence[MorePartitions], timeout_ms: int, validate_only: bool = False
    ) -> list[Result]:
        """One result per topic; waits until this broker's metadata shows leaders of all partitions.

        REQUEST_TIMED_OUT where it did not within the time: the partitions are there all the same.
        """
        counts = Counter(item.topic for item in asked)
        if not self._controller.is_active:
            return [Result(topic, ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER) for topic in counts]
        once = [item for item in asked if counts[item.topic] == 1]
        twice = (ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        results = [Result(topic, *twice) for topic, count in counts.items() if count > 1]
        results += await all_of(self._add(item, validate_only) for item in once)
        if validate_only:
            return results
        added = [item for item in once if Result(item.topic) in results]
        await self._metadata.wait_until(lambda: all(map(self._is_led, added)), timeout_ms)
        late = {item.topic for item in added if not self._is_led(item)}
        return [self._late(result) if result.topic in late else result for result in results]

    def _late(self, result: Result) -> Result:
        message = "the partitions were created but have no leaders yet"
        return Result(result.topic, ErrorCode.REQUEST_TIMED_OUT, message)

    def _is_led(self, item: MorePartitions) -> bool:
        states = self._metadata.topics.get(item.topic, {})
        return all(
            partition in states and states[partition].leader != NO_LEADER
            for partition in range(item.total)
        )

    async def _add(self, item: MorePartitions, validate_only: bool) -> Result:
        try:
            for _ in range(_ATTEMPTS):
                node = await self._read(item.topic)
                topic_id, existing = _decoded(item.topic, node[0])
                added = self._planned(item, existing)
                if validate_only:
                    return Result(item.topic)
                data = layout.encode_topic(topic_id, {**existing, **added})
                if await self._write(item.topic, data, node[1].version):
                    logger.info("topic %s has %d partitions now", item.topic, item.total)
                    return Result(item.topic)
        except (KafkaError, CoordinationError) as error:
            return Result(item.topic, *refusal(error, f"topic {item.topic}"))
        message = "the topic is being changed all the time; ask again"
        return Result(item.topic, ErrorCode.REQUEST_TIMED_OUT, message)

    async def _read(self, topic: str) -> tuple[bytes, Stat]:
        """The topic's node. Raises KafkaError when there is none, or when it is about to go."""
        paths = [layout.topic_path(topic), layout.delete_topic_path(topic)]
        usable = topic and "/" not in topic
        node, mark = await self._coordination.get_many(paths) if usable else (None, None)
        if node is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist."
            )
        if mark is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        return node

    async def _write(self, topic: str, data: bytes, version: int) -> bool:
        """False when somebody else wrote the node meanwhile."""
        try:
            await self._writes.write([Set(layout.topic_path(topic), data, version)])
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion) and failed.index > 0:
                return False
            raise
        return True

    def _planned(self, item: MorePartitions, existing: Assignment) -> Assignment:
        """The new partitions. Raises KafkaError with the reason when they cannot be added as asked."""
        topic, count, given = item
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
        check_room(more, PARTITIONS_MAX)
        replicas = {partition: entry.replicas for partition, entry in existing.items()}
        if given is None:
            check_replication_factor(len(replicas[0]), len(self._metadata.brokers))
            added = assign_more(list(self._metadata.brokers.values()), replicas, more)
        else:
            added = self._by_hand(given, more, len(existing), len(replicas[0]))
        return {partition: ReplicaAssignment(chosen) for partition, chosen in added.items()}

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


def _decoded(topic: str, data: bytes) -> tuple[bytes | None, dict[int, ReplicaAssignment]]:
    try:
        topic_id, assignment = layout.decode_topic(data)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the node of topic {topic} is not readable: {error}"
        ) from error
    if sorted(assignment) != list(range(len(assignment))):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the partitions of topic {topic} are not numbered from 0",
        )
    return topic_id, assignment


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _listed(ids: Sequence[BrokerId]) -> str:
    return ", ".join(map(str, ids))
