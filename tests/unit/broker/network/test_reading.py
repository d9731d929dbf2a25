"""The gate of a connection: when it stops reading its socket, and when it reads again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minikafka.broker.network.connection import ReadingGate, Reason


class Stage:
    """The gate under test. `turns`: number of turns asked for. `paused`: number of times that reading was stopped."""

    def __init__(self) -> None:
        self.turns = self.paused = 0
        self.gate = ReadingGate(self._ask)
        self.gate.link = cast("Any", self)

    def _ask(self) -> None:
        self.turns += 1

    def pause_reading(self) -> None:
        self.paused += 1


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_gate_stays_open_when_its_reasons_are_over_before_it_is_closed(stage: Stage) -> None:
    stage.gate.hold(Reason.UNSENT)
    stage.gate.hold(Reason.UNSENT, False)
    stage.gate.open_soon()
    assert (stage.paused, stage.turns, stage.gate.reasons) == (0, 0, set())


def test_closed_gate_asks_for_one_turn_when_its_last_reason_is_over(stage: Stage) -> None:
    for reason in (Reason.COLD, Reason.ROOM):
        stage.gate.hold(reason)
    stage.gate.close()
    asked = []
    for reason in (Reason.COLD, Reason.ROOM):
        stage.gate.hold(reason, False)
        for _ in range(2):
            stage.gate.open_soon()
            asked.append(stage.turns)
    assert asked == [0, 0, 1, 1]
    assert (stage.gate.is_closed, stage.gate.reasons) == (True, {Reason.TURN})


def test_gate_that_closes_again_in_its_turn_asks_for_another_turn(stage: Stage) -> None:
    stage.gate.close()
    stage.gate.open_soon()
    stage.gate.open()
    assert not stage.gate.is_closed
    stage.gate.close()
    stage.gate.open_soon()
    assert stage.turns == 2
