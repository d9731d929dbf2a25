"""The advice in error messages about topics and partitions."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.cli.topic_errors import explain_topic_errors


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
