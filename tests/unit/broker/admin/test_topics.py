"""Topics are created and marked for deletion by the controller; other brokers refuse such requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.brokers.cold import Cold, state

from minikafka.base.errors import ErrorCode, NotConnected
from minikafka.base.model import RequestedTopic
from minikafka.base.ports import Check
from minikafka.broker.admin.topics import TopicResult
from minikafka.broker.side_by_side import AT_ONCE
from minikafka.zookeeper.nodes import layout


async def create(
    cold: Cold, *topics: RequestedTopic, timeout_ms: int = 60_000, **rest: Any
) -> list[TopicResult]:
    """Create topics, elect leaders for their partitions, and return the results."""
    creating = asyncio.ensure_future(cold.admin.topics.create_topics(topics, timeout_ms, **rest))
    await cold.until_waiting(creating)
    cold.lead_what_is_created()
    return await creating


async def refusal(cold: Cold, topic: RequestedTopic) -> tuple[ErrorCode, str]:
    before = cold.znodes()
    (result,) = await cold.admin.topics.create_topics([topic], 1000)
    assert cold.znodes() == before
    assert result.plan is None
    return result.error, result.message or ""


@pytest.mark.row("C20")
async def test_replicas_and_settings_of_a_new_topic_are_written_in_one_fenced_multi() -> None:
    cold = Cold()
    (result,) = await create(cold, RequestedTopic("t", 2, 3, configs={"retention.ms": "5"}))
    assert result.error == ErrorCode.NONE
    assert result.plan is not None
    (ops,) = cold.session.multis
    assert ops[0] == Check(layout.CONTROLLER_EPOCH, 0)
    topic_id, assignment = layout.decode_topic(cold.data(layout.topic_path("t")))
    assert topic_id == result.plan.topic_id
    assert {p: set(a.replicas) for p, a in assignment.items()} == {0: {1, 2, 3}, 1: {1, 2, 3}}
    config = layout.decode_config(cold.data(layout.topic_config_path("t")))
    assert config == {"retention.ms": "5"}


@pytest.mark.key("num.partitions", "default.replication.factor")
async def test_omitted_partition_and_replica_counts_are_the_broker_defaults() -> None:
    cold = Cold(config={"num.partitions": 4, "default.replication.factor": 2})
    (result,) = await create(cold, RequestedTopic("t"))
    assert result.plan is not None
    assert sorted(map(len, result.plan.assignment.values())) == [2, 2, 2, 2]


async def test_manual_assignment_may_name_a_dead_broker_but_not_an_unknown_one() -> None:
    cold = Cold()
    cold.update(state("other", 0, (7, 1), leader=1))
    (result,) = await create(cold, RequestedTopic("t", assignment=((0, (1, 7)),)))
    assert result.error == ErrorCode.NONE
    code, _ = await refusal(cold, RequestedTopic("u", assignment=((0, (1, 8)),)))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.row("C20")
@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (RequestedTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        (RequestedTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..'"),
        (RequestedTopic("a/../b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "letters"),
        (RequestedTopic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION, "letters"),
        (RequestedTopic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "249"),
        (RequestedTopic("old_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION, "old.topic"),
        (RequestedTopic("old.topic"), ErrorCode.TOPIC_ALREADY_EXISTS, "exists"),
        (RequestedTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "larger than 0"),
        (RequestedTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS, "larger than 0"),
        (RequestedTopic("t", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION, "10000"),
        (RequestedTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (RequestedTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "available brokers: 3"),
        (RequestedTopic("t", 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST, "not both"),
        (
            RequestedTopic("t", assignment=((0, (1, 1)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "twice",
        ),
        (
            RequestedTopic("t", configs={"retention.ms": None}),
            ErrorCode.INVALID_CONFIG,
            "retention.ms",
        ),
        (
            RequestedTopic("t", configs={"retention.ms": "x"}),
            ErrorCode.INVALID_CONFIG,
            "retention.ms",
        ),
        (
            RequestedTopic("t", configs={"retntion.ms": "1"}),
            ErrorCode.INVALID_CONFIG,
            "retention.ms",
        ),
    ],
)
async def test_invalid_topic_is_refused_with_kafkas_error_code(
    topic: RequestedTopic, code: ErrorCode, words: str
) -> None:
    cold = Cold()
    await create(cold, RequestedTopic("old.topic"))
    got, message = await refusal(cold, topic)
    assert got == code
    assert words in message


@pytest.mark.row("C20")
async def test_valid_topics_are_created_next_to_an_invalid_one() -> None:
    cold = Cold()
    results = await create(
        cold,
        RequestedTopic("bad", 0),
        RequestedTopic("good"),
        RequestedTopic("twice"),
        RequestedTopic("twice"),
    )
    assert [(result.name, result.error) for result in results] == [
        ("bad", ErrorCode.INVALID_PARTITIONS),
        ("good", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.row("C20")
async def test_topic_is_refused_if_its_name_collides_with_an_earlier_accepted_name() -> None:
    cold = Cold()
    results = await create(
        cold, RequestedTopic("a.b", 0), RequestedTopic("a_b"), RequestedTopic("a.b_c")
    )
    results += await create(cold, RequestedTopic("t.u"), RequestedTopic("t_u"))
    assert [(result.name, result.error) for result in results] == [
        ("a.b", ErrorCode.INVALID_PARTITIONS),
        ("a_b", ErrorCode.NONE),
        ("a.b_c", ErrorCode.NONE),
        ("t.u", ErrorCode.NONE),
        ("t_u", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


@pytest.mark.row("C20")
async def test_name_that_collides_with_a_topic_not_yet_in_the_metadata_is_refused() -> None:
    cold = Cold()
    cold.ensemble.put(layout.topic_path("a.b"), b"{}")
    code, message = await refusal(cold, RequestedTopic("a_b"))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a.b" in message


async def test_validate_only_creates_no_topic() -> None:
    cold = Cold()
    good, bad = await cold.admin.topics.create_topics(
        [RequestedTopic("t", 3, 2), RequestedTopic("u", 0)], 1000, True
    )
    assert (good.error, bad.error) == (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
    assert good.plan is not None
    assert cold.session.multis == []


@pytest.mark.row("C21")
async def test_settings_of_a_deleted_topic_with_the_same_name_are_replaced() -> None:
    cold = Cold()
    path = layout.topic_config_path("t")
    for _ in range(5):
        cold.ensemble.put(path, layout.encode_config({"retention.ms": "1"}))
    (result,) = await create(cold, RequestedTopic("t"))
    assert result.error == ErrorCode.NONE
    assert layout.decode_config(cold.data(path)) == {}


async def test_broker_that_is_not_the_controller_creates_and_deletes_nothing() -> None:
    cold = Cold(broker_id=1, controller_id=2)
    (created,) = await cold.admin.topics.create_topics([RequestedTopic("t")], 1000)
    deleted = await cold.admin.topics.delete_topics(["t"], 1000)
    assert created.error == deleted["t"].error == ErrorCode.NOT_CONTROLLER
    assert cold.session.multis == []


async def test_former_controller_creates_no_topic_because_its_epoch_is_stale() -> None:
    cold = Cold()
    cold.ensemble.put(layout.CONTROLLER_EPOCH, b"2")
    code, _ = await refusal(cold, RequestedTopic("t"))
    assert code == ErrorCode.NOT_CONTROLLER


@pytest.mark.row("C20")
async def test_second_of_two_concurrent_creations_fails_with_topic_already_exists() -> None:
    cold = Cold()
    first, second = await asyncio.gather(
        create(cold, RequestedTopic("t")), create(cold, RequestedTopic("t"))
    )
    assert {first[0].error, second[0].error} == {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("unanswered", ErrorCode.NONE),
        ("lagging", ErrorCode.NONE),
        ("lost", ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_topic_write_with_a_lost_response_is_resolved_by_reading_the_node(
    fault: str, code: ErrorCode
) -> None:
    cold = Cold()
    creating = asyncio.ensure_future(cold.admin.topics.create_topics([RequestedTopic("t")], 60_000))
    cold.session.faults = [fault]
    await cold.until_waiting(creating)
    cold.lead_what_is_created()
    (result,) = await creating
    assert result.error == code


async def test_error_is_retriable_when_zookeeper_is_unreachable() -> None:
    cold = Cold()
    cold.session.failures = [NotConnected()]
    (result,) = await cold.admin.topics.create_topics([RequestedTopic("t")], 1000)
    assert result.error.retriable
    cold.session.failures = [NotConnected()]
    assert (await cold.admin.topics.delete_topics(["t"], 1000))["t"].error.retriable


async def test_request_times_out_when_a_created_topic_gets_no_leaders_in_time() -> None:
    cold = Cold()
    (result,) = await cold.admin.topics.create_topics([RequestedTopic("t")], 1)
    assert result.error == ErrorCode.REQUEST_TIMED_OUT
    assert layout.topic_path("t") in cold.ensemble.nodes


async def test_topic_is_marked_for_deletion_and_an_unknown_topic_is_refused() -> None:
    cold = Cold()
    await create(cold, RequestedTopic("t"))
    deleting = asyncio.ensure_future(
        cold.admin.topics.delete_topics(["t", "absent", "a/b"], 60_000)
    )
    await cold.until_waiting(deleting)
    cold.forget_what_is_marked()
    results = await deleting
    assert [result.error for result in results.values()] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert layout.delete_topic_path("t") in cold.ensemble.nodes
    assert cold.ensemble.children(layout.DELETE_TOPICS) == ["t"]


async def test_concurrent_deletions_both_succeed_and_a_later_deletion_is_refused() -> None:
    """As in Kafka, an existing deletion mark is no error. A topic that is no longer in the metadata is unknown."""
    cold = Cold()
    await create(cold, RequestedTopic("t"))
    topics = cold.admin.topics
    both = [asyncio.ensure_future(topics.delete_topics(["t"], 60_000)) for _ in range(2)]
    await cold.until_waiting(*both, waiting=2)
    assert not any(deleting.done() for deleting in both)
    cold.forget_what_is_marked()
    assert [(await deleting)["t"].error for deleting in both] == [ErrorCode.NONE, ErrorCode.NONE]
    assert layout.topic_path("t") in cold.ensemble.nodes, "the controller still deletes it"
    again = await topics.delete_topics(["t"], 60_000)
    assert again["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("is_shown_meanwhile", [True, False])
async def test_deletion_of_a_topic_not_yet_in_the_metadata_waits_until_it_is_deleted(
    is_shown_meanwhile: bool,
) -> None:
    cold = Cold()
    await cold.admin.topics.create_topics([RequestedTopic("t")], 0)
    assert "t" not in cold.metadata.topics
    deleting = asyncio.ensure_future(cold.admin.topics.delete_topics(["t"], 60_000))
    await cold.until_waiting(deleting)
    assert not deleting.done()
    assert layout.delete_topic_path("t") in cold.ensemble.nodes
    if is_shown_meanwhile:
        cold.lead_what_is_created()
        cold.forget_what_is_marked()
    cold.ensemble.delete(layout.topic_path("t"))
    async with asyncio.timeout(60):
        assert (await deleting)["t"].error == ErrorCode.NONE


async def test_deletion_times_out_when_a_topic_not_in_the_metadata_stays_in_zookeeper() -> None:
    cold = Cold()
    await cold.admin.topics.create_topics([RequestedTopic("t")], 0)
    results = await cold.admin.topics.delete_topics(["t"], 1)
    assert results["t"].error == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.row("R65")
@pytest.mark.key("delete.topic.enable")
async def test_deletion_is_refused_when_disabled() -> None:
    cold = Cold(config={"delete.topic.enable": "false"})
    results = await cold.admin.topics.delete_topics(["t"], 1000)
    assert results["t"].error == ErrorCode.TOPIC_DELETION_DISABLED


async def test_deletion_times_out_when_the_metadata_still_shows_the_topic() -> None:
    cold = Cold()
    await create(cold, RequestedTopic("t"))
    results = await cold.admin.topics.delete_topics(["t"], 0)
    assert results["t"].error == ErrorCode.REQUEST_TIMED_OUT
    assert layout.delete_topic_path("t") in cold.ensemble.nodes


async def test_creation_of_many_topics_yields_to_the_event_loop() -> None:
    cold = Cold()
    asked = [RequestedTopic(f"t.{number}", 1, 1) for number in range(500)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    planned = await cold.admin.topics.create_topics([*asked, RequestedTopic("t_7", 1, 1)], 0, True)
    counting.cancel()
    assert turns > 500 // AT_ONCE
    assert [result.error for result in planned[:-1]] == [ErrorCode.NONE] * 500
    assert planned[-1].error == ErrorCode.INVALID_TOPIC_EXCEPTION
