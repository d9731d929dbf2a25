"""Topics made and marked for deletion: fenced writes of the active controller (`architecture.md` §5.4).

Invariant: nothing is written unless this broker is the controller of the epoch that the same multi
checks; a topic's assignment and its configuration appear together or not at all (C20).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import (
    ConfigError,
    ControllerMoved,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import NO_LEADER, BrokerId, ReplicaAssignment
from minikafka.base.ports import Check, ControlPlane, Coordination, Create, MultiOp, Rng, Set, Tasks
from minikafka.broker.assignments import assign, checked_assignment
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.topic_configs import TopicConfigs
from minikafka.rpc import messages
from minikafka.zk import layout

logger = logging.getLogger(__name__)

DEFAULT: Final = -1
"""Partitions or replication factor as the broker's configuration has them (KIP-464)."""
PARTITIONS_MAX: Final = 10_000
"""Partitions that one request may create, so that a number in it cannot cost memory (as Kafka's KRaft)."""
AUTO_CREATE_TIMEOUT_MS: Final = 10_000
NAME_LENGTH_MAX: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_CHECK, _CONFIG, _TOPIC = range(3)
"""Places of the operations in the multi that creates a topic."""


class Controller(Protocol):
    """Who rules the cluster, as this broker knows (`broker/controller/`)."""

    @property
    def is_active(self) -> bool:
        """Whether this broker does."""

    @property
    def generation(self) -> int:
        """Session generation of its term."""

    @property
    def controller_id(self) -> BrokerId:
        """Who does; -1 when nobody."""

    def fence(self) -> Check:
        """The check that every write of the controller carries. Raises KafkaError(NOT_CONTROLLER)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: by numbers, or by an assignment given by hand, (partition, replicas) each."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that passed every check."""

    name: str
    topic_id: bytes
    assignment: Mapping[int, tuple[BrokerId, ...]]
    overrides: Mapping[str, str]
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of one topic of a request; `plan` where one was made."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    plan: TopicPlan | None = None


class TopicAdmin:
    """Creates topics and marks them for deletion when this broker is the controller; else asks the one that is."""

    def __init__(
        self,
        coordination: Coordination,
        controller: Controller,
        metadata: MetadataCache,
        config: BrokerConfig,
        rng: Rng,
        tasks: Tasks,
        control_plane: ControlPlane,
    ) -> None:
        self._coordination = coordination
        self._controller = controller
        self._metadata = metadata
        self._config = config
        self._rng = rng
        self._tasks = tasks
        self._control_plane = control_plane
        self._creating: set[str] = set()

    # ---- create

    async def create_topics(
        self, topics: Sequence[NewTopic], timeout_ms: int, validate_only: bool = False
    ) -> list[TopicResult]:
        """One result per topic name, in order; waits until this broker's metadata shows their leaders.

        NOT_CONTROLLER for every topic when this broker does not rule.
        """
        names = list(dict.fromkeys(topic.name for topic in topics))
        if not self._controller.is_active:
            return [_not_controller(name) for name in names]
        try:
            existing, configured = await self._existing(names)
        except CoordinationError as error:
            return [_refused(name, error) for name in names]
        repeated = {name for name, count in Counter(t.name for t in topics).items() if count > 1}
        planned = self._plans({topic.name: topic for topic in topics}, repeated, existing)
        if validate_only:
            return planned
        return await self._create_and_wait(planned, configured, timeout_ms)

    async def _create_and_wait(
        self, planned: Sequence[TopicResult], configured: Collection[str], timeout_ms: int
    ) -> list[TopicResult]:
        results = await asyncio.gather(
            *(self._create(result, result.name in configured) for result in planned)
        )
        created = [result.plan for result in results if result.plan]
        await self._metadata.wait_until(lambda: all(map(self._is_led, created)), timeout_ms)
        return [self._checked_for_leaders(result) for result in results]

    async def _existing(self, names: Sequence[str]) -> tuple[set[str], set[str]]:
        """(names that are topics, names with a configuration node, perhaps one left behind)."""
        usable = [name for name in names if not name_error(name)]
        paths = [layout.topic_path(name) for name in usable]
        paths += [layout.topic_config_path(name) for name in usable]
        found = await self._coordination.get_many(paths)
        topics, configs = found[: len(usable)], found[len(usable) :]
        return (
            {name for name, node in zip(usable, topics, strict=True) if node is not None},
            {name for name, node in zip(usable, configs, strict=True) if node is not None},
        )

    def _plans(
        self,
        topics: Mapping[str, NewTopic],
        repeated: Collection[str],
        existing: Collection[str],
    ) -> list[TopicResult]:
        room = PARTITIONS_MAX
        results = []
        for name, topic in topics.items():
            try:
                if name in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is given twice")
                plan = self._plan(topic, name in existing, room)
            except KafkaError as error:
                results.append(TopicResult(name, error.code, error.detail))
                continue
            room -= len(plan.assignment)
            results.append(TopicResult(name, plan=plan))
        return results

    def _plan(self, topic: NewTopic, exists: bool, room: int) -> TopicPlan:
        """Raises KafkaError with the reason when the topic cannot be created as asked."""
        reason = name_error(topic.name)
        if reason:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if exists:
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
            )
        twin = self._colliding(topic.name)
        if twin is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {topic.name} and the existing topic {twin} differ only in '.' and '_'",
            )
        overrides, config = self._configured(topic.configs)
        assignment = self._assigned(topic, room)
        return TopicPlan(topic.name, self._new_topic_id(), assignment, overrides, config)

    def _colliding(self, name: str) -> str | None:
        """A topic whose metrics would have the same name, as '.' becomes '_' in them."""
        flat = name.replace(".", "_")
        for topic in self._metadata.topics:
            if topic != name and topic.replace(".", "_") == flat:
                return topic
        return None

    def _configured(self, configs: Mapping[str, str | None]) -> tuple[dict[str, str], TopicConfig]:
        overrides = {}
        for key, value in configs.items():
            if value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} has no value")
            overrides[key] = value
        try:
            return overrides, TopicConfig.from_broker(self._config, overrides)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _assigned(self, topic: NewTopic, room: int) -> Mapping[int, tuple[BrokerId, ...]]:
        if topic.assignment:
            if (topic.partitions, topic.replication_factor) != (DEFAULT, DEFAULT):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "give either an assignment or numbers of partitions and replicas, not both",
                )
            _check_room(len(topic.assignment), room)
            return checked_assignment(topic.assignment, self._known_brokers())
        return self._spread(topic.partitions, topic.replication_factor, room)

    def _spread(
        self, partitions: int, replication_factor: int, room: int
    ) -> dict[int, tuple[BrokerId, ...]]:
        if partitions == DEFAULT:
            partitions = self._config.num_partitions
        if replication_factor == DEFAULT:
            replication_factor = self._config.default_replication_factor
        if partitions < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
            )
        _check_room(partitions, room)
        brokers = list(self._metadata.brokers.values())
        self._check_replication_factor(replication_factor)
        start, shift = (int(self._rng.uniform(0, len(brokers))) for _ in range(2))
        return assign(brokers, partitions, replication_factor, start, shift)

    def _check_replication_factor(self, replication_factor: int) -> None:
        available = len(self._metadata.brokers)
        if replication_factor < 1:
            reason = "Replication factor must be larger than 0."
        elif replication_factor > available:
            reason = (
                f"Replication factor: {replication_factor} larger than "
                f"available brokers: {available}."
            )
        else:
            return
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)

    def _known_brokers(self) -> set[BrokerId]:
        """Live brokers, and those that are away but hold replicas."""
        known = set(self._metadata.brokers)
        for states in self._metadata.topics.values():
            for state in states.values():
                known.update(state.replicas)
        return known

    def _new_topic_id(self) -> bytes:
        """A random version 4 UUID whose text no command line takes for an option (as Kafka draws it)."""
        while True:
            drawn = bytearray(self._rng.bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            if not layout.topic_id_text(bytes(drawn)).startswith("-"):
                return bytes(drawn)

    async def _create(self, planned: TopicResult, configured: bool) -> TopicResult:
        """Write the topic if there is a plan. `configured`: a configuration left behind is replaced."""
        plan = planned.plan
        if plan is None:
            return planned
        config_path = layout.topic_config_path(plan.name)
        config = layout.encode_config(dict(plan.overrides))
        assignment = {
            partition: ReplicaAssignment(replicas)
            for partition, replicas in plan.assignment.items()
        }
        try:
            ops: list[MultiOp] = [
                self._controller.fence(),
                Set(config_path, config, -1) if configured else Create(config_path, config),
                Create(
                    layout.topic_path(plan.name), layout.encode_topic(plan.topic_id, assignment)
                ),
            ]
            await self._coordination.multi(ops, generation=self._controller.generation)
        except OutcomeUnknown:
            return await self._read_back(plan)
        except (KafkaError, CoordinationError) as error:
            return _refused(plan.name, error)
        logger.info("created topic %s with %d partitions", plan.name, len(assignment))
        return TopicResult(plan.name, plan=plan)

    async def _read_back(self, plan: TopicPlan) -> TopicResult:
        """Whether the write whose answer was lost was applied: the topic id is ours or it is not."""
        try:
            data, _ = await self._coordination.get(layout.topic_path(plan.name))
            if layout.decode_topic(data)[0] == plan.topic_id:
                return TopicResult(plan.name, plan=plan)
        except (CoordinationError, ValueError) as error:
            logger.warning("topic %s may or may not have been created: %s", plan.name, error)
        return TopicResult(
            plan.name, ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper's answer was lost; ask again"
        )

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

    async def delete_topics(self, names: Iterable[str]) -> dict[str, TopicResult]:
        """Mark the topics for deletion; the mark stays until a controller has deleted the topic."""
        wanted = list(dict.fromkeys(names))
        if not self._controller.is_active:
            return {name: _not_controller(name) for name in wanted}
        if not self._config.delete_topic_enable:
            code = ErrorCode.TOPIC_DELETION_DISABLED
            return {
                name: TopicResult(name, code, "delete.topic.enable is false") for name in wanted
            }
        try:
            existing, _ = await self._existing(wanted)
        except CoordinationError as error:
            return {name: _refused(name, error) for name in wanted}
        results = await asyncio.gather(*(self._mark(name, name in existing) for name in wanted))
        return {result.name: result for result in results}

    async def _mark(self, name: str, exists: bool) -> TopicResult:
        if not exists:
            return TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            ops: list[MultiOp] = [
                self._controller.fence(),
                Create(layout.delete_topic_path(name), b""),
            ]
            await self._coordination.multi(ops, generation=self._controller.generation)
        except (KafkaError, CoordinationError) as error:
            if isinstance(error, MultiFailed) and isinstance(error.error, NodeExists):
                return TopicResult(name)
            return _refused(name, error)
        logger.info("marked topic %s for deletion", name)
        return TopicResult(name)

    # ---- settings

    async def topic_configs(self, topics: Iterable[str]) -> dict[str, TopicConfig]:
        """Effective settings of these topics, read now. Raises CoordinationError."""
        configs = TopicConfigs(self._coordination, self._config)
        names = list(topics)
        await configs.load(names)
        return {name: configs.get(name) for name in names}

    # ---- auto-create

    def auto_create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Have the topics created as the configuration says; the error a client gets meanwhile, per topic."""
        errors = {}
        wanted = []
        for name in dict.fromkeys(names):
            errors[name] = self._auto_create_error(name)
            if errors[name] == ErrorCode.LEADER_NOT_AVAILABLE and name not in self._creating:
                wanted.append(name)
        if wanted:
            self._creating.update(wanted)
            self._tasks.spawn(self._auto_create(wanted), "auto-create topics")
        return errors

    def error_for_unknown(self, name: str) -> ErrorCode:
        """What to say of a topic that is not there and is not to be created."""
        if name_error(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _auto_create_error(self, name: str) -> ErrorCode:
        if name_error(name) or self._colliding(name) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if self._config.default_replication_factor > len(self._metadata.brokers):
            return ErrorCode.INVALID_REPLICATION_FACTOR
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def _auto_create(self, names: Sequence[str]) -> None:
        try:
            errors = await self._create_or_ask(names)
            for name, code in errors.items():
                if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning("topic %s was not created: %s", name, ErrorCode(code).name)
        except (OSError, KafkaError, CoordinationError) as error:
            logger.warning("topics %s were not created: %s", names, error)
        finally:
            self._creating.difference_update(names)

    async def _create_or_ask(self, names: Sequence[str]) -> dict[str, int]:
        partitions = self._config.num_partitions
        replication_factor = self._config.default_replication_factor
        body = messages.encode_create_topics(
            messages.NewTopic(name, partitions, replication_factor) for name in names
        )
        if self._controller.is_active:
            return messages.decode_created(await self.handle_create_topics(body))
        controller = self._metadata.brokers.get(self._controller.controller_id)
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        answer = await self._control_plane.call(
            controller.control_host,
            controller.control_port,
            messages.CREATE_TOPICS,
            body,
            timeout_ms=AUTO_CREATE_TIMEOUT_MS,
        )
        return messages.decode_created(answer)

    async def handle_create_topics(self, body: dict[str, Any]) -> dict[str, Any]:
        """The controller's side of auto-create, a control-plane call. Raises KafkaError(INVALID_REQUEST)."""
        topics = [
            NewTopic(topic.name, topic.partitions, topic.replication_factor)
            for topic in messages.decode_create_topics(body)
        ]
        results = await self.create_topics(topics, AUTO_CREATE_TIMEOUT_MS // 2)
        return messages.encode_created((result.name, result.error) for result in results)


def name_error(name: str) -> str:
    """Why this cannot be a topic's name, or nothing; a name becomes a directory and a znode."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return "a topic name cannot be '.' or '..'"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name cannot be longer than {NAME_LENGTH_MAX} characters"
    if not _NAME.fullmatch(name):
        return "a topic name has only ASCII letters, digits, '.', '_' and '-'"
    return ""


def _check_room(partitions: int, room: int) -> None:
    if partitions > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"more than {PARTITIONS_MAX} partitions in one request"
        )


def _not_controller(name: str) -> TopicResult:
    return TopicResult(name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")


def _refused(name: str, error: Exception) -> TopicResult:
    """The client's answer to a write that was certainly not applied."""
    if isinstance(error, MultiFailed):
        if error.index == _CHECK:
            return _not_controller(name)
        if error.index in (_CONFIG, _TOPIC) and isinstance(error.error, NodeExists):
            return TopicResult(
                name, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
            )
    if isinstance(error, KafkaError):
        return TopicResult(name, error.code, error.detail)
    if isinstance(error, ControllerMoved | NotConnected | StaleSession):
        return _not_controller(name)
    logger.warning("topic %s: ZooKeeper refused the write: %s", name, error)
    return TopicResult(name, ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper refused the write")
