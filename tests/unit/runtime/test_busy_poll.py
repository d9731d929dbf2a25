"""BusyPoll: when the loop looks again instead of sleeping, and when it stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.runtime.busy_poll import DENSE_READS, HELD_NS, HELD_READS, PAUSE_NS, BusyPoll

GAP_NS = PAUSE_NS // 4


class Setting:
    """A loop that turns when it is told to, and a clock in nanoseconds."""

    def __init__(self) -> None:
        self.time = 10**9
        self.held = 0
        self.gave_way = 0
        self.next_turn: list[Callable[[], None]] = []
        loop: Any = self
        self.poll = BusyPoll(loop, lambda: self.time, self.give_way)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.next_turn.append(callback)

    def give_way(self) -> None:
        self.gave_way += 1
        self.time += self.held

    def read(self, count: int = 1) -> None:
        """So many reads, each a gap after the one before."""
        for _ in range(count):
            self.time += GAP_NS
            self.poll.busy()

    def turn(self) -> None:
        due, self.next_turn = self.next_turn, []
        for callback in due:
            callback()

    @property
    def sleeps(self) -> bool:
        """Nothing is due: the loop would wait in the kernel."""
        return not self.next_turn


def polling() -> Setting:
    setting = Setting()
    setting.read(DENSE_READS + 1)
    assert not setting.sleeps
    return setting


def test_traffic_with_pauses_never_polls() -> None:
    setting = Setting()
    for _ in range(10):
        setting.read(DENSE_READS)
        setting.time += PAUSE_NS
    assert setting.sleeps


def test_dense_traffic_keeps_the_loop_looking_and_gives_way_at_every_look() -> None:
    setting = polling()
    for turns in range(1, 20):
        setting.turn()
        assert (setting.gave_way, len(setting.next_turn)) == (turns, 1)
        setting.read()


def test_a_pause_ends_the_polling_and_dense_traffic_begins_it_again() -> None:
    setting = polling()
    setting.time += PAUSE_NS + 1
    setting.turn()
    assert setting.sleeps
    setting.read(DENSE_READS)
    assert setting.sleeps
    setting.read()
    assert not setting.sleeps


def test_a_processor_that_somebody_else_computes_on_is_left_alone_for_a_while() -> None:
    setting = polling()
    setting.held = HELD_NS + 1
    setting.turn()
    assert setting.sleeps
    setting.read(HELD_READS + DENSE_READS)
    assert setting.sleeps
    setting.read()
    assert not setting.sleeps


def test_a_pause_does_not_shorten_the_time_for_which_the_processor_is_left_alone() -> None:
    setting = polling()
    setting.held = HELD_NS + 1
    setting.turn()
    setting.time += PAUSE_NS
    setting.read(HELD_READS)
    setting.time += PAUSE_NS
    setting.read(DENSE_READS)
    assert setting.sleeps
