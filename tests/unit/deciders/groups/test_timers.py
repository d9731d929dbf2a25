"""The heap of timers, compared with a plain list."""

from __future__ import annotations

import random

from minikafka.deciders.groups.timers import HeapTimer, Timers


def drain(timers, now):
    found = []
    while (timer := timers.pop_due(now)) is not None:
        found.append(timer)
    return found


def test_timers_expire_in_the_order_of_their_times():
    timers, items = Timers(), [HeapTimer() for _ in range(3)]
    for timer, at in zip(items, (30, 10, 20), strict=True):
        timers.start(timer, at)

    assert timers.next_time() == 10
    assert drain(timers, 20) == [items[1], items[2]]
    assert drain(timers, 29) == []
    assert drain(timers, 30) == [items[0]]
    assert timers.next_time() is None


def test_timer_that_is_moved_to_a_later_time_expires_once_at_that_time():
    timers, timer = Timers(), HeapTimer()
    timers.start(timer, 10)
    for at in range(11, 50):
        timers.start(timer, at)

    assert len(timers) == 1
    assert drain(timers, 48) == []
    assert drain(timers, 100) == [timer]


def test_timer_that_is_moved_to_an_earlier_time_expires_once_at_that_time():
    timers, timer = Timers(), HeapTimer()
    timers.start(timer, 300)
    timers.start(timer, 10)

    assert drain(timers, 10) == [timer]
    assert drain(timers, 300) == []


def test_cancelled_timer_does_not_expire_until_it_is_started_again():
    timers, timer = Timers(), HeapTimer()
    timers.start(timer, 10)
    timers.cancel(timer)
    timers.cancel(timer)
    assert timers.next_time() is None
    assert drain(timers, 10) == []

    timers.start(timer, 20)
    assert drain(timers, 20) == [timer]


def test_cancelled_timers_do_not_accumulate():
    timers = Timers()
    kept = HeapTimer()
    timers.start(kept, 5)
    for at in range(10_000):
        timer = HeapTimer()
        timers.start(timer, 1_000_000 + at)
        timers.cancel(timer)

    assert len(timers) < 200
    assert drain(timers, 10) == [kept]


def test_timers_behave_like_a_plain_list_in_random_operations():
    for seed in range(30):
        rng = random.Random(seed)
        timers, items, wanted, now = Timers(), [HeapTimer() for _ in range(50)], {}, 0
        for _ in range(2_000):
            index = rng.randrange(50)
            action = rng.random()
            if action < 0.6:
                wanted[index] = now + rng.randrange(1, 500)
                timers.start(items[index], wanted[index])
            elif action < 0.8:
                wanted.pop(index, None)
                timers.cancel(items[index])
            else:
                now += rng.randrange(100)
                first = min(wanted.values(), default=None)
                asked = timers.next_time()
                assert (asked is None) == (first is None)
                assert asked is None or asked <= first
                due = {key for key, at in wanted.items() if at <= now}
                found = [items.index(timer) for timer in drain(timers, now)]
                assert sorted(found) == sorted(due)
                for key in due:
                    del wanted[key]
