"""BusyPoll: the conditions under which the loop polls again instead of sleeping, and stops polling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.runtime.busy_poll import DENSE_READS, HELD_READS, PAUSE_NS, BusyPoll

GAP_NS = PAUSE_NS // 4


class Setting:
    """A BusyPoll whose event loop and clock the test controls. `held`: time in ns that each yield takes."""

    def __init__(self) -> None:
        self.time = 10**9
        self.held = 0
        self.yields = 0
        self.next_turn: list[Callable[[], None]] = []
        loop: Any = self
        self.poll = BusyPoll(loop, lambda: self.time, self.yield_processor)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.next_turn.append(callback)

    def yield_processor(self) -> None:
        self.yields += 1
        self.time += self.held

    def read(self, count: int = 1) -> None:
        """Handle `count` reads with a short gap before each."""
        for _ in range(count):
            self.time += GAP_NS
            self.poll.after_read()

    def turn(self) -> None:
        due, self.next_turn = self.next_turn, []
        for callback in due:
            callback()

    @property
    def sleeps(self) -> bool:
        """True if no callback is due, so that the loop would sleep in the kernel."""
        return not self.next_turn


def polling() -> Setting:
    setting = Setting()
    setting.read(DENSE_READS + 1)
    assert not setting.sleeps
    return setting


def test_busy_poll_never_starts_under_traffic_with_pauses() -> None:
    setting = Setting()
    for _ in range(10):
        setting.read(DENSE_READS)
        setting.time += PAUSE_NS
    assert setting.sleeps


def test_busy_poll_yields_the_processor_at_every_poll_under_dense_traffic() -> None:
    setting = polling()
    for turns in range(1, 20):
        setting.turn()
        assert (setting.yields, len(setting.next_turn)) == (turns, 1)
        setting.read()


def test_busy_poll_stops_at_a_pause_and_starts_again_under_dense_traffic() -> None:
    setting = polling()
    setting.time += PAUSE_NS + 1
    setting.turn()
    assert setting.sleeps
    setting.read(DENSE_READS)
    assert setting.sleeps
    setting.read()
    assert not setting.sleeps


def test_busy_poll_waits_for_many_reads_after_another_process_held_the_processor() -> None:
    setting = polling()
    setting.held = PAUSE_NS + 1
    setting.turn()
    assert setting.sleeps
    setting.read(HELD_READS + DENSE_READS)
    assert setting.sleeps
    setting.read()
    assert not setting.sleeps


def test_busy_poll_restarts_its_count_of_reads_after_a_pause() -> None:
    setting = polling()
    setting.held = PAUSE_NS + 1
    setting.turn()
    setting.time += PAUSE_NS
    setting.read(HELD_READS)
    setting.time += PAUSE_NS
    setting.read(DENSE_READS)
    assert setting.sleeps
