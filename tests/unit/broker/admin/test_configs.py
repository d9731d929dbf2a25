"""Settings altered by an administrator: the writes to ZooKeeper and the refused changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from support.brokers.cold import Cold, state

from minikafka.base.errors import ErrorCode, StaleSession
from minikafka.base.ports import Check, Create, Set
from minikafka.broker.admin.configs import (
    Alteration,
    AlterOperation,
    AlterResult,
    Change,
    ResourceType,
    logger,
)
from minikafka.broker.settings.config_entries import log_levels
from minikafka.zookeeper.nodes import layout

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
LOGGER = ResourceType.BROKER_LOGGER
Levels: TypeAlias = Callable[..., list[str]]
THROTTLED = "leader.replication.throttled.replicas"


class World:
    """A broker that is not the controller, with the topic t in its metadata and an in-memory ZooKeeper."""

    def __init__(self) -> None:
        self.cold = Cold(broker_id=1, controller_id=2)
        self.ensemble, self.session = self.cold.ensemble, self.cold.session
        self.cold.update(state("t", 0, (1,)))

    async def alter(
        self, type: int, name: str, *changes: Change, replaces: bool = False, **rest: Any
    ) -> AlterResult:
        item = Alteration(type, name, changes, replaces)
        (result,) = await self.cold.admin.configs.alter([item], **rest)
        return result

    async def topic(self, *changes: Change, **rest: Any) -> AlterResult:
        return await self.alter(TOPIC, "t", *changes, **rest)

    def stored(self, path: str = layout.topic_config_path("t")) -> dict[str, str]:
        return layout.decode_config(self.ensemble.nodes[path].data)

    def store(self, **overrides: str) -> None:
        values = {name.replace("_", "."): value for name, value in overrides.items()}
        self.ensemble.put(layout.topic_config_path("t"), layout.encode_config(values))

    def notifications(self) -> list[tuple[str, str]]:
        return [
            layout.decode_config_change(self.ensemble.nodes[f"{layout.CONFIG_CHANGES}/{name}"].data)
            for name in self.ensemble.children(layout.CONFIG_CHANGES)
        ]


@pytest.fixture
def levels() -> Iterator[Levels]:
    """Set the root logger to INFO, and restore all levels afterwards. Returns the levels of the named loggers."""
    loggers = [logging.root, *map(logging.getLogger, logging.root.manager.loggerDict)]
    before = [(each, each.level) for each in loggers]
    for each in loggers:
        each.setLevel(logging.INFO if each is logging.root else logging.NOTSET)
    yield lambda *names: [log_levels()[name] for name in names]
    for each, level in before:
        each.setLevel(level)


@pytest.mark.row("R71")
async def test_settings_and_notification_are_written_in_one_fenced_multi() -> None:
    world = World()
    assert await world.topic(Change("retention.ms", "5")) == AlterResult(TOPIC, "t")
    (ops,) = world.session.multis
    path = layout.topic_config_path("t")
    assert ops == [
        Check(layout.CONTROLLER_EPOCH, 0),
        Create(path, layout.encode_config({"retention.ms": "5"})),
        Create(
            layout.CONFIG_CHANGE_PREFIX,
            b'{"version":2,"entity_path":"topics/t"}',
            sequential=True,
        ),
    ]
    assert world.ensemble.children(layout.CONFIG_CHANGES) == ["config_change_0000000000"]
    assert world.cold.config_changes.applied == 1
    await world.topic(Change("segment.ms", "6"))
    assert world.session.multis[1][1] == Set(
        path, layout.encode_config({"retention.ms": "5", "segment.ms": "6"}), 0
    )


async def test_append_and_subtract_change_the_current_or_default_value_of_a_list_setting() -> None:
    world = World()
    append, subtract = AlterOperation.APPEND, AlterOperation.SUBTRACT
    await world.topic(Change("cleanup.policy", "compact", append))
    assert world.stored() == {"cleanup.policy": "delete,compact"}
    await world.topic(Change("cleanup.policy", "compact", append))
    assert world.stored() == {"cleanup.policy": "delete,compact"}
    await world.topic(Change("cleanup.policy", "delete", subtract), Change(THROTTLED, "0:1", 2))
    assert world.stored() == {"cleanup.policy": "compact", THROTTLED: "0:1"}
    await world.topic(Change(THROTTLED, "0:1", subtract))
    assert world.stored()[THROTTLED] == ""
    await world.topic(
        Change("cleanup.policy", None, AlterOperation.DELETE), Change(THROTTLED, None, 1)
    )
    assert world.stored() == {}


async def test_alter_configs_replaces_all_settings() -> None:
    world = World()
    world.store(retention_ms="5", segment_ms="6")
    await world.topic(Change("retention.bytes", "7"), replaces=True)
    assert world.stored() == {"retention.bytes": "7"}


async def test_validate_only_reports_errors_and_writes_nothing() -> None:
    world = World()
    assert (await world.topic(Change("retention.ms", "5"), validate_only=True)).error == 0
    bad = await world.topic(Change("retention.ms", "x"), validate_only=True)
    assert bad.error == ErrorCode.INVALID_CONFIG
    assert world.session.multis == []
    assert world.cold.config_changes.applied == 0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("segment.bytes", "3", ("segment.bytes", "at least 14")),
        ("min.insync.replicas", "0", ("min.insync.replicas", "at least 1")),
        ("retention.ms", "x", ("retention.ms", "whole number")),
        ("compression.type", "brotli", ("compression.type", "zstd")),
        ("retntion.ms", "5", ("retntion.ms", "retention.ms")),
        ("min.compaction.lag.ms", str(2**63 - 1), ("min.compaction.lag.ms",)),
        (THROTTLED, "zero:one", (THROTTLED, "[0-9]+:[0-9]+")),
    ],
)
async def test_error_for_an_invalid_value_names_the_key_and_the_allowed_values(
    name: str, value: str, words: tuple[str, ...]
) -> None:
    world = World()
    changes = [Change(name, value)]
    if name == "min.compaction.lag.ms":
        changes.append(Change("max.compaction.lag.ms", "1"))
    result = await world.topic(*changes)
    assert result.error == ErrorCode.INVALID_CONFIG
    assert "ConfigResource(type=TOPIC, name='t')" in (result.message or "")
    assert all(word in (result.message or "") for word in words)
    assert world.session.multis == []


@pytest.mark.parametrize("value", ["*", "", "0:1,1:2"])
async def test_throttled_replicas_setting_may_be_all_none_or_a_list(value: str) -> None:
    world = World()
    assert (await world.topic(Change(THROTTLED, value))).error == ErrorCode.NONE
    assert world.stored()[THROTTLED] == value


@pytest.mark.parametrize(
    ("type", "name", "changes", "code", "words"),
    [
        (
            TOPIC,
            "none",
            [Change("retention.ms", "5")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "none",
        ),
        (TOPIC, "", [Change("retention.ms", "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "t", [Change("retention.ms", None)], ErrorCode.INVALID_REQUEST, "Null value"),
        (
            TOPIC,
            "t",
            [Change("retention.ms", "1"), Change("retention.ms", "2")],
            ErrorCode.INVALID_REQUEST,
            "duplicate config keys",
        ),
        (
            TOPIC,
            "t",
            [Change("retention.ms", "1", 9)],
            ErrorCode.INVALID_REQUEST,
            "operations type",
        ),
        (
            TOPIC,
            "t",
            [Change("retention.ms", "1", AlterOperation.APPEND)],
            ErrorCode.INVALID_CONFIG,
            "append is not allowed for config key: retention.ms",
        ),
        (
            TOPIC,
            "t",
            [Change("nothing", "1", AlterOperation.SUBTRACT)],
            ErrorCode.INVALID_CONFIG,
            "Unknown config name: nothing",
        ),
        (
            BROKER,
            "2",
            [Change("min.insync.replicas", "2")],
            ErrorCode.INVALID_REQUEST,
            "expected 1",
        ),
        (BROKER, "x", [Change("min.insync.replicas", "2")], ErrorCode.INVALID_REQUEST, "integer"),
        (BROKER, "1", [Change("broker.rack", "a")], ErrorCode.INVALID_CONFIG, "broker.rack"),
        (LOGGER, "2", [Change("root", "DEBUG")], ErrorCode.INVALID_REQUEST, "expected 1"),
        (LOGGER, "", [Change("root", "DEBUG")], ErrorCode.INVALID_REQUEST, "integer"),
        (LOGGER, "1", [Change("no.such", "DEBUG")], ErrorCode.INVALID_CONFIG, "no.such"),
        (LOGGER, "1", [Change("root", "debug")], ErrorCode.INVALID_CONFIG, "FATAL, ERROR, WARN"),
        (
            LOGGER,
            "1",
            [Change("root", None, AlterOperation.DELETE)],
            ErrorCode.INVALID_REQUEST,
            "root logger",
        ),
        (
            LOGGER,
            "1",
            [Change("root", "DEBUG", AlterOperation.APPEND)],
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed",
        ),
        (77, "1", [Change("root", "DEBUG")], ErrorCode.INVALID_REQUEST, "UNKNOWN(77)"),
    ],
)
async def test_resource_that_cannot_be_altered_is_refused_with_kafkas_error_code(
    type: int, name: str, changes: list[Change], code: ErrorCode, words: str
) -> None:
    world = World()
    result = await world.alter(type, name, *changes)
    assert result.error == code
    assert words in (result.message or "")
    assert world.session.multis == []


async def test_log_levels_change_together_or_not_at_all(levels: Levels) -> None:
    world = World()
    package, module = "minikafka.broker", logger.name
    wrong = await world.alter(LOGGER, "1", Change(package, "ERROR"), Change(module, "LOUD"))
    assert wrong.error == ErrorCode.INVALID_CONFIG
    assert levels(package, module) == ["INFO", "INFO"]

    assert (await world.alter(LOGGER, "1", Change(package, "ERROR"))).error == ErrorCode.NONE
    assert levels(package, module) == ["ERROR", "ERROR"]
    await world.alter(LOGGER, "1", Change(module, "TRACE"))
    assert levels(package, module) == ["ERROR", "TRACE"]
    await world.alter(LOGGER, "1", Change(module, None, AlterOperation.DELETE))
    assert levels(package, module) == ["ERROR", "ERROR"]
    assert world.session.multis == []
    assert world.cold.config_changes.applied == 0


async def test_log_level_is_kept_when_the_request_only_validates(levels: Levels) -> None:
    change = Alteration(LOGGER, "1", (Change("root", "FATAL"),))
    (result,) = await World().cold.admin.configs.alter([change], validate_only=True)
    assert result.error == ErrorCode.NONE
    assert levels("root") == ["INFO"]


async def test_log_levels_cannot_be_replaced_as_a_whole(levels: Levels) -> None:
    change = Alteration(LOGGER, "1", (Change("root", "FATAL"),), replaces=True)
    (result,) = await World().cold.admin.configs.alter([change])
    assert result.error == ErrorCode.INVALID_REQUEST
    assert levels("root") == ["INFO"]


async def test_resource_named_twice_is_refused_and_a_resource_named_once_is_altered() -> None:
    world = World()
    retention = (Change("retention.ms", "5"),)
    results = await world.cold.admin.configs.alter(
        [
            Alteration(TOPIC, "t", retention),
            Alteration(BROKER, "", (Change("min.insync.replicas", "2"),)),
            Alteration(TOPIC, "t", retention),
        ]
    )
    assert [result.error for result in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize(
    ("first", "second", "applied"), [("t", "no", 1), ("no", "t", 1), ("no", "none", 0)]
)
async def test_written_settings_are_applied_once_although_another_resource_is_refused(
    first: str, second: str, applied: int
) -> None:
    world = World()
    retention = (Change("retention.ms", "5"),)
    await world.cold.admin.configs.alter(
        [Alteration(TOPIC, first, retention), Alteration(TOPIC, second, retention)]
    )
    assert world.cold.config_changes.applied == applied


@pytest.mark.parametrize(
    ("name", "node", "entity"), [("1", "1", "brokers/1"), ("", "<default>", "brokers/<default>")]
)
async def test_settings_of_one_broker_and_of_all_brokers_are_stored_in_different_nodes(
    name: str, node: str, entity: str
) -> None:
    world = World()
    rate = "follower.replication.throttled.rate"
    changes = (Change("unclean.leader.election.enable", "true"), Change(rate, "1000"))
    assert (await world.alter(BROKER, name, *changes)).error == ErrorCode.NONE
    stored = world.stored(layout.broker_config_path(node))
    assert stored == {"unclean.leader.election.enable": "true", rate: "1000"}
    kind, _, entity_name = entity.partition("/")
    assert world.notifications() == [(kind, entity_name)]


async def test_setting_that_another_broker_writes_concurrently_is_kept() -> None:
    world = World()
    world.store(retention_ms="1")

    def interfere(ops: object) -> None:
        world.session.before_multi = lambda ops: None
        world.store(retention_ms="1", segment_ms="2")

    world.session.before_multi = interfere
    assert (await world.topic(Change("retention.bytes", "3"))).error == ErrorCode.NONE
    assert world.stored() == {"retention.ms": "1", "segment.ms": "2", "retention.bytes": "3"}


async def test_settings_are_written_when_a_controller_is_elected_meanwhile() -> None:
    world = World()

    def elect(ops: object) -> None:
        world.session.before_multi = lambda ops: None
        world.ensemble.put(layout.CONTROLLER_EPOCH, b"2")

    world.session.before_multi = elect
    assert (await world.topic(Change("retention.bytes", "3"))).error == ErrorCode.NONE
    assert world.notifications() == [("topics", "t")]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("unanswered", ErrorCode.NONE),
        ("lagging", ErrorCode.NONE),
        ("lost", ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_settings_write_with_a_lost_response_is_resolved_by_reading_the_node(
    fault: str, code: ErrorCode
) -> None:
    world = World()
    world.session.faults = [fault]
    assert (await world.topic(Change(THROTTLED, "0:1", AlterOperation.APPEND))).error == code


async def test_request_times_out_when_zookeeper_session_ends_after_a_lost_response() -> None:
    world = World()
    world.session.faults = ["unanswered"]

    def expire(ops: object) -> None:
        world.session.failures = [StaleSession()]

    world.session.before_multi = expire
    result = await world.topic(Change("retention.ms", "5"))
    assert result.error == ErrorCode.REQUEST_TIMED_OUT


async def test_error_is_retriable_when_zookeeper_is_unreachable() -> None:
    world = World()
    await world.session.attach()
    world.session._session.timeout_ms = 50
    world.session.suspend()
    assert (await world.topic(Change("retention.ms", "5"))).error.retriable


async def test_unreadable_settings_node_is_overwritten() -> None:
    world = World()
    world.ensemble.put(layout.topic_config_path("t"), b"nonsense")
    assert (await world.topic(Change("retention.ms", "5"))).error == ErrorCode.NONE
    assert world.stored() == {"retention.ms": "5"}


async def test_invalid_or_missing_topic_settings_fall_back_to_the_broker_defaults() -> None:
    world = World()
    for name, overrides in (("t", {"retention.ms": "5"}), ("bad", {"retention.ms": "x"})):
        world.ensemble.put(layout.topic_config_path(name), layout.encode_config(overrides))
    configs = await world.cold.admin.configs.topic_configs(["t", "bad", "none"])
    assert configs["t"].retention_ms == 5
    assert configs["bad"] == configs["none"]


@pytest.mark.parametrize("replaces", [True, False])
async def test_request_that_changes_more_than_1000_settings_of_a_resource_is_refused(
    replaces: bool,
) -> None:
    world = World()
    changes = [Change(f"key.{number}", "v") for number in range(1_001)]
    refused = await world.alter(BROKER, "", *changes, replaces=replaces)
    assert (refused.error, refused.message) == (
        ErrorCode.INVALID_REQUEST,
        "a request may change at most 1000 settings of one resource: send several requests",
    )
    assert not (await world.alter(BROKER, "", *changes[:-1], replaces=replaces)).error
