"""The turns of the scheduler: what each class of jobs gets in a turn, and when the tick ends."""

from __future__ import annotations

from functools import partial

import pytest

from minikafka.broker.turns import TURN_MS, Rotation, Scheduler
from minikafka.simulation.clocks import ManualClock


class Stage:
    """The scheduler under test. `log` has the slices that were done, and `|` for each end of a tick."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log: list[str] = []
        self.turns = Scheduler(self.clock, lambda now: self.log.append("|"))

    def turn(self) -> str:
        """Run one turn; return what it did."""
        self.log.clear()
        _, _, timer = self.clock._due.pop(0)
        timer.callback()
        return " ".join(self.log)


class Request:
    """A job of the class `requests` whose slices each take the whole budget of the class."""

    used = 0

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name

    def work(self, until: int) -> None:
        assert until == self.stage.clock.now() + TURN_MS
        self.stage.clock._now = until
        self.stage.log.append(self.name)

    def give_up(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def rotations(turns: Scheduler) -> dict[str, Rotation]:
    names = ("checks", "replication", "sending", "parts", "orders", "loading", "upkeep")
    return {name: getattr(turns, name) for name in names}


def test_every_class_of_jobs_gets_its_budget_in_each_turn(stage: Stage) -> None:
    for number in range(3):
        stage.turns.requests.ask(Request(stage, f"request {number}"))
        for name, jobs in rotations(stage.turns).items():
            jobs.ask(partial(stage.log.append, name))
    after = "| replication sending parts orders loading upkeep"
    assert [stage.turn() for _ in range(3)] == [
        f"checks request {number} {after}" for number in range(3)
    ]
    assert stage.clock.waiting() == 0


def test_work_that_asks_for_more_work_gets_it_in_a_later_turn(stage: Stage) -> None:
    for jobs in rotations(stage.turns).values():
        jobs.ask(partial(jobs.ask, partial(stage.log.append, "later")))
    assert stage.turn() == "|"
    assert stage.turn() == "later | later later later later later later"


def test_tick_that_a_request_wants_to_end_ends_with_the_turn(stage: Stage) -> None:
    stage.turns.checks.ask(stage.turns.finish_soon)
    assert stage.turn() == "|"
    assert stage.clock.waiting() == 0


def test_tick_ends_in_the_next_turn_if_its_end_is_wanted_after_the_requests(stage: Stage) -> None:
    stage.turns.sending.ask(stage.turns.finish_soon)
    assert [stage.turn(), stage.turn()] == ["|", "|"]
    stage.turns.finish_soon()
    stage.turns.finish_soon()
    assert stage.clock.waiting() == 1


def test_exception_in_a_slice_does_not_stop_the_other_jobs(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.turns.sending.ask(lambda: {}["of a defect"])
    for _ in range(2):
        stage.turns.sending.ask(partial(stage.log.append, "sent"))
        stage.turns.upkeep.ask(partial(stage.log.append, "kept"))
    assert [stage.turn(), stage.turn()] == ["| kept", "| sent kept"]
    assert "of a defect" in caplog.text
