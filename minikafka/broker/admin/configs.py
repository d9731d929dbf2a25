"""Settings of topics and brokers, shown and altered (KIP-133, KIP-226, KIP-339).

Any broker may write them, so each write is a compare-and-set of the node that was read, in one multi with
the check of the controller's epoch and the notification that tells all brokers (R71). Invariant: what is
written was checked as a whole, so that a node this broker wrote is always usable.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import (
    BadVersion,
    ConfigError,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.keys import Key, Kind
from minikafka.base.ports import Check, Coordination, Create, Ledger, MultiOp, Set
from minikafka.broker.admin.fenced import fenced_multi, refusal
from minikafka.broker.dynamic_config import THROTTLES, DynamicConfig
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.topic_configs import TopicConfigs
from minikafka.ledger.record import NOTHING
from minikafka.zk import layout

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
"""Writes to one node that others may be quicker than."""


class ResourceType(IntEnum):
    """Whose settings; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """What to do with one key (KIP-339); Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One key of a resource. `operation` is as the client sent it, perhaps no `Operation`."""

    name: str
    value: str | None
    operation: int = Operation.SET


class Alteration(NamedTuple):
    """All that one request asks of one resource. `replaces`: keys that are not named lose their values (KIP-133)."""

    type: int
    name: str
    changes: tuple[Change, ...]
    replaces: bool = False


class Result(NamedTuple):
    """What became of one resource."""

    type: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


Overrides = Mapping[str, str]


class _Target(NamedTuple):
    """Where a resource's settings lie, which keys it may have, and who says whether they go together."""

    kind: str
    entity: str
    path: str
    keys: Mapping[str, Key]
    check: Callable[[Overrides], object]


class ConfigAdmin:
    """Shows and alters settings. `applied()`: have this broker take over what was written just now."""

    def __init__(
        self,
        coordination: Coordination,
        metadata: MetadataCache,
        settings: DynamicConfig,
        applied: Callable[[], Awaitable[None]],
        ledger: Ledger = NOTHING,
    ) -> None:
        self._coordination = coordination
        self._metadata = metadata
        self._settings = settings
        self._applied = applied
        self._ledger = ledger

    async def topic_configs(self, topics: Iterable[str]) -> dict[str, TopicConfig]:
        """Effective settings of these topics, read now. Raises CoordinationError."""
        configs = TopicConfigs(self._coordination, self._settings.current)
        names = list(topics)
        await configs.load(names)
        return {name: configs.get(name) for name in names}

    async def alter(
        self, alterations: Sequence[Alteration], validate_only: bool = False
    ) -> list[Result]:
        """One result per resource, in order; each is altered as a whole or not at all."""
        counts = Counter(item[:2] for item in alterations)
        results = []
        wrote = False
        for item in alterations:
            if counts[item[:2]] > 1:
                twice = "Each resource must appear at most once."
                results.append(Result(*item[:2], ErrorCode.INVALID_REQUEST, twice))
                continue
            result = await self._alter(item, validate_only)
            wrote = wrote or not (result.error or validate_only)
            results.append(result)
        if wrote:
            await self._take_over()
        return results

    async def _take_over(self) -> None:
        try:
            await self._applied()
        except CoordinationError as error:
            logger.info("settings that were written just now are applied later: %s", error)

    async def _alter(self, item: Alteration, validate_only: bool) -> Result:
        try:
            _check_changes(item)
            await self._write(self._target(item), item, validate_only)
        except ConfigError as error:
            shown = f"ConfigResource(type={type_name(item.type)}, name='{item.name}')"
            message = f"Invalid config value for resource {shown}: {error}"
            return Result(item.type, item.name, ErrorCode.INVALID_CONFIG, message)
        except (KafkaError, CoordinationError) as error:
            about = f"settings of {type_name(item.type)} {item.name}"
            return Result(item.type, item.name, *refusal(error, about))
        return Result(item.type, item.name)

    # ---- what may be altered

    def _target(self, item: Alteration) -> _Target:
        """Raises KafkaError for a resource whose settings cannot be altered here."""
        if item.type == ResourceType.TOPIC:
            return self._topic(item.name)
        if item.type == ResourceType.BROKER:
            return self._broker(item.name)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "AlterConfigs is only supported for topics and brokers, "
            f"but resource type is {type_name(item.type)}",
        )

    def _topic(self, name: str) -> _Target:
        if name not in self._metadata.topics:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        broker = self._settings.current

        def check(overrides: Overrides) -> object:
            return TopicConfig.from_broker(broker, overrides)

        path = layout.topic_config_path(name)
        return _Target("topics", name, path, TopicConfig.keys(), check)

    def _broker(self, name: str) -> _Target:
        if name and broker_id(name) != self._settings.static.broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._settings.static.broker_id}, "
                f"but received {name}",
            )
        entity = str(broker_id(name)) if name else layout.ALL_BROKERS
        keys = {**BrokerConfig.keys(), **THROTTLES}
        path = layout.broker_config_path(entity)
        return _Target("brokers", entity, path, keys, self._settings.check)

    # ---- writing

    async def _write(self, target: _Target, item: Alteration, validate_only: bool) -> None:
        """Raises ConfigError, KafkaError, CoordinationError."""
        for _ in range(_ATTEMPTS):
            paths = [target.path, layout.CONTROLLER_EPOCH]
            node, epoch = await self._coordination.get_many(paths)
            if epoch is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "there has been no controller yet")
            before = _stored(target, node[0]) if node is not None else {}
            after = _changed({} if item.replaces else before, target.keys, item.changes)
            target.check(after)
            if validate_only:
                return
            data = layout.encode_config(after)
            version = None if node is None else node[1].version
            write = (
                Create(target.path, data) if version is None else Set(target.path, data, version)
            )
            if await self._commit(target, write, Check(layout.CONTROLLER_EPOCH, epoch[1].version)):
                logger.info("settings of %s are now %s", target.path, after)
                return
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "the settings are being changed all the time; ask again"
        )

    async def _commit(self, target: _Target, write: Create | Set, check: Check) -> bool:
        """False when somebody else was quicker. An answer that was lost is read back."""
        notification = layout.encode_config_change(target.kind, target.entity)
        operations: list[MultiOp] = [
            write,
            Create(layout.CONFIG_CHANGE_PREFIX, notification, sequential=True),
        ]
        try:
            await fenced_multi(self._coordination, self._ledger, check, operations)
        except OutcomeUnknown:
            (node,) = await self._coordination.get_many([target.path])
            if node is None or node[0] != write.data:
                raise
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                return False
            raise
        return True


def broker_id(name: str) -> int:
    """The broker that a resource names. Raises KafkaError(INVALID_REQUEST)."""
    if not (name.isascii() and name.isdecimal()):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    return int(name)


def type_name(number: int) -> str:
    """How Kafka calls a type of resources."""
    try:
        return ResourceType(number).name
    except ValueError:
        return f"UNKNOWN({number})"


def _check_changes(item: Alteration) -> None:
    """Raises KafkaError(INVALID_REQUEST) for what contradicts itself."""
    counts = Counter(change.name for change in item.changes)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(repeated)}"
        )
    for change in item.changes:
        if change.operation not in list(Operation):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}"
            )
        if change.value is None and change.operation != Operation.DELETE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}"
            )


def _stored(target: _Target, data: bytes) -> Overrides:
    try:
        return layout.decode_config(data)
    except ValueError as error:
        logger.error("%s is not readable, it is written anew: %s", target.path, error)
        return {}


def _changed(
    before: Overrides, keys: Mapping[str, Key], changes: Sequence[Change]
) -> dict[str, str]:
    """The settings after the changes. Raises KafkaError(INVALID_CONFIG)."""
    after = dict(before)
    for name, value, operation in changes:
        if operation == Operation.DELETE:
            after.pop(name, None)
        elif operation == Operation.SET:
            after[name] = value or ""
        else:
            after[name] = _edited(keys, after.get(name), name, (value or "").split(","), operation)
    return after


def _edited(
    keys: Mapping[str, Key], stored: str | None, name: str, words: Sequence[str], operation: int
) -> str:
    """A list with words more or fewer; it begins as the key's default."""
    verb = Operation(operation).name.lower()
    row = keys.get(name)
    if row is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if row.kind is not Kind.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Config value {verb} is not allowed for config key: {name}",
        )
    default: Any = row.text(row.default)
    held = [word for word in (default if stored is None else stored).split(",") if word]
    if operation == Operation.APPEND:
        return ",".join([*held, *(word for word in words if word and word not in held)])
    return ",".join(word for word in held if word not in words)
