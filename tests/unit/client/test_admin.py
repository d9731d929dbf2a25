"""The admin client with scripted brokers: the controller changes, and brokers refuse single items of a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.clients.stub_cluster import StubCluster
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.client import Client, NewTopic, Outcome, Record
from minikafka.client.administration import admin
from minikafka.client.administration.results import ConfigSource, Resource, ResourceType
from minikafka.kafka.wire import versions
from minikafka.simulation.transport import MemoryTransport

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC, BROKER = Resource(ResourceType.TOPIC, "t"), Resource(ResourceType.BROKER, "3")
DONE = Outcome(ErrorCode.NONE)


class Scripted(StubCluster):
    """A StubCluster in which `replies[api](broker id, request)`, if set, returns the response of an API."""

    def __init__(self, transport: MemoryTransport) -> None:
        super().__init__(transport)
        self.replies: dict[int, Callable[[int, Any], Any]] = {}

    def answer(self, broker: int, api: int, request: Any) -> Any:
        if api in self.replies:
            return self.replies[api](broker, request)
        return super().answer(broker, api, request)


@pytest.fixture
async def cluster() -> AsyncIterator[Scripted]:
    running = Scripted(MemoryTransport())
    await running.start()
    yield running
    await running.close()


def reassigned(**errors: int) -> dict[str, Any]:
    partitions = [
        {"partition_index": int(number[1:]), "error_code": code, "error_message": None}
        for number, code in errors.items()
    ]
    return {
        "error_code": 0,
        "error_message": None,
        "responses": [{"name": "t", "partitions": partitions}],
    }


async def test_create_and_delete_topics_return_an_outcome_per_topic(
    cluster: Scripted, client: Client
) -> None:
    cluster.create("old", [1])
    outcomes = await client.admin.create_topics([NewTopic("new", 1, 1), NewTopic("old", 1, 1)])
    assert outcomes == {"new": DONE, "old": Outcome(ErrorCode.TOPIC_ALREADY_EXISTS)}
    deleted = await client.admin.delete_topics(["new", "none"])
    assert [outcome.ok for outcome in deleted.values()] == [True, False]


async def test_only_partitions_refused_with_not_controller_go_to_the_new_controller(
    cluster: Scripted, client: Client
) -> None:
    asked = []

    def alter(broker: int, request: Any) -> Any:
        wanted = [p.partition_index for topic in request.topics for p in topic.partitions]
        asked.append((broker, wanted))
        if broker == 1:
            cluster.controller = 2
            return reassigned(p0=0, p1=ErrorCode.NOT_CONTROLLER)
        return reassigned(p1=0)

    cluster.replies[versions.ALTER_PARTITION_REASSIGNMENTS] = alter
    outcomes = await client.admin.alter_reassignments({T0: (3, 1), T1: (2,)})
    assert outcomes == {T0: DONE, T1: DONE}
    assert asked == [(1, [0, 1]), (2, [1])]


async def test_request_refused_as_a_whole_is_sent_to_the_new_controller(
    cluster: Scripted, client: Client
) -> None:
    def listed(broker: int, request: Any) -> Any:
        if broker == 1:
            cluster.controller = 3
            return {"error_code": ErrorCode.NOT_CONTROLLER, "error_message": "no", "topics": []}
        moving = {
            "partition_index": 0,
            "replicas": [3, 1, 2],
            "adding_replicas": [3],
            "removing_replicas": [2],
        }
        return {
            "error_code": 0,
            "error_message": None,
            "topics": [{"name": "t", "partitions": [moving]}],
        }

    cluster.replies[versions.LIST_PARTITION_REASSIGNMENTS] = listed
    assert await client.admin.list_reassignments() == {
        T0: ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,))
    }


async def test_retry_time_limit_gives_an_error_only_to_partitions_still_refused(
    cluster: Scripted, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.admin._retries, "_time_limit_ms", 500)
    replies = iter([reassigned(p0=0, p1=ErrorCode.NOT_CONTROLLER)])
    cluster.replies[versions.ALTER_PARTITION_REASSIGNMENTS] = lambda broker, request: next(
        replies, reassigned(p1=ErrorCode.NOT_CONTROLLER)
    )
    outcomes = await client.admin.alter_reassignments({T0: (3,), T1: (2,)})
    assert outcomes[T0].ok
    assert outcomes[T1].code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await client.admin.alter_reassignments({T1: (2,)})


def still(*moving: TopicPartition) -> Any:
    return {
        "error_code": 0,
        "error_message": None,
        "topics": [
            {
                "name": tp.topic,
                "partitions": [{"partition_index": tp.partition, "replicas": [1, 2, 3]}],
            }
            for tp in moving
        ],
    }


@pytest.mark.row("K2")
async def test_reassign_partition_returns_true_only_if_the_replicas_are_the_target(
    cluster: Scripted, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "METADATA_LAG_MS", 300)
    cluster.create("t", [1])
    looks = iter([still(T0), still(T0)])
    cluster.replies[versions.ALTER_PARTITION_REASSIGNMENTS] = lambda broker, request: reassigned(
        p0=0
    )
    cluster.replies[versions.LIST_PARTITION_REASSIGNMENTS] = lambda broker, request: next(
        looks, still()
    )
    assert await client.admin.reassign_partition("t", 0, [1, 2, 3]) is True
    assert await client.admin.reassign_partition("t", 0, [3, 2, 1]) is False


@pytest.mark.row("K2", "K12")
async def test_reassign_partition_returns_false_and_logs_the_reason_when_refused(
    cluster: Scripted, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.replies[versions.ALTER_PARTITION_REASSIGNMENTS] = lambda broker, request: reassigned(
        p0=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert await client.admin.reassign_partition("t", 0, [1]) is False
    assert "UNKNOWN_TOPIC_OR_PARTITION" in caplog.text


async def test_find_misplaced_waits_for_metadata_that_lags_behind_the_controller(
    cluster: Scripted, client: Client
) -> None:
    cluster.create("t", [1])
    del cluster.ports[3]
    task = asyncio.ensure_future(client.admin.find_misplaced({T0: (1, 2, 3)}, 60_000))
    await until(lambda: len(cluster.asked(versions.METADATA)) >= 4)
    cluster.ports[3] = cluster.listeners[3].port
    assert await task == {}
    assert await client.admin.find_misplaced({T0: (2,), T1: ()}, 0) == {T0: (1, 2, 3), T1: ()}


async def test_elect_leaders_returns_an_outcome_per_partition(
    cluster: Scripted, client: Client
) -> None:
    seen = []

    def elected(broker: int, request: Any) -> Any:
        seen.append((request.election_type, request.topic_partitions))
        results = [
            {"partition_id": 0, "error_code": 0, "error_message": None},
            {"partition_id": 1, "error_code": ErrorCode.ELECTION_NOT_NEEDED, "error_message": "m"},
        ]
        return {
            "error_code": 0,
            "replica_election_results": [{"topic": "t", "partition_result": results}],
        }

    cluster.replies[versions.ELECT_LEADERS] = elected
    expected = {T0: DONE, T1: Outcome(ErrorCode.ELECTION_NOT_NEEDED, "m")}
    assert await client.admin.elect_leaders([T0, T1]) == expected
    assert await client.admin.elect_leaders(unclean=True) == expected
    assert [(kind, topics is None) for kind, topics in seen] == [(0, False), (1, True)]


async def test_broker_config_is_read_from_its_broker_and_topic_config_from_controller(
    cluster: Scripted, client: Client
) -> None:
    asked = []

    def settings(broker: int, request: Any) -> Any:
        asked.append((broker, [r.resource_name for r in request.resources]))
        entry = {
            "name": "k",
            "value": "v",
            "read_only": False,
            "config_source": 1,
            "is_sensitive": False,
            "synonyms": [{"name": "k", "value": "v", "source": 99}],
        }
        return {
            "results": [
                {
                    "error_code": 0,
                    "error_message": None,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                    "configs": [entry],
                }
                for resource in request.resources
            ]
        }

    cluster.replies[versions.DESCRIBE_CONFIGS] = settings
    everybody = Resource(ResourceType.BROKER, "")
    found = await client.admin.describe_configs([TOPIC, BROKER, everybody], synonyms=True)
    assert asked == [(1, ["t", ""]), (3, ["3"])]
    entry = found[TOPIC].entries[0]
    assert (entry.source, entry.synonyms[0].source) == (
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.UNKNOWN,
    )
    await cluster.kill(3)
    away = Resource(ResourceType.BROKER, "9")
    found = await client.admin.describe_configs([BROKER, away, TOPIC])
    assert found[TOPIC].outcome.ok
    assert str(found[away].outcome) == "BROKER_NOT_AVAILABLE: there is no live broker 9"
    assert found[BROKER].outcome.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_alter_configs_sets_and_deletes_keys(cluster: Scripted, client: Client) -> None:
    seen = []

    def altered(broker: int, request: Any) -> Any:
        seen.extend((c.name, c.config_operation, c.value) for c in request.resources[0].configs)
        answer = {"error_code": ErrorCode.INVALID_CONFIG, "error_message": "b is no key"}
        return {"responses": [{**answer, "resource_type": 2, "resource_name": "t"}]}

    cluster.replies[versions.INCREMENTAL_ALTER_CONFIGS] = altered
    outcomes = await client.admin.alter_configs({TOPIC: {"a": "1", "b": None}})
    assert seen == [("a", 0, "1"), ("b", 1, None)]
    assert str(outcomes[TOPIC]) == "INVALID_CONFIG: b is no key"


async def test_create_partitions_sends_the_new_count_and_an_assignment_only_if_given(
    cluster: Scripted, client: Client
) -> None:
    seen = []

    def created(broker: int, request: Any) -> Any:
        seen.extend(
            (t.name, t.count, t.assignments and [a.broker_ids for a in t.assignments])
            for t in request.topics
        )
        names = [t.name for t in request.topics]
        return {"results": [{"name": n, "error_code": 0, "error_message": None} for n in names]}

    cluster.replies[versions.CREATE_PARTITIONS] = created
    outcomes = await client.admin.create_partitions({"t": 3, "u": 2}, {"u": [(2, 3)]})
    assert outcomes == {"t": DONE, "u": DONE}
    assert seen == [("t", 3, None), ("u", 2, [(2, 3)])]


async def test_describe_log_dirs_leaves_out_a_broker_that_does_not_answer(
    cluster: Scripted, client: Client
) -> None:
    def directories(broker: int, request: Any) -> Any:
        if broker == 2:
            cluster.lose_answers_of.add(versions.DESCRIBE_LOG_DIRS)
        partition = {"partition_index": 0, "partition_size": 10 * broker, "offset_lag": 0}
        found = {
            "error_code": 0,
            "log_dir": "/d",
            "topics": [{"name": "t", "partitions": [partition]}],
            "total_bytes": 5,
            "usable_bytes": 4,
        }
        return {"error_code": 0, "results": [found]}

    cluster.replies[versions.DESCRIBE_LOG_DIRS] = directories
    found = await client.admin.describe_log_dirs([T0], [2, 3])
    assert {broker: dirs[0].sizes for broker, dirs in found.items()} == {3: {T0: 30}}


async def test_partition_missing_in_the_reassignment_response_gets_an_error_outcome(
    cluster: Scripted, client: Client
) -> None:
    cluster.replies[versions.ALTER_PARTITION_REASSIGNMENTS] = lambda broker, request: reassigned(
        p0=0
    )
    outcomes = await client.admin.alter_reassignments({T0: (1,), T1: (1,)})
    assert outcomes[T1].code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_alter_reassignments_without_partitions_sends_no_request(
    cluster: Scripted, client: Client
) -> None:
    assert await client.admin.alter_reassignments({}) == {}
    assert cluster.requests == []


async def test_single_name_in_place_of_a_list_is_one_topic(
    cluster: Scripted, client: Client
) -> None:
    await client.create_topics(NewTopic("t-1", 1, 1))
    assert list(await client.admin.describe_topics("t-1")) == ["t-1"]
    _, topics = await client.admin.describe("t-1")
    assert [topic.name for topic in topics] == ["t-1"]
    assert list(await client.admin.create_topics(NewTopic("u", 1, 1))) == ["u"]
    assert list(await client.admin.delete_topics("u")) == ["u"]
    await client.produce("t-1", Record(value=b"v"))
    assert await client.list_offsets("t-1", "latest", 0) == {0: 1}
    for call in (
        lambda: client.admin.create_topics("t"),
        lambda: client.admin.elect_leaders("t-0"),
        lambda: client.admin.list_reassignments(["t-0"]),
        lambda: client.admin.describe_configs("t"),
        lambda: client.describe_topics(["t"]),
    ):
        with pytest.raises(TypeError, match="or a list of these, got"):
            await call()
