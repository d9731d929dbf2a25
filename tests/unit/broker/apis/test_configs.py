"""DescribeConfigs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded, finished, state
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode, NotConnected
from minikafka.broker.admin.configs import ResourceType
from minikafka.broker.apis.configs import (
    BROKER,
    HANDLERS,
    TOPIC,
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from minikafka.broker.settings.config_entries import LOG_LEVELS
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from minikafka.zookeeper.nodes import layout


def with_topic() -> Cold:
    cold = Cold(config={"minikafka.cluster.secret": "a secret that is never shown"})
    cold.update(state("t", 0, (1,)))
    overrides = layout.encode_config({"retention.ms": "5"})
    cold.ensemble.put(layout.topic_config_path("t"), overrides)
    return cold


async def ask(
    cold: Cold, resource_type: int, name: str, version: int = 4, keys: Any = None, **rest: Any
) -> Any:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
    request = entity(DESCRIBE_CONFIGS, version, resources=[resource], **rest)
    answer = finished(await describe_configs(cold.services, request, context(version)))
    frame = codec.encode_response(1, DESCRIBE_CONFIGS, version, answer)
    assert b"never shown" not in frame
    return codec.decode_response(DESCRIBE_CONFIGS, version, frame[4:]).results[0]


@pytest.mark.parametrize("version", range(5))
async def test_loggers_of_this_broker_are_described_with_their_levels(version: int) -> None:
    got = await ask(Cold(), ResourceType.BROKER_LOGGER, "1", version, keys=["root", "state-change"])
    assert got.error_code == ErrorCode.NONE
    assert [entry.name for entry in got.configs] == ["root", "state-change"]
    assert all(entry.value in LOG_LEVELS and not entry.read_only for entry in got.configs)
    assert not any(entry.is_sensitive for entry in got.configs)
    if version:
        assert {entry.config_source for entry in got.configs} == {6}


@pytest.mark.parametrize(("name", "words"), [("", "must not be empty"), ("2", "expected 1")])
async def test_loggers_of_another_broker_are_not_described(name: str, words: str) -> None:
    got = await ask(Cold(), ResourceType.BROKER_LOGGER, name)
    assert got.error_code == ErrorCode.INVALID_REQUEST
    assert words in got.error_message


async def test_describe_configs_yields_to_the_event_loop_for_each_distinct_resource() -> None:
    cold = with_topic()
    names = ["1", "", "1", "2"]
    resources = [
        {"resource_type": BROKER, "resource_name": name, "configuration_keys": None}
        for name in names
    ]
    request = entity(DESCRIBE_CONFIGS, 4, resources=resources)
    steps = await describe_configs(cold.services, request, context(4))
    for _ in range(3):
        next(steps)
    frame = codec.encode_response(1, DESCRIBE_CONFIGS, 4, finished(steps))
    results = codec.decode_response(DESCRIBE_CONFIGS, 4, frame[4:]).results
    assert [(result.resource_name, result.error_code) for result in results] == [
        ("1", 0),
        ("", 0),
        ("2", int(ErrorCode.INVALID_REQUEST)),
    ]


@pytest.mark.parametrize("version", range(1, 5))
async def test_described_topic_has_its_own_settings_and_the_broker_defaults(version: int) -> None:
    got = await ask(with_topic(), TOPIC, "t", version)
    assert (got.error_code, got.resource_type, got.resource_name) == (0, TOPIC, "t")
    shown = {entry.name: entry for entry in got.configs}
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("5", 1)
    assert (shown["segment.bytes"].value, shown["segment.bytes"].config_source) == ("1073741824", 5)
    assert shown["segment.bytes"].synonyms == ()


async def test_synonyms_types_and_documentation_are_returned_on_request() -> None:
    got = await ask(
        with_topic(),
        TOPIC,
        "t",
        keys=["retention.ms"],
        include_synonyms=True,
        include_documentation=True,
    )
    (entry,) = got.configs
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.hours", "168", 5),
    ]
    assert (entry.config_type, bool(entry.documentation)) == (5, True)


async def test_broker_settings_are_described_without_secrets() -> None:
    got = await ask(with_topic(), BROKER, "1", include_synonyms=True)
    shown = {entry.name: entry for entry in got.configs}
    assert shown["inter.broker.protocol.version"].value == "3.3-IV3"
    assert shown["delete.topic.enable"].value == "true"
    secret = shown["minikafka.cluster.secret"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert all(synonym.value is None for synonym in secret.synonyms)


async def test_empty_list_of_keys_requests_every_setting() -> None:
    assert len((await ask(with_topic(), BROKER, "1", keys=[])).configs) > 50
    (one,) = (await ask(with_topic(), BROKER, "1", keys=["broker.id", "nothing"])).configs
    assert one.value == "1"


async def test_describe_configs_of_all_brokers_returns_no_settings_when_none_is_stored() -> None:
    got = await ask(with_topic(), BROKER, "")
    assert (got.error_code, got.configs) == (0, ())


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (16, "1", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_unknown_resources_are_refused(
    resource_type: int, name: str, code: ErrorCode
) -> None:
    got = await ask(with_topic(), resource_type, name)
    assert (got.error_code, got.configs) == (code, ())
    assert got.error_message


async def test_brokers_are_described_when_zookeeper_does_not_respond() -> None:
    cold = with_topic()
    cold.session.failures = [NotConnected()]
    assert (await ask(cold, TOPIC, "t")).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await ask(cold, BROKER, "1")).error_code == 0


@pytest.mark.parametrize(("api", "version"), [(33, 0), (33, 1), (33, 2), (44, 0), (44, 1)])
async def test_each_altered_resource_has_its_own_result(api: int, version: int) -> None:
    cold = with_topic()
    operation = {} if api == ALTER_CONFIGS else {"config_operation": 0}
    refusal = ErrorCode.INVALID_REQUEST if api == ALTER_CONFIGS else ErrorCode.INVALID_CONFIG
    resources = [
        {
            "resource_type": resource_type,
            "resource_name": name,
            "configs": [{"name": key, "value": "7", **operation}],
        }
        for resource_type, name, key in (
            (TOPIC, "t", "segment.ms"),
            (TOPIC, "none", "segment.ms"),
            (8, "1", "root"),
        )
    ]
    request = entity(api, version, resources=resources, validate_only=False)
    handler = alter_configs if api == ALTER_CONFIGS else incremental_alter_configs
    answer = await handler(cold.services, request, context(version))
    got = decoded(api, version, answer).responses
    assert [(r.resource_type, r.resource_name, int(r.error_code)) for r in got] == [
        (TOPIC, "t", 0),
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (8, "1", refusal),
    ]
    stored = layout.decode_config(cold.data(layout.topic_config_path("t")))
    kept = {} if api == ALTER_CONFIGS else {"retention.ms": "5"}
    assert stored == {**kept, "segment.ms": "7"}


async def test_request_with_many_refused_resources_yields_to_the_event_loop() -> None:
    cold = with_topic()
    resources = [
        {"resource_type": TOPIC, "resource_name": f"none-{number}", "configs": []}
        for number in range(160)
    ]
    request = entity(44, 1, resources=resources, validate_only=False)
    altering = asyncio.ensure_future(incremental_alter_configs(cold.services, request, context(1)))
    turns = 0
    while not altering.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    rows = decoded(INCREMENTAL_ALTER_CONFIGS, 1, altering.result()).responses
    assert [row.resource_name for row in rows] == [f"none-{number}" for number in range(160)]


async def test_dynamic_settings_are_described_with_their_source() -> None:
    cold = with_topic()
    rate = "leader.replication.throttled.rate"
    cold.settings.load({"min.insync.replicas": "2"}, {"min.insync.replicas": "3", rate: "9"})
    shown = {e.name: e for e in (await ask(cold, BROKER, "1", include_synonyms=True)).configs}
    least = shown["min.insync.replicas"]
    assert (least.value, least.config_source, least.read_only) == ("3", 2, False)
    assert [(s.value, s.source) for s in least.synonyms] == [("3", 2), ("2", 3), ("1", 5)]
    assert (shown[rate].value, shown[rate].config_source) == ("9", 2)
    assert shown["broker.id"].read_only
    (cluster,) = (await ask(cold, BROKER, "", include_synonyms=True)).configs
    assert (cluster.name, cluster.value, cluster.config_source) == ("min.insync.replicas", "2", 3)
    inherited = {e.name: e for e in (await ask(cold, TOPIC, "t")).configs}["min.insync.replicas"]
    assert (inherited.value, inherited.config_source) == ("3", 2)


@pytest.mark.parametrize("api", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
async def test_too_many_settings_of_one_resource_are_refused(api: int) -> None:
    cold = with_topic()
    version = 2 if api == ALTER_CONFIGS else 1
    settings = [{"name": f"key.{number}", "value": "v"} for number in range(5_000)]
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": settings}
    request = entity(api, version, resources=[resource], validate_only=False)
    steps: Any = await HANDLERS[api](cold.services, request, context(version))
    (row,) = decoded(api, version, steps).responses
    assert row.error_code == ErrorCode.INVALID_REQUEST
