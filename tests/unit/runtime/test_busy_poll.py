"""BusyPoll: when the loop looks again instead of sleeping, when it stops, and who stands aside meanwhile."""

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
    LITTLE_NS,
    PAUSE_NS,
    ROLE_READS,
    BusyPoll,
)

GAP_NS = PAUSE_NS // 4


class Setting:
    """A loop that turns when it is told to, a clock in nanoseconds, and processors that note where it runs."""

    def __init__(self) -> None:
        self.time = 10**9
        self.held = 0
        self.gave_way = 0
        self.aside = False
        self.next_turn: list[Callable[[], None]] = []
        loop: Any = self
        self.poll = BusyPoll(loop, self, lambda: self.time, self.give_way)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.next_turn.append(callback)

    def give_way(self) -> None:
        self.gave_way += 1
        self.time += self.held

    def stand_aside(self) -> None:
        assert not self.aside
        self.aside = True

    def come_back(self) -> None:
        assert self.aside
        self.aside = False

    def read(self, count: int = 1) -> None:
        """So many reads, each a gap after the one before."""
        for _ in range(count):
            self.time += GAP_NS
            self.poll.asked()

    def records(
        self, count: int, *, asked: int = 0, answered: int = 0, work_ns: int = 1_000
    ) -> None:
        """So many records, each found in one look with these reads, each of which takes so long to handle."""
        for _ in range(count):
            self.turn()
            for took in [self.poll.asked] * asked + [self.poll.answered] * answered:
                self.time += work_ns
                took()

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
    setting.records(LASTING_READS - 1, asked=1)
    assert reads_until_it_polls(setting) > HELD_READS
    setting.records(LASTING_READS, asked=1)
    assert reads_until_it_polls(setting) == HELD_READS


def test_a_broker_that_only_follows_stands_aside_until_the_traffic_pauses() -> None:
    setting = polling()
    setting.records(ROLE_READS, answered=1)
    assert setting.aside
    setting.records(10 * ROLE_READS, answered=1)
    assert setting.aside
    setting.time += PAUSE_NS + 1
    setting.turn()
    assert setting.sleeps
    assert not setting.aside


def test_a_leader_stays_and_so_does_one_that_leads_some_partitions_and_follows_others() -> None:
    setting = polling()
    setting.records(ROLE_READS, asked=3)
    assert not setting.aside
    setting.records(ROLE_READS, asked=3, answered=2)
    assert not setting.aside


def test_a_follower_that_is_elected_comes_back_at_once() -> None:
    setting = polling()
    setting.records(ROLE_READS, answered=1)
    setting.records(ROLE_READS, asked=3)
    assert not setting.aside


def test_a_follower_with_much_to_do_for_each_read_stays_beside_the_leader() -> None:
    setting = polling()
    setting.records(ROLE_READS, answered=1, work_ns=LITTLE_NS)
    assert not setting.aside
    setting.records(ROLE_READS, answered=1, work_ns=LITTLE_NS - 1)
    assert setting.aside
    setting.records(ROLE_READS, answered=1, work_ns=LITTLE_NS)
    assert not setting.aside


def test_reads_found_in_one_look_are_each_counted_with_their_own_work() -> None:
    setting = polling()
    setting.records(ROLE_READS // 4, answered=4, work_ns=LITTLE_NS - 1)
    assert setting.aside


def test_a_follower_whose_processor_is_held_comes_back_to_the_others() -> None:
    setting = polling()
    setting.records(ROLE_READS, answered=1)
    setting.held = HELD_NS + 1
    setting.turn()
    assert not setting.aside


def test_what_was_read_before_the_polling_began_says_nothing_of_the_role() -> None:
    setting = Setting()
    setting.poll.answered()
    setting.time += PAUSE_NS
    setting.read(DENSE_READS + 1)
    setting.records(ROLE_READS // 2, asked=1, answered=1)
    assert not setting.aside
