"""CreateTopics and DeleteTopics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.brokers.cold import Cold, context, finished, state
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode
from minikafka.base.model import ReplicaAssignment
from minikafka.broker.apis.topics import create_partitions, create_topics, delete_topics
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from minikafka.zookeeper.nodes import layout

ID = bytes(range(16))


async def create(cold: Cold, version: int, topics: Any, **rest: Any) -> Any:
    request = entity(CREATE_TOPICS, version, topics=topics, timeout_ms=60_000, **rest)
    handling = asyncio.ensure_future(create_topics(cold.services, request, context(version)))
    await cold.until_waiting(handling)
    cold.lead_what_is_created()
    frame = codec.encode_response(1, CREATE_TOPICS, version, finished(await handling))
    return codec.decode_response(CREATE_TOPICS, version, frame[4:])


def topic(name: str, partitions: int = 2, factor: int = 3, **rest: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **rest}


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_returns_topic_details_from_version_5(version: int) -> None:
    cold = Cold()
    configs = [{"name": "retention.ms", "value": "5"}]
    answer = await create(cold, version, [topic("t", configs=configs), topic("u", 0)])
    made, refused = answer.topics
    assert (made.name, made.error_code, made.error_message) == ("t", 0, None)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert refused.error_message
    assert len(cold.metadata.topics["t"]) == 2
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 3)
        shown = {entry.name: (entry.value, entry.config_source) for entry in made.configs}
        assert shown["retention.ms"] == ("5", 1)
        assert shown["segment.bytes"] == ("1073741824", 5)
        assert list(refused.configs) == []
    if version >= 7:
        assert made.topic_id == cold.metadata.topic_ids["t"]


async def test_create_topics_uses_a_manual_assignment() -> None:
    cold = Cold()
    by_hand = [
        {"partition_index": 0, "broker_ids": [2, 3]},
        {"partition_index": 1, "broker_ids": [3, 1]},
    ]
    answer = await create(cold, 5, [topic("t", -1, -1, assignments=by_hand)])
    assert answer.topics[0].error_code == 0
    assert cold.metadata.topics["t"][1].replicas == (3, 1)
    twice = [by_hand[0], {**by_hand[0], "broker_ids": [1, 2]}]
    answer = await create(cold, 5, [topic("u", -1, -1, assignments=twice)])
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_validate_only_creates_no_topic_and_no_topic_id() -> None:
    cold = Cold()
    answer = await create(cold, 7, [topic("t")], validate_only=True)
    assert answer.topics[0].error_code == 0
    assert answer.topics[0].num_partitions == 2
    assert answer.topics[0].topic_id == bytes(16)
    assert cold.session.multis == []


async def test_broker_that_is_not_the_controller_returns_not_controller() -> None:
    cold = Cold(broker_id=2, controller_id=1)
    answer = await create(cold, 4, [topic("t"), topic("u")])
    assert [t.error_code for t in answer.topics] == [ErrorCode.NOT_CONTROLLER] * 2
    for version, asked in ((5, {"topic_names": ["t"]}), (6, {"topics": [{"name": "t"}]})):
        request = entity(DELETE_TOPICS, version, **asked)
        got = await deleted(cold, version, request)
        assert got.responses[0].error_code == ErrorCode.NOT_CONTROLLER


def existing(**rest: Any) -> Cold:
    cold = Cold(**rest)
    for name, topic_id in (("a", ID), ("b", bytes(reversed(ID)))):
        cold.ensemble.put(layout.topic_path(name), layout.encode_topic(topic_id, {}))
        cold.update(state(name, 0, (1, 2)), ids={name: topic_id})
    return cold


async def delete(cold: Cold, version: int, **asked: Any) -> Any:
    """Delete topics, let the controller begin the deletion at once, and return the response."""
    request = entity(DELETE_TOPICS, version, timeout_ms=60_000, **asked)
    deleting = asyncio.ensure_future(deleted(cold, version, request))
    await cold.until_waiting(deleting)
    cold.forget_what_is_marked()
    return await deleting


async def deleted(cold: Cold, version: int, request: Any) -> Any:
    steps = await delete_topics(cold.services, request, context(version))
    frame = codec.encode_response(1, DELETE_TOPICS, version, finished(steps))
    return codec.decode_response(DELETE_TOPICS, version, frame[4:])


@pytest.mark.parametrize("version", range(1, 6))
async def test_topics_are_marked_for_deletion_by_name(version: int) -> None:
    cold = existing()
    got = await delete(cold, version, topic_names=["a", "none"])
    assert [(r.name, int(r.error_code)) for r in got.responses] == [
        ("a", 0),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert layout.delete_topic_path("a") in cold.ensemble.nodes


async def test_topics_are_marked_for_deletion_by_id() -> None:
    cold = existing()
    asked = [
        {"name": None, "topic_id": ID},
        {"name": "b"},
        {"name": None, "topic_id": b"x" * 16},
        {"name": "c", "topic_id": ID},
    ]
    got = await delete(cold, 6, topics=asked)
    assert [(r.name, int(r.error_code)) for r in got.responses] == [
        ("a", 0),
        ("b", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    assert [r.topic_id for r in got.responses[:2]] == [ID, bytes(16)], (
        "a name has no id, as in Kafka"
    )
    assert cold.ensemble.children(layout.DELETE_TOPICS) == ["a", "b"]


@pytest.mark.parametrize("name", ["", ".", "a/b", "\0", "x" * 250])
@pytest.mark.parametrize("version", [1, 5, 6])
async def test_deletion_of_an_invalid_topic_name_returns_unknown_topic(
    name: str, version: int
) -> None:
    cold = existing()
    rest = {"topics": [{"name": name}]} if version >= 6 else {"topic_names": [name]}
    got = await delete(cold, version, **rest)
    (answer,) = got.responses
    assert (answer.name, answer.error_code) == (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert cold.session.multis == []


async def test_topic_named_twice_is_not_deleted() -> None:
    cold = existing()
    asked = [{"name": None, "topic_id": ID}, {"name": "a"}]
    got = await deleted(cold, 6, entity(DELETE_TOPICS, 6, topics=asked))
    assert [r.error_code for r in got.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert cold.session.multis == []


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
async def test_disabled_topic_deletion_returns_the_error_code_of_the_request_version(
    version: int, code: ErrorCode
) -> None:
    cold = existing(config={"delete.topic.enable": "false"})
    got = await deleted(cold, version, entity(DELETE_TOPICS, version, topic_names=["a"]))
    assert got.responses[0].error_code == code


@pytest.mark.parametrize("version", range(4))
async def test_create_partitions_returns_a_result_for_each_topic(version: int) -> None:
    cold = with_two_partitions()
    topics = [
        {"name": "t", "count": 3, "assignments": None},
        {"name": "u", "count": 3, "assignments": [{"broker_ids": [2, 1]}]},
        {"name": "none", "count": 3, "assignments": None},
    ]
    request = entity(CREATE_PARTITIONS, version, topics=topics, timeout_ms=0)
    steps = await create_partitions(cold.services, request, context(version))
    frame = codec.encode_response(1, CREATE_PARTITIONS, version, finished(steps))
    results = codec.decode_response(CREATE_PARTITIONS, version, frame[4:]).results
    assert {result.name: int(result.error_code) for result in results} == {
        "t": ErrorCode.REQUEST_TIMED_OUT,
        "u": ErrorCode.REQUEST_TIMED_OUT,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    written = layout.decode_topic(cold.data(layout.topic_path("u")))[1]
    assert written[2].replicas == (2, 1)


async def test_validate_only_adds_no_partitions() -> None:
    cold = with_two_partitions()
    topics = [{"name": "t", "count": 3, "assignments": None}]
    request = entity(CREATE_PARTITIONS, 3, topics=topics, validate_only=True)
    steps = await create_partitions(cold.services, request, context(3))
    frame = codec.encode_response(1, CREATE_PARTITIONS, 3, finished(steps))
    results = codec.decode_response(CREATE_PARTITIONS, 3, frame[4:]).results
    assert [result.error_code for result in results] == [0]
    assert cold.session.multis == []


def with_two_partitions() -> Cold:
    cold = Cold()
    for name in ("t", "u"):
        assignment = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 3))}
        cold.ensemble.put(layout.topic_path(name), layout.encode_topic(ID, assignment))
        cold.update(state(name, 0, (1, 2)), state(name, 1, (2, 3)))
    return cold
