"""BusyPoll: when the loop looks again instead of sleeping, and when it stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.runtime.busy_poll import (
    DENSE_READS,
    FORGET_NS,
    HELD_NS,
    HELD_READS,
    HELD_READS_MAX,
    LASTING_READS,
    PAUSE_NS,
    BusyPoll,
)

GAP_NS = PAUSE_NS // 4


class Setting:
    """A loop that turns when it is told to, a clock in nanoseconds, and processors that note where it runs."""

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
            self.poll.after_read()

    def records(self, count: int) -> None:
        """Find each of so many records in a look of its own."""
        for _ in range(count):
            self.turn()
            self.poll.after_read()

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


def reads_until_it_polls(setting: Setting) -> int:
    """From the moment somebody computes on the processor to the next attempt."""
    setting.held = HELD_NS + 1
    setting.turn()
    setting.held = 0
    reads = 0
    while setting.sleeps:
        setting.read()
        reads += 1
    return reads - DENSE_READS - 1


def test_attempts_that_do_not_last_become_rarer_up_to_a_limit() -> None:
    setting = polling()
    waits = [reads_until_it_polls(setting) for _ in range(12)]
    assert waits[:3] == [HELD_READS, 2 * HELD_READS, 4 * HELD_READS]
    assert waits[-2:] == [HELD_READS_MAX, HELD_READS_MAX]


def test_traffic_after_a_second_in_which_nobody_was_asked_begins_as_at_first() -> None:
    setting = polling()
    for _ in range(8):
        reads_until_it_polls(setting)
    setting.held = HELD_NS + 1
    setting.turn()
    setting.time += FORGET_NS
    setting.read(DENSE_READS + 1)
    assert not setting.sleeps
    assert reads_until_it_polls(setting) == HELD_READS


def test_after_polling_that_lasted_the_next_attempt_comes_as_soon_as_at_first() -> None:
    setting = polling()
    for _ in range(5):
        reads_until_it_polls(setting)
    setting.records(LASTING_READS - 1)
    assert reads_until_it_polls(setting) > HELD_READS
    setting.records(LASTING_READS)
    assert reads_until_it_polls(setting) == HELD_READS
