"""Reading and altering the settings of topics and brokers (KIP-133, KIP-226, KIP-339), and log levels (KIP-412).

Any broker can read and alter settings, not only the controller. Invariant: the complete settings of a resource
are checked before they are written, so that this broker never writes invalid settings.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.keys import ConfigType, Key
from minikafka.base.config.throttles import THROTTLES
from minikafka.base.errors import ConfigError, CoordinationError, ErrorCode, KafkaError
from minikafka.base.names import parse_number
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.capabilities import ConfigKind, ConfigStore, Overrides
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.settings.config_entries import (
    LOG_LEVELS,
    ROOT_LOGGER,
    has_logger,
    log_levels,
    set_log_level,
)
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.settings.dynamic_stores import DynamicStores, is_store_key
from minikafka.broker.settings.topic_configs import TopicConfigs
from minikafka.broker.turns import Pauses

logger = logging.getLogger(__name__)


class ResourceType(IntEnum):
    """Kafka's numbers for the types of resources that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    """Kafka's numbers for the operations on the value of one key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """A change of one key; `operation` is the number in the request, which may be invalid."""

    name: str
    value: str | None
    operation: int = AlterOperation.SET


class Alteration(NamedTuple):
    """The changes to the settings of one resource.

    If `replaces` is True, the stored value of every key without a change is removed, as in AlterConfigs (KIP-133).
    """

    type: int
    name: str
    changes: tuple[Change, ...]
    replaces: bool = False


class AlterResult(NamedTuple):
    """The result of altering one resource."""

    type: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class _Target(NamedTuple):
    """The topic or broker to alter, its allowed keys, and the function that checks its complete settings."""

    kind: ConfigKind
    name: str
    keys: Mapping[str, Key]
    check: Callable[[Overrides], object]


def _nothing_refused(item: Alteration) -> None:
    return None


CHANGES_MAX: Final = 1_000
"""Maximum number of changes of one resource in one request: several times the number of existing keys."""
_OPERATIONS: Final = frozenset(AlterOperation)
_ALTERED_AT_ONCE: Final = 16
"""Resources altered before other connections are served.

Refused resources do not wait for ZooKeeper, so many of them would otherwise block the event loop.
"""
_READ_AT_ONCE: Final = 64
"""Topics whose settings are read in one turn of the event loop, which takes about 2 ms."""


class ConfigAdmin:
    """Reads and alters settings; `apply_now()` makes this broker apply the settings that are in the store."""

    def __init__(
        self,
        store: ConfigStore,
        metadata: MetadataCache,
        settings: DynamicConfig,
        apply_now: Callable[[], Awaitable[None]],
        pauses: Pauses,
        stores: DynamicStores,
    ) -> None:
        self._pauses = pauses
        self._stores = stores
        self._store = store
        self._metadata = metadata
        self._settings = settings
        self._apply_now = apply_now

    async def topic_configs(self, topics: Iterable[str]) -> dict[str, TopicConfig]:
        """Return the effective settings of these topics, read from the store. Raises CoordinationError."""
        configs = TopicConfigs(self._store, self._settings.current)
        names = list(topics)
        async for part in self._pauses.parts(names, _READ_AT_ONCE):
            await configs.load(part)
        return {name: configs.get(name) for name in names}

    async def alter(
        self,
        alterations: Sequence[Alteration],
        validate_only: bool = False,
        refused: Callable[[Alteration], ErrorCode | None] = _nothing_refused,
    ) -> list[AlterResult]:
        """Alter each resource as a whole or not at all; return one result per resource, in order.

        `refused(alteration)` returns the error code for a client that may not alter the resource, else None.
        """
        named: set[tuple[int, str]] = set()
        repeated: set[tuple[int, str]] = set()
        async for item in self._pauses.each(alterations):
            (repeated if item[:2] in named else named).add(item[:2])
        results = []
        wrote = False
        async for item in self._pauses.each(alterations, _ALTERED_AT_ONCE):
            if item[:2] in repeated:
                twice = "Each resource must appear at most once."
                results.append(AlterResult(*item[:2], ErrorCode.INVALID_REQUEST, twice))
                continue
            if code := refused(item):
                results.append(AlterResult(*item[:2], code))
                continue
            result = await self._alter(item, validate_only)
            is_stored = item.type != ResourceType.BROKER_LOGGER and not validate_only
            wrote = wrote or (is_stored and not result.error)
            results.append(result)
        if wrote:
            await self._apply_written()
        return results

    async def _apply_written(self) -> None:
        try:
            await self._apply_now()
        except CoordinationError as error:
            logger.info(
                "the broker will apply the settings that it wrote when ZooKeeper answers again: %s",
                error,
            )

    async def _alter(self, item: Alteration, validate_only: bool) -> AlterResult:
        try:
            _check_changes(item)
            if item.type == ResourceType.BROKER_LOGGER and not item.replaces:
                self._alter_log_levels(item, validate_only)
                return AlterResult(item.type, item.name)
            target = self._target(item)

            def change(stored: Overrides) -> Overrides:
                changes = [self._encoded(change) for change in item.changes]
                after = _changed({} if item.replaces else stored, target.keys, changes)
                target.check(after)
                return after

            await self._store.alter(target.kind, target.name, change, validate_only=validate_only)
        except ConfigError as error:
            shown = f"ConfigResource(type={type_name(item.type)}, name='{item.name}')"
            message = f"Invalid config value for resource {shown}: {error}"
            return AlterResult(item.type, item.name, ErrorCode.INVALID_CONFIG, message)
        except (KafkaError, CoordinationError) as error:
            about = f"settings of {type_name(item.type)} {item.name}"
            return AlterResult(item.type, item.name, *refusal(error, about))
        return AlterResult(item.type, item.name)

    # ---- the resources that may be altered

    def _target(self, item: Alteration) -> _Target:
        """Return the topic or broker to alter. Raises KafkaError if this broker cannot alter the resource."""
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

        return _Target(ConfigKind.TOPIC, name, TopicConfig.keys(), check)

    def _alter_log_levels(self, item: Alteration, validate_only: bool) -> None:
        """Set or remove the levels of loggers of this broker, or of none. Raises KafkaError."""
        self._check_own(item.name)
        for change in item.changes:
            _check_log_level(change)
        for name, level, operation in () if validate_only else item.changes:
            set_log_level(name, level if operation == AlterOperation.SET else None)
            logger.warning("the log level of %s is now %s", name, log_levels()[name])

    def _check_own(self, name: str) -> None:
        """Raise KafkaError INVALID_REQUEST if `name` is not the id of this broker."""
        if broker_id(name) != self._settings.static.broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._settings.static.broker_id}, "
                f"but received {name}",
            )

    def _broker(self, name: str) -> _Target:
        if name:
            self._check_own(name)
        entity = str(broker_id(name)) if name else ""
        keys = {**BrokerConfig.keys(), **THROTTLES}

        def check(overrides: Overrides) -> None:
            self._settings.check(overrides)
            stores = sorted(filter(is_store_key, overrides))
            if stores and not name:
                raise ConfigError(
                    f"Cannot update these configs at default cluster level, broker id must be specified: {stores}"
                )
            self._stores.check(overrides)

        return _Target(ConfigKind.BROKER, entity, keys, check)

    def _encoded(self, change: Change) -> Change:
        """Return a change whose value may be stored: passwords of stores are encrypted. Raises ConfigError."""
        if change.value is None or change.operation != AlterOperation.SET:
            return change
        return change._replace(value=self._stores.encoded(change.name, change.value))


def broker_id(name: str) -> int:
    """Return a resource name as a broker id. Raises KafkaError INVALID_REQUEST if `parse_number` refuses the name."""
    try:
        return parse_number(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None


def type_name(number: int) -> str:
    """Return Kafka's name for the number of a resource type."""
    try:
        return ResourceType(number).name
    except ValueError:
        return f"UNKNOWN({number})"


def _check_changes(item: Alteration) -> None:
    """Raise KafkaError INVALID_REQUEST for too many changes, repeated keys, unknown operations or null values.

    Operation DELETE may have a null value.
    """
    if len(item.changes) > CHANGES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a request may change at most {CHANGES_MAX} settings of one resource: send several requests",
        )
    counts = Counter(change.name for change in item.changes)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(repeated)}"
        )
    for change in item.changes:
        if change.operation not in _OPERATIONS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}"
            )
        if change.value is None and change.operation != AlterOperation.DELETE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}"
            )


def _check_log_level(change: Change) -> None:
    """Raise KafkaError if a change of a log level is invalid (KIP-412)."""
    name, level, operation = change
    if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        verb = AlterOperation(operation).name
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{verb} operation is not allowed for the BROKER_LOGGER resource",
        )
    if not has_logger(name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == AlterOperation.SET and level not in LOG_LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LOG_LEVELS)}",
        )
    if operation == AlterOperation.DELETE and name == ROOT_LOGGER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )


def _changed(
    before: Overrides, keys: Mapping[str, Key], changes: Sequence[Change]
) -> dict[str, str]:
    """Return the settings `before` with the changes applied. Raises KafkaError INVALID_CONFIG."""
    after = dict(before)
    for name, value, operation in changes:
        if operation == AlterOperation.DELETE:
            after.pop(name, None)
        elif operation == AlterOperation.SET:
            after[name] = value or ""
        else:
            after[name] = _edited(keys, after.get(name), name, (value or "").split(","), operation)
    return after


def _edited(
    keys: Mapping[str, Key], stored: str | None, name: str, words: Sequence[str], operation: int
) -> str:
    """Append words to a LIST value, or subtract words from it; return the new value.

    If no value is stored, start from the key's default. Raises KafkaError INVALID_CONFIG.
    """
    verb = AlterOperation(operation).name.lower()
    row = keys.get(name)
    if row is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if row.kind is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Config value {verb} is not allowed for config key: {name}",
        )
    default: Any = row.text(row.default)
    held = [word for word in (default if stored is None else stored).split(",") if word]
    if operation == AlterOperation.APPEND:
        known = frozenset(held)
        return ",".join([*held, *(word for word in words if word and word not in known)])
    taken = frozenset(words)
    return ",".join(word for word in held if word not in taken)
