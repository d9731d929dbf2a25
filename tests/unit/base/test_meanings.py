"""The sentences for Kafka's error codes."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.base.meanings import AnsweredError, meaning


def test_every_error_code_has_a_sentence() -> None:
    without = [code.name for code in ErrorCode if not meaning(code)]
    assert without == ["NONE"]


def test_answered_error_has_the_code_its_subject_and_a_sentence() -> None:
    error = AnsweredError(ErrorCode.NON_EMPTY_GROUP, "group g")
    assert str(error) == "NON_EMPTY_GROUP: group g: the group has members"
    assert str(AnsweredError(ErrorCode.NON_EMPTY_GROUP, "g", "2 members")) == (
        "NON_EMPTY_GROUP: g: 2 members"
    )
    assert error.detail == "group g"
