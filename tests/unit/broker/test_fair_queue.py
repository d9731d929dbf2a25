"""The jobs that share a budget of time, such as cold requests: which is served next, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from minikafka.broker.turns import LARGE_MS, TURN_MS, WAIT_MS, OneAtATime, Scheduler
from minikafka.simulation.clocks import ManualClock


class WorkClock:
    """A clock that advances only while a test connection works; `run_due` runs the scheduled callbacks."""

    def __init__(self) -> None:
        self.time = 0
        self.due: list[Callable[[], None]] = []

    def now(self) -> int:
        return self.time

    def call_later(self, ms: float, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def run_due(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


class Stage:
    """The scheduler under test, and a log of the connections that were served."""

    def __init__(self) -> None:
        self.clock = WorkClock()
        self.log: list[str] = []
        self.turns = Scheduler(cast("Any", self.clock), lambda now: self.log.append("|"))

    def connection(self, name: str, requests: int, ms: int) -> Connection:
        made = Connection(self, name, requests, ms)
        self.turns.requests.ask(made)
        return made

    def run(self, turns: int) -> str:
        for _ in range(turns):
            self.clock.run_due()
        return " ".join(self.log)


class Connection:
    """A connection with `requests` requests left, each of which takes `ms` milliseconds."""

    def __init__(self, stage: Stage, name: str, requests: int, ms: int) -> None:
        self.stage, self.name, self.requests, self.ms = stage, name, requests, ms
        self.used = 0

    def work(self, until: int) -> None:
        self.requests -= 1
        self.stage.log.append(self.name)
        self.stage.clock.time += self.ms
        if self.requests:
            self.stage.turns.requests.ask(self)

    def give_up(self, reason: str) -> None:
        self.stage.log.append(f"{self.name}: {reason}")
        self.requests = 0


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_one_turn_of_cold_requests_serves_each_connection_at_most_once(stage: Stage) -> None:
    stage.connection("a", 3, 0)
    stage.connection("b", 2, 0)
    assert stage.run(4) == "a b | a b | a |"


def test_exception_in_a_request_closes_only_the_connection_of_the_request(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.connection("a", 2, 0)
    broken = stage.connection("b", 2, 0)
    stage.connection("c", 2, 0)
    monkeypatch.setattr(broken, "work", lambda until: {}["of a defect"])
    assert stage.run(2) == "a b: the broker failed c | a c |"
    assert "of a defect" in caplog.text


def test_turn_of_cold_requests_ends_after_its_maximum_time(stage: Stage) -> None:
    for name in "abcde":
        stage.connection(name, 1, TURN_MS // 2)
    assert stage.run(3) == "a b | c d | e |"


def test_new_connection_is_served_before_busy_connections(stage: Stage) -> None:
    for name in "abcdefgh":
        stage.connection(name, 100, TURN_MS)
    stage.run(12)
    stage.log.clear()
    stage.connection("new", 1, 0)
    assert "new" in stage.run(1)


def test_connection_with_long_requests_gets_fewer_turns(stage: Stage) -> None:
    for number in range(10):
        stage.connection(f"long {number}", 1_000, TURN_MS)
    stage.connection("short", 1_000, 0)
    stage.run(300)
    assert stage.log.count("short") > 5 * stage.log.count("long 0")


def test_connection_that_was_idle_gets_no_additional_turns(stage: Stage) -> None:
    idle = stage.connection("idle", 1, 0)
    stage.run(1)
    stage.connection("busy", 200, 1)
    stage.run(200)
    idle.requests = 100
    stage.turns.requests.ask(idle)
    stage.connection("busy again", 100, 0)
    stage.log.clear()
    stage.run(20)
    assert abs(stage.log.count("idle") - stage.log.count("busy again")) <= 1


def test_connection_whose_large_request_waits_for_30_seconds_is_closed() -> None:
    clock = ManualClock()
    begun: list[Any] = []
    turns = OneAtATime(cast("Any", clock), begun.append)
    gone: list[Any] = []

    class Waiting:
        def give_up(self, reason: str) -> None:
            gone.append(self)

    workers = [Waiting() for _ in range(6)]
    for worker in workers:
        turns.ask(cast("Any", worker))
    for _ in range(WAIT_MS // LARGE_MS):
        clock.advance(LARGE_MS)
    turns.sweep()
    assert (begun, gone) == (workers[:4], [])
    clock.advance(1)
    turns.sweep()
    assert gone == workers[4:]


def test_next_large_request_begins_when_the_current_one_takes_too_long() -> None:
    clock = ManualClock()
    turns = Scheduler(clock, lambda now: None)
    begun: list[str] = []

    class Asking:
        def __init__(self, name: str) -> None:
            self.name, self.used = name, 0

        def work(self, until: int) -> None:
            begun.append(self.name)

        def give_up(self, reason: str) -> None:
            pass

    first, second = Asking("first"), Asking("second")
    turns.large.ask(first)
    turns.large.ask(second)
    clock.advance(LARGE_MS - 1)
    assert begun == ["first"]
    clock.advance(1)
    clock.advance(0)
    assert begun == ["first", "second"]
    turns.large.end(first)
    turns.large.end(second)
