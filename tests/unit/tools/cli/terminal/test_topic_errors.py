"""The advice in error messages about topics and partitions."""

from __future__ import annotations

from typing import Any

import pytest
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.terminal.topic_errors import (
    did_you_mean,
    explain_topic_errors,
    require_partitions,
    require_topics,
    similar_topics,
    unknown_topics,
)


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ("t-1", "t-1: no such topic; to create it: minikafka topics create t-1"),
        (
            "t-1-7",
            "t-1-7: no such partition; to list its partitions: minikafka topics describe t-1",
        ),
        ("line 5 (t-1-7)", "line 5 (t-1-7)"),
    ],
)
def test_unknown_topic_or_partition_error_says_what_to_do(detail: str, text: str) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as caught, explain_topic_errors("t-1"):
        raise KafkaError(code, detail)
    assert str(caught.value) == f"UNKNOWN_TOPIC_OR_PARTITION: {text}"


def test_replication_factor_error_says_how_to_create_the_topic() -> None:
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(KafkaError) as caught, explain_topic_errors("t"):
        raise KafkaError(code, "t")
    assert caught.value.detail == (
        "t: default.replication.factor is larger than the number of running brokers; "
        "to use fewer: minikafka topics create t --replication-factor N"
    )


def test_invalid_topic_error_says_which_names_are_valid() -> None:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    with (
        pytest.raises(KafkaError, match="a/b: a topic name has 1 to 249"),
        explain_topic_errors("a/b"),
    ):
        raise KafkaError(code, "a/b")


def test_message_too_large_error_of_a_topic_is_raised_unchanged() -> None:
    with pytest.raises(KafkaError, match=r"^MESSAGE_TOO_LARGE: t$"), explain_topic_errors("t"):
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "t")


def test_hint_of_an_unknown_topic_stays_when_the_error_is_explained() -> None:
    with pytest.raises(KafkaError) as caught, explain_topic_errors("evnts"):
        raise unknown_topics(["evnts"], "did you mean events?")
    assert caught.value.hint == "did you mean events?"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("evnts", "did you mean events?"),
        ("EVENTS", "did you mean events?"),
        ("ord", "did you mean orders or orders-eu?"),
        ("zzz", ""),
        ("events", ""),
    ],
)
def test_question_names_the_similar_names(name: str, expected: str) -> None:
    assert did_you_mean([name], ["events", "orders", "orders-eu"]) == expected


T0 = TopicPartition("events", 0)


async def test_existing_topic_is_not_refused() -> None:
    admin: Any = ScriptedAdmin({T0: (1,)})
    await require_topics(admin, ["events", "an invalid name"])


async def test_missing_topic_is_refused_only_if_the_controller_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin: Any = ScriptedAdmin({T0: (1,)})
    known = await admin.describe_topics(["events"])

    async def stale(*_: object) -> Any:
        return await admin.describe_cluster(), []

    monkeypatch.setattr(admin, "describe", stale)
    await require_topics(admin, ["events"])
    assert known
    with pytest.raises(KafkaError, match="evnts: no such topic"):
        await require_topics(admin, ["events", "evnts"])


async def test_missing_topic_is_refused_if_no_controller_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin: Any = ScriptedAdmin({T0: (1,)})

    async def no_controller(*_: object) -> Any:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    monkeypatch.setattr(admin, "describe_topics", no_controller)
    monkeypatch.setattr(admin, "describe", lambda *_: _nothing(admin))
    with pytest.raises(KafkaError, match="evnts: no such topic"):
        await require_topics(admin, ["evnts"])


async def _nothing(admin: Any) -> Any:
    return await admin.describe_cluster(), []


async def test_missing_partition_is_refused_with_the_command_that_lists_partitions() -> None:
    admin: Any = ScriptedAdmin({T0: (1,)})
    await require_partitions(admin, [T0])
    with pytest.raises(KafkaError, match="events-9: no such partition; to list its partitions: m"):
        await require_partitions(admin, [T0, TopicPartition("events", 9)])
    with pytest.raises(KafkaError, match="evnts: no such topic"):
        await require_partitions(admin, [TopicPartition("evnts", 0)])


async def test_similar_topics_are_those_of_the_cluster() -> None:
    admin: Any = ScriptedAdmin({T0: (1,)})
    assert await similar_topics(admin, ["evnts"]) == "did you mean events?"
    assert await similar_topics(admin, ["zzz"]) == ""
