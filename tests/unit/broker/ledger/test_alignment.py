"""Times of ledger lines whose brokers have different clocks."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.broker.ledger.alignment import IGNORED_MS, aligned
from minikafka.broker.ledger.reader import merged

HOUR = 3_600_000
Line = dict[str, Any]


def line(broker: int, n: int, time: int, kind: str, cause: str = "", **fields: Any) -> Line:
    return {"time": time, "broker": broker, "n": n, "kind": kind, "cause": cause, **fields}


class Story:
    """Ledgers written by brokers with wrong clocks. `offsets`: broker -> how far its clock is ahead now."""

    def __init__(self, **offsets: int) -> None:
        self.offsets = {int(name[1:]): offset for name, offset in offsets.items()}
        self.ledgers: dict[int, list[Line]] = {}
        self.order: list[tuple[int, int]] = []
        self.times: list[int] = []

    def write(self, broker: int, time: int, kind: str, cause: str = "", **fields: Any) -> None:
        ledger = self.ledgers.setdefault(broker, [])
        shown = time + self.offsets.get(broker, 0)
        ledger.append(line(broker, len(ledger), shown, kind, cause, **fields))
        self.order.append((broker, len(ledger) - 1))
        self.times.append(time)

    def start(self, broker: int, time: int) -> None:
        self.write(broker, time, "broker", fact="started")

    def send(
        self, controller: int, to: int, time: int, cause: str, *, answered: bool = True
    ) -> None:
        """Write the lines about one request. It takes 10 ms."""
        about = {"request": "LeaderAndIsr"}
        self.write(controller, time, "request", cause, to=to, **about)
        self.write(to, time + 4, "effect", cause, phase="received", **about)
        self.write(to, time + 6, "effect", cause, phase="completed", **about)
        if answered:
            self.write(controller, time + 10, "response", cause, **{"from": to}, **about)

    def told(self) -> list[Line]:
        return merged(list(self.ledgers.values()))

    def is_in_order(self) -> bool:
        return [(each["broker"], each["n"]) for each in self.told()] == self.order

    def largest_error(self) -> int:
        told = {(each["broker"], each["n"]): each["time"] for each in self.told()}
        return max(abs(told[key] - time) for key, time in zip(self.order, self.times, strict=True))


@pytest.mark.parametrize("offset", [-5 * HOUR, -1_000, 0, 120_000, 5 * HOUR])
def test_lines_of_a_broker_with_a_wrong_clock_get_the_controllers_time(offset: int) -> None:
    story = Story(b2=offset, b3=-offset)
    for broker in (1, 2, 3):
        story.start(broker, 100 * broker)
    for n in range(1, 4):
        story.send(1, 2, 1_000 * n, f"1-{n}")
        story.write(3, 1_000 * n + 20, "broker", fact="connection lost", to=9)
        story.send(1, 3, 1_000 * n + 40, f"1-{n}")
        story.write(2, 1_000 * n + 60, "isr", topic="t")
    assert story.is_in_order()
    assert story.largest_error() <= 6


def test_times_of_clocks_that_differ_little_are_not_changed() -> None:
    story = Story(b2=IGNORED_MS, b3=-IGNORED_MS)
    story.send(1, 2, 1_000, "1-1")
    story.send(1, 3, 9_000, "1-2")
    ledgers = list(story.ledgers.values())
    assert aligned(ledgers) == ledgers


def test_clock_that_is_set_while_the_broker_runs_is_followed() -> None:
    story = Story()
    story.send(1, 2, 1_000, "1-1")
    story.write(2, 1_500, "isr", topic="t")
    story.offsets[2] = 2 * HOUR
    story.send(1, 2, 2_000, "1-2")
    story.write(2, 2_500, "isr", topic="t")
    story.offsets[2] = -HOUR
    story.send(1, 2, 3_000, "1-3")
    assert story.is_in_order()
    assert story.largest_error() <= 6


def test_lines_between_a_restart_and_the_first_request_belong_to_the_new_clock() -> None:
    story = Story()
    story.start(2, 100)
    story.send(1, 2, 1_000, "1-1")
    story.write(2, 1_500, "broker", fact="stopped")
    story.offsets[2] = -5 * HOUR
    story.start(2, 2_000)
    story.write(2, 2_100, "broker", fact="registered")
    story.send(1, 2, 3_000, "1-2")
    assert story.is_in_order()
    assert story.largest_error() <= 6


def test_next_controller_with_a_wrong_clock_keeps_the_time_of_the_first() -> None:
    story = Story(b2=5 * HOUR, b3=-120_000)
    story.send(1, 2, 1_000, "1-1")
    story.send(1, 3, 1_100, "1-2")
    story.send(2, 3, 20_000, "2-1")
    story.write(3, 20_050, "isr", topic="t")
    story.send(2, 1, 30_000, "2-2")
    story.write(1, 30_050, "isr", topic="t")
    story.send(3, 2, 40_000, "3-1")
    assert story.is_in_order()
    assert story.largest_error() <= 12


def test_request_that_waited_for_its_broker_does_not_move_the_brokers_times() -> None:
    story = Story()
    story.write(1, 1_000, "request", "1-1", to=2, request="LeaderAndIsr")
    story.write(2, 31_000, "effect", "1-1", phase="completed", request="LeaderAndIsr")
    story.write(1, 31_005, "response", "1-1", **{"from": 2}, request="LeaderAndIsr")
    assert story.largest_error() == 0


def test_effect_without_a_response_is_moved_behind_its_request() -> None:
    story = Story(b2=-HOUR, b3=HOUR)
    story.send(1, 2, 1_000, "1-1", answered=False)
    story.send(1, 3, 2_000, "1-2", answered=False)
    told = {(each["broker"], each["n"]): each["time"] for each in story.told()}
    assert told[2, 0] == 1_000
    assert told[3, 0] == 2_004 + HOUR, "it may have waited that long"


def test_ledgers_without_lines_or_requests_are_returned_unchanged() -> None:
    ledgers = [[], [line(2, 1, 5, "isr", topic="t")], [line(3, 1, 4, "effect", "1-1")]]
    ledgers[2][0]["request"] = "LeaderAndIsr"
    assert aligned(ledgers) == ledgers
