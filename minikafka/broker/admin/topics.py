"""Creating topics and marking topics for deletion, on the brokers that the mode allows.

This module checks and plans each request. The TopicStore then writes the change. The client is answered
when this broker's metadata shows the change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ConfigError, CoordinationError, ErrorCode, KafkaError
from minikafka.base.model import (
    NO_LEADER,
    BrokerId,
    RequestedTopic,
    topic_id_text,
    version_4_uuid,
)
from minikafka.base.ports import Rng
from minikafka.broker.admin.names import TakenNames, name_error
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.capabilities import Administration, TopicPlan, TopicStore
from minikafka.broker.clients.access import EVERYTHING
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.side_by_side import AT_ONCE, all_of
from minikafka.broker.turns import Pauses
from minikafka.deciders.controller.assignments import (
    PARTITIONS_MAX,
    assign,
    check_replication_factor,
    check_room,
    checked_assignment,
)

logger = logging.getLogger(__name__)

DEFAULT: Final = -1
"""Stands for the broker's default number of partitions or replicas (KIP-464)."""
_LOOK_MS: Final = 200
"""Interval of reads in the store while waiting for the deletion of a topic that was never in the metadata."""


Record: TypeAlias = Callable[[int], None]
"""Function that counts partitions of a client, which are about to be created or deleted.

Raises KafkaError if the client must wait (KIP-599).
"""


def unlimited(partitions: int) -> None:
    """Do nothing: the `Record` of a client without a quota."""


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result for one topic of a request; `plan` is set only if the topic can be created."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    plan: TopicPlan | None = None


class TopicAdmin:
    """Creates topics, and marks topics for deletion, while this broker may carry out such requests."""

    def __init__(
        self,
        store: TopicStore,
        administration: Administration,
        metadata: MetadataCache,
        settings: DynamicConfig,
        rng: Rng,
        pauses: Pauses,
    ) -> None:
        self._store = store
        self._administration = administration
        self._metadata = metadata
        self._settings = settings
        self._rng = rng
        self._pauses = pauses

    # ---- create

    async def create_topics(
        self,
        topics: Sequence[RequestedTopic],
        timeout_ms: int,
        validate_only: bool = False,
        allowed: Container[str] = EVERYTHING,
        record: Record = unlimited,
    ) -> list[TopicResult]:
        """Create topics, wait for their leaders in this broker's metadata, and return one result per
        topic name, in order.

        `allowed`: the names that the client may create. Every result is NOT_CONTROLLER if this broker may not carry out
        the request. `record` is called before a topic is created.
        """
        by_name: dict[str, RequestedTopic] = {}
        repeated: set[str] = set()
        async for topic in self._pauses.each(topics):
            if topic.name in by_name:
                repeated.add(topic.name)
            by_name[topic.name] = topic
        try:
            self._administration.check_may_act()
            existing = await self._existing(list(by_name), half_made=False)
            taken = await self._store.names()
        except (KafkaError, CoordinationError) as error:
            return [_refused(name, error) async for name in self._pauses.each(by_name)]
        planned = await self._plans(by_name, repeated, existing, taken, allowed)
        if not validate_only:
            planned = [_recorded(result, record) for result in planned]
        plans = [result.plan for result in planned if result.plan]
        if validate_only or not plans:
            return planned
        return await self._create_and_wait(planned, plans, timeout_ms)

    async def _create_and_wait(
        self, planned: Sequence[TopicResult], plans: Sequence[TopicPlan], timeout_ms: int
    ) -> list[TopicResult]:
        errors = await self._store.create(plans)
        results = [
            _refused(result.name, errors[result.name]) if result.name in errors else result
            for result in planned
        ]
        created = [result.plan for result in results if result.plan]
        names = [plan.name for plan in created]
        await self._metadata.wait_until(lambda: all(map(self._is_led, created)), timeout_ms, names)
        return [self._checked_for_leaders(result) for result in results]

    async def _existing(self, names: Sequence[str], *, half_made: bool = True) -> set[str]:
        """Return the names in `names` that are existing topics. Invalid names are not looked up.

        `half_made`: see `TopicStore.existing`. Such a topic can be created, and deleted.
        """
        found: set[str] = set()
        async for part in self._pauses.parts(names):
            if allowed := [name for name in part if not name_error(name)]:
                found |= await self._store.existing(allowed, half_made=half_made)
        return found

    async def _plans(
        self,
        topics: Mapping[str, RequestedTopic],
        repeated: Collection[str],
        existing: Collection[str],
        taken: Iterable[str],
        allowed: Container[str],
    ) -> list[TopicResult]:
        """Return a plan or an error for each topic; serve other connections after every `AT_ONCE` topics.

        `taken`: the names in the store. A new name must not collide with these names, with names in
        the metadata, or with earlier names in the request.
        """
        room = PARTITIONS_MAX
        names = TakenNames(taken)
        for name in self._metadata.topics:
            names.add(name)
        results = []
        async for name, topic in self._pauses.each(topics.items(), AT_ONCE):
            try:
                if name in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is given twice")
                if name not in allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
                plan = self._plan(topic, name in existing, names, room)
            except KafkaError as error:
                results.append(TopicResult(name, error.code, error.detail))
                continue
            names.add(name)
            room -= len(plan.assignment)
            results.append(TopicResult(name, plan=plan))
        return results

    def _plan(self, topic: RequestedTopic, exists: bool, taken: TakenNames, room: int) -> TopicPlan:
        """Return the plan for creating one topic. Raises KafkaError if the topic cannot be created."""
        reason = name_error(topic.name)
        if reason:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if exists:
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
            )
        twin = taken.colliding(topic.name)
        if twin is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the names of topic {topic.name} and of the existing topic {twin} differ only in '.' and '_'",
            )
        overrides, config = self._configured(topic.configs)
        assignment = self._assigned(topic, room)
        return TopicPlan(topic.name, self._new_topic_id(), assignment, overrides, config)

    def _configured(self, configs: Mapping[str, str | None]) -> tuple[dict[str, str], TopicConfig]:
        overrides = {}
        for key, value in configs.items():
            if value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} has no value")
            overrides[key] = value
        try:
            return overrides, TopicConfig.from_broker(self._settings.current, overrides)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _assigned(self, topic: RequestedTopic, room: int) -> Mapping[int, tuple[BrokerId, ...]]:
        if topic.assignment:
            if (topic.partitions, topic.replication_factor) != (DEFAULT, DEFAULT):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "give either an assignment or numbers of partitions and replicas, not both",
                )
            check_room(len(topic.assignment), room)
            return checked_assignment(topic.assignment, self._known_brokers())
        return self._spread(topic.partitions, topic.replication_factor, room)

    def _spread(
        self, partitions: int, replication_factor: int, room: int
    ) -> dict[int, tuple[BrokerId, ...]]:
        if partitions == DEFAULT:
            partitions = self._settings.current.num_partitions
        if replication_factor == DEFAULT:
            replication_factor = self._settings.current.default_replication_factor
        if partitions < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
            )
        check_room(partitions, room)
        brokers = list(self._metadata.brokers.values())
        check_replication_factor(replication_factor, len(brokers))
        start, shift = (int(self._rng.uniform(0, len(brokers))) for _ in range(2))
        return assign(brokers, partitions, replication_factor, start, shift)

    def _known_brokers(self) -> set[BrokerId]:
        """Return the ids of all live brokers, and of stopped brokers that hold replicas, as one set."""
        known = set(self._metadata.brokers)
        for states in self._metadata.topics.values():
            for state in states.values():
                known.update(state.replicas)
        return known

    def _new_topic_id(self) -> bytes:
        """Return a random version 4 UUID whose text does not start with "-".

        A command-line tool would take a text that starts with "-" for an option.
        """
        while True:
            topic_id = version_4_uuid(self._rng.bytes(16))
            if not topic_id_text(topic_id).startswith("-"):
                return topic_id

    def _is_led(self, plan: TopicPlan) -> bool:
        if self._metadata.topic_ids.get(plan.name) != plan.topic_id:
            return False
        states = self._metadata.topics.get(plan.name, {})
        return all(
            partition in states and states[partition].leader != NO_LEADER
            for partition in plan.assignment
        )

    def _checked_for_leaders(self, result: TopicResult) -> TopicResult:
        if result.plan is None or self._is_led(result.plan):
            return result
        return TopicResult(
            result.name,
            ErrorCode.REQUEST_TIMED_OUT,
            "the topic was created but has no leaders yet",
            result.plan,
        )

    # ---- delete

    async def delete_topics(
        self,
        names: Iterable[str],
        timeout_ms: int,
        allowed: Container[str] = EVERYTHING,
        record: Record = unlimited,
    ) -> dict[str, TopicResult]:
        """Mark the topics for deletion, wait until the controller has deleted them, and return a result per topic.

        A topic counts as deleted when this broker's metadata no longer shows it. A topic that was never
        in the metadata counts as deleted when the store no longer has it. A topic that still
        exists after the timeout gets REQUEST_TIMED_OUT. Such a topic stays marked and is deleted later.
        As in Kafka, a topic gets UNKNOWN_TOPIC_OR_PARTITION if it was already marked when this call
        began and was not in the metadata. `allowed`: the names that the client may delete. `record` is
        called before a topic is marked.
        """
        wanted = dict.fromkeys(names)
        shown = {name for name in self._metadata.topics if name in wanted}
        try:
            self._administration.check_may_act()
        except KafkaError as error:
            return {name: _refused(name, error) async for name in self._pauses.each(wanted)}
        if not self._settings.current.delete_topic_enable:
            code = ErrorCode.TOPIC_DELETION_DISABLED
            return {
                name: TopicResult(name, code, "delete.topic.enable is false") for name in wanted
            }
        denied = {
            name: _denied(name) async for name in self._pauses.each(wanted) if name not in allowed
        }
        try:
            existing = await self._existing([name for name in wanted if name not in denied])
        except CoordinationError as error:
            return {name: _refused(name, error) for name in wanted} | denied
        fresh: set[str] = set()
        marks = await all_of(
            (self._mark(name, fresh, record) for name in sorted(existing)), AT_ONCE
        )
        results = {
            result.name: result
            for result in marks
            if result.error or result.name in shown or result.name in fresh
        }
        marked = {name for name, result in results.items() if not result.error}
        late = await self._wait_for_deletions(marked, fresh, timeout_ms)
        results |= {name: _late(name) for name in late}
        return {
            name: denied.get(name) or results.get(name) or _unknown(name)
            async for name in self._pauses.each(wanted)
        }

    async def _wait_for_deletions(
        self, marked: Iterable[str], fresh: Collection[str], timeout_ms: int
    ) -> set[str]:
        """Wait until all topics in `marked` are deleted; return the topics that still exist after the timeout.

        A topic in this broker's metadata counts as deleted when the metadata no longer shows the topic. The topics
        in `fresh` were marked by this call. Such a topic may be deleted before the metadata ever shows it, so the
        store is read at an interval until the metadata shows the topic. A topic that is neither in the metadata
        nor in `fresh` counts as deleted, because the metadata showed the topic when `delete_topics` began.
        """
        topics = self._metadata.topic_ids
        shown = {name: topics.get(name) for name in marked if name in self._metadata.topics}
        unseen = set(fresh) - shown.keys()

        def gone() -> bool:
            for name in unseen.intersection(self._metadata.topics):
                shown[name] = self._metadata.topic_ids.get(name)
            unseen.difference_update(shown)
            return not unseen and not self._still_shown(shown)

        left_ms = timeout_ms
        while not gone() and left_ms > 0:
            if unseen:
                unseen &= await self._still_stored(unseen)
            step_ms = min(left_ms, _LOOK_MS) if unseen else left_ms
            await self._metadata.wait_until(gone, step_ms, shown)
            left_ms -= step_ms
        return unseen | self._still_shown(shown)

    async def _still_stored(self, names: Collection[str]) -> set[str]:
        """Return the topics among `names` that still exist in the store; all `names` if the store cannot be read."""
        try:
            return await self._existing(list(names))
        except CoordinationError:
            return set(names)

    def _still_shown(self, topics: Mapping[str, bytes | None]) -> set[str]:
        """Return the names in `topics` (name -> topic id) that the metadata still shows with that topic id."""
        now = self._metadata
        return {
            name
            for name, topic_id in topics.items()
            if name in now.topics and now.topic_ids.get(name) == topic_id
        }

    async def _mark(self, name: str, fresh: set[str], record: Record) -> TopicResult:
        """Mark the topic for deletion; add its name to `fresh` if the topic was not marked before."""
        try:
            record(len(self._metadata.topics.get(name, ())))
            if await self._store.mark_for_deletion(name):
                fresh.add(name)
                logger.info("marked topic %s for deletion", name)
        except (KafkaError, CoordinationError) as error:
            return _refused(name, error)
        return TopicResult(name)


def _recorded(result: TopicResult, record: Record) -> TopicResult:
    """Count the partitions of a topic that is about to be created; return the refusal if there were too many."""
    if result.plan is None:
        return result
    try:
        record(len(result.plan.assignment))
    except KafkaError as error:
        return TopicResult(result.name, error.code, error.detail)
    return result


def _denied(name: str) -> TopicResult:
    return TopicResult(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _unknown(name: str) -> TopicResult:
    return TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _late(name: str) -> TopicResult:
    message = "the topic is marked for deletion but is not deleted yet"
    return TopicResult(name, ErrorCode.REQUEST_TIMED_OUT, message)


def _refused(name: str, error: Exception) -> TopicResult:
    return TopicResult(name, *refusal(error, f"topic {name}"))
