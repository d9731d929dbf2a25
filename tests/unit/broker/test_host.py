"""The host carries out commands by their type, and wakes its decider."""

from __future__ import annotations

from typing import Any

from minikafka.broker.host import Alarm, Host, send_answer
from minikafka.deciders.decider import Answer, TimerDue
from minikafka.simulation.clocks import ManualClock


class Echo:
    """A decider that answers each event with itself, and that has a timer."""

    def __init__(self) -> None:
        self.deadline: int | None = None
        self.events: list[tuple[Any, int]] = []

    def handle(self, event: Any, now: int) -> list[Any]:
        self.events.append((event, now))
        if isinstance(event, TimerDue):
            self.deadline = None
            return []
        return [Answer(caller, event) for caller in event]

    def next_deadline(self) -> int | None:
        return self.deadline


def test_answer_that_cannot_be_sent_does_not_stop_the_next_ones() -> None:
    sent: list[Any] = []

    def fail(response: Any) -> None:
        raise OSError

    callers = (fail, sent.append)
    Host(Echo(), {Answer: send_answer}, ManualClock()).handle(callers)
    assert sent == [callers]


def test_decider_is_woken_once_at_its_deadline() -> None:
    clock, echo = ManualClock(), Echo()
    host = Host(echo, {Answer: send_answer}, clock)
    echo.deadline = 70
    host.handle(())
    echo.deadline = 50
    host.handle(())
    clock.advance(49)
    assert len(echo.events) == 2
    clock.advance(100)
    assert echo.events[2:] == [(TimerDue(), 50)]


def test_decider_is_not_woken_before_a_deadline_that_has_moved() -> None:
    clock, echo = ManualClock(), Echo()
    host = Host(echo, {Answer: send_answer}, clock)
    echo.deadline = 50
    host.handle(())
    echo.deadline = 80
    host.handle(())
    clock.advance(100)
    assert echo.events[2:] == [(TimerDue(), 80)]


def test_alarm_of_a_paused_process_waits_for_the_requests_of_the_pause() -> None:
    clock = ManualClock()
    woken: list[int] = []
    alarm = Alarm(clock, woken.append)
    alarm.set(10)
    clock._now = 5_000  # the process was paused
    clock.advance(499)
    assert woken == []
    clock.advance(1)
    assert woken == [5_500]
