"""Metadata and DescribeCluster."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded, finished, state
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.broker.apis import metadata as metadata_api
from minikafka.broker.apis.metadata import (
    describe_cluster,
    metadata,
)
from minikafka.broker.metadata import MetadataSnapshot
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.metadata import NOT_ASKED
from minikafka.kafka.wire.versions import DESCRIBE_CLUSTER, METADATA

TOPIC_OPERATIONS = 0b1101_1111_1000
"""Bits: Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs."""
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""Bits: Create, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite."""

ID = bytes(range(16))
ALL = range(13)


def with_topics(**rest: Any) -> Cold:
    cold = Cold(**rest)
    cold.update(state("a", 0, (1, 2)), state("a", 1, (2, 1)), state("b", 0, (3,)), ids={"a": ID})
    return cold


def ask(cold: Cold, version: int, topics: Any, **rest: Any) -> Any:
    request = entity(METADATA, version, topics=topics, **rest)
    return answer(cold, version, request)


def answer(cold: Cold, version: int, request: Any) -> Any:
    steps = metadata(cold.services, request, context(version))
    assert isinstance(steps, Generator)
    body = finished(steps)
    return codec.decode_response(
        METADATA, version, codec.encode_response(1, METADATA, version, body)[4:]
    )


def errors(got: Any) -> dict[str, int]:
    return {topic.name: int(topic.error_code) for topic in got.topics}


@pytest.mark.parametrize("version", ALL)
def test_null_topics_and_in_version_0_empty_topics_request_all_topics(
    version: int,
) -> None:
    got = ask(with_topics(), version, None if version else [])
    assert errors(got) == {"a": 0, "b": 0}
    assert [broker.node_id for broker in got.brokers] == [1, 2, 3]
    assert [part.partition_index for part in got.topics[0].partitions] == [0, 1]
    if version >= 1:
        assert got.controller_id == 1
        assert errors(ask(with_topics(), version, [])) == {}
    if version >= 2:
        assert got.cluster_id == "the-cluster"
    if version >= 10:
        assert got.topics[0].topic_id == ID


@pytest.mark.parametrize("version", ALL)
async def test_unknown_topic_is_created_when_auto_creation_is_allowed(version: int) -> None:
    cold = with_topics()
    got = ask(cold, version, [{"name": "new"}, {"name": "a"}, {"name": "a/b"}])
    assert errors(got) == {
        "a": 0,
        "new": ErrorCode.LEADER_NOT_AVAILABLE,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert len(cold.tasks.running) == 1
    for task in cold.tasks.running:
        task.cancel()


@pytest.mark.parametrize("version", ALL)
@pytest.mark.key("auto.create.topics.enable")
def test_unknown_topic_is_an_error_when_auto_creation_is_not_allowed(version: int) -> None:
    cold = with_topics(config={"auto.create.topics.enable": "false"})
    got = ask(cold, version, [{"name": "new"}, {"name": ".."}])
    assert errors(got) == {
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_unknown_topic_is_not_created_when_the_request_forbids_it() -> None:
    got = ask(with_topics(), 4, [{"name": "new"}], allow_auto_topic_creation=False)
    assert errors(got) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_topics_are_requested_by_id_from_version_12() -> None:
    cold = with_topics()
    got = ask(
        cold, 12, [{"name": None, "topic_id": ID}, {"name": None, "topic_id": bytes(15) + b"x"}]
    )
    assert [(t.name, int(t.error_code)) for t in got.topics] == [
        ("a", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert got.topics[1].topic_id == bytes(15) + b"x"
    assert errors(ask(cold, 10, [{"name": "a", "topic_id": ID}])) == {
        "a": ErrorCode.INVALID_REQUEST
    }


def test_topic_id_takes_precedence_over_a_name() -> None:
    got = ask(with_topics(), 12, [{"name": "b", "topic_id": ID}])
    assert [(t.name, int(t.error_code)) for t in got.topics] == [("a", 0)]
    unknown = ask(with_topics(), 12, [{"name": "a", "topic_id": bytes(15) + b"x"}])
    assert [int(t.error_code) for t in unknown.topics] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_topic_requested_twice_is_returned_once() -> None:
    got = ask(with_topics(), 12, [{"name": "a"}, {"name": "a"}])
    assert [topic.name for topic in got.topics] == ["a"]


def test_controller_is_omitted_when_it_is_not_a_live_broker() -> None:
    cold = with_topics()
    cold.controller.controller_id = 9
    assert ask(cold, 12, None).controller_id == 1
    cold.live = {2: cold.live[2]}
    cold.update()
    assert ask(cold, 12, None).controller_id == -1


def test_partitions_of_a_dead_broker_have_no_leader() -> None:
    cold = with_topics()
    before = ask(cold, 12, [{"name": "b"}]).topics[0].partitions[0]
    assert (before.leader_id, before.offline_replicas) == (3, ())
    del cold.live[3]
    cold.update()
    after = ask(cold, 12, [{"name": "b"}]).topics[0].partitions[0]
    assert (after.error_code, after.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert after.offline_replicas == (3,)


def test_encoded_topic_is_cached_until_the_metadata_changes() -> None:
    cold = with_topics()
    ask(cold, 12, None)
    (first,) = {key for key in cold.metadata.snapshot.encoded if key[1] == "a"}
    kept = cold.metadata.snapshot.encoded[first]
    ask(cold, 12, [{"name": "a"}])
    assert cold.metadata.snapshot.encoded[first] is kept
    cold.update()
    assert cold.metadata.snapshot.encoded[first] is kept
    del cold.live[3]
    cold.update()
    assert cold.metadata.snapshot.encoded == {}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_authorized_operations_are_returned_only_on_request(version: int) -> None:
    plain = ask(with_topics(), version, [{"name": "a"}])
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    assert plain.cluster_authorized_operations == NOT_ASKED
    asked = ask(
        with_topics(),
        version,
        [{"name": "a"}],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize("version", [0, 1])
async def test_describe_cluster_returns_the_same_brokers_as_metadata(version: int) -> None:
    cold = with_topics()
    request = entity(
        DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True, endpoint_type=1
    )
    body = await describe_cluster(cold.services, request, context(version))
    got = decoded(DESCRIBE_CLUSTER, version, body)
    assert (got.cluster_id, got.controller_id) == ("the-cluster", 1)
    assert [(b.broker_id, b.host, b.port) for b in got.brokers] == [
        (1, "host-1", 9001),
        (2, "host-2", 9002),
        (3, "host-3", 9003),
    ]
    assert got.cluster_authorized_operations == CLUSTER_OPERATIONS


async def test_describe_cluster_refuses_the_controller_endpoint_type() -> None:
    request = entity(DESCRIBE_CLUSTER, 1, endpoint_type=2)
    body = await describe_cluster(with_topics().services, request, context(1))
    got = decoded(DESCRIBE_CLUSTER, 1, body)
    assert got.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def told_nothing() -> Cold:
    cold = Cold()
    cold.metadata.snapshot = MetadataSnapshot()
    return cold


@pytest.mark.parametrize("topics", [None, [{"name": "a"}, {"name": "b"}, {"name": "none"}]])
def test_long_metadata_response_shows_no_update_that_arrives_while_it_is_made(topics: Any) -> None:
    cold = with_topics()
    asked = entity(METADATA, 9, topics=topics, allow_auto_topic_creation=False)
    steps = metadata(cold.services, asked, context(9))
    assert isinstance(steps, Generator)
    next(steps)
    cold.update(state("a", 0, (3,)), state("b", 0, (1,)))
    next(steps)
    got = codec.encode_response(1, METADATA, 9, finished(steps))[4:]
    rows = codec.decode_response(METADATA, 9, got).topics
    assert [row.partitions[0].leader_id for row in rows if row.partitions] == [1, 3]


async def test_metadata_request_waits_for_the_first_update_of_a_controller() -> None:
    """An earlier response would list no brokers, and librdkafka would forget every broker that it knows."""
    cold = told_nothing()
    asked = entity(METADATA, 12, topics=None)
    about_topics = asyncio.ensure_future(metadata(cold.services, asked, context(12)))
    asked = entity(DESCRIBE_CLUSTER, 1, endpoint_type=1)
    about_brokers = asyncio.ensure_future(describe_cluster(cold.services, asked, context(1)))
    await asyncio.sleep(0)
    assert not about_topics.done()
    cold.update(state("a", 0, (1, 2)))
    got = codec.encode_response(1, METADATA, 12, finished(await about_topics))[4:]
    assert errors(codec.decode_response(METADATA, 12, got)) == {"a": 0}
    assert [
        broker.broker_id for broker in decoded(DESCRIBE_CLUSTER, 1, await about_brokers).brokers
    ] == [1, 2, 3]


async def test_metadata_request_fails_when_no_controller_sends_an_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_api, "_FIRST_UPDATE_MS", 10)
    with pytest.raises(KafkaError, match="no controller"):
        await metadata(told_nothing().services, entity(METADATA, 12, topics=None), context(12))
