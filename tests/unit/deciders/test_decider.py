"""Procedures ask questions, and continue with the outcomes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from minikafka.deciders.decider import Answer, Outcome, Procedure, Procedures, Wait


class Ask(NamedTuple):
    token: int


def asking(procedures: Procedures, caller: str) -> Procedure[None]:
    value = yield from once(procedures)
    procedures.answer(caller, value)
    value = yield from once(procedures)
    procedures.answer(caller, value)


def once(procedures: Procedures) -> Procedure[str]:
    value: str = yield Ask(procedures.new_token())
    return value


def test_procedures_continue_with_the_outcomes_of_their_questions() -> None:
    procedures = Procedures()
    procedures.start(asking(procedures, "a"))
    procedures.start(asking(procedures, "b"))
    assert procedures.take() == [Ask(1), Ask(2)]
    procedures.resume(Outcome(2, "one"))
    assert procedures.take() == [Answer("b", "one"), Ask(3)]
    procedures.resume(Outcome(3, "two"))
    procedures.resume(Outcome(1, "three"))
    assert procedures.take() == [Answer("b", "two"), Answer("a", "three"), Ask(4)]
    assert procedures.are_suspended
    procedures.resume(Outcome(4, "four"))
    assert not procedures.are_suspended


def test_late_outcome_of_a_question_has_no_effect() -> None:
    procedures = Procedures()
    procedures.start(asking(procedures, "a"))
    procedures.resume(Outcome(1, "the partition has moved"))
    procedures.take()
    procedures.resume(Outcome(1, "late"))
    assert procedures.take() == []


def test_outcome_of_a_question_that_nobody_asked_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="nobody has asked"):
        Procedures().resume(Outcome(1, "?"))


def test_question_that_the_decider_answers_itself_is_no_command() -> None:
    procedures = Procedures()

    def waiting() -> Procedure[None]:
        value = yield Wait(procedures.new_token())
        procedures.answer("a", value)

    procedures.start(waiting())
    assert procedures.take() == []
    procedures.resume(Outcome(1, "now"))
    assert procedures.take() == [Answer("a", "now")]


def test_procedure_goes_on_when_all_procedures_that_it_runs_have_ended() -> None:
    procedures = Procedures()
    values: list[str] = []

    def asks() -> Procedure[None]:
        values.append((yield from once(procedures)))

    def ends_at_once() -> Procedure[None]:
        yield from ()

    def waits() -> Procedure[None]:
        yield from procedures.run_all([ends_at_once(), asks(), asks(), ends_at_once()])
        procedures.answer("caller", tuple(values))
        yield from procedures.run_all([ends_at_once()])
        procedures.answer("caller", "ended")

    procedures.start(waits())
    first, second = procedures.take()
    procedures.resume(Outcome(second.token, "second"))
    assert procedures.take() == []
    procedures.resume(Outcome(first.token, "first"))
    assert procedures.take() == [Answer("caller", ("second", "first")), Answer("caller", "ended")]
