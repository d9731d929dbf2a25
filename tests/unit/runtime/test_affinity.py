"""Affinity, with the real system call: of a thread of its own, as it holds for the thread that calls."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from minikafka.runtime.affinity import Affinity, threads_everywhere

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two processors",
)


def in_a_thread(check: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(check).result()


def test_whoever_stands_aside_leaves_the_last_processor_and_takes_it_back() -> None:
    def check() -> None:
        allowed = os.sched_getaffinity(0)
        affinity = Affinity()
        affinity.stand_aside()
        assert os.sched_getaffinity(0) == allowed - {max(allowed)}
        affinity.come_back()
        assert os.sched_getaffinity(0) == allowed

    in_a_thread(check)


def test_the_only_processor_is_kept() -> None:
    def check() -> None:
        only = {max(os.sched_getaffinity(0))}
        os.sched_setaffinity(0, only)
        affinity = Affinity()
        affinity.stand_aside()
        assert os.sched_getaffinity(0) == only
        affinity.come_back()
        assert os.sched_getaffinity(0) == only

    in_a_thread(check)


def test_what_somebody_else_has_chosen_meanwhile_stays() -> None:
    def check() -> None:
        last = {max(os.sched_getaffinity(0))}
        affinity = Affinity()
        affinity.stand_aside()
        os.sched_setaffinity(0, last)
        affinity.come_back()
        assert os.sched_getaffinity(0) == last

    in_a_thread(check)


def test_coming_back_from_nowhere_changes_nothing() -> None:
    def check() -> None:
        allowed = os.sched_getaffinity(0)
        Affinity().come_back()
        assert os.sched_getaffinity(0) == allowed

    in_a_thread(check)


def test_a_thread_that_begins_while_its_maker_stands_aside_may_run_everywhere() -> None:
    def check() -> None:
        allowed = os.sched_getaffinity(0)
        with threads_everywhere() as pool:
            Affinity().stand_aside()
            assert pool.submit(os.sched_getaffinity, 0).result() == allowed

    in_a_thread(check)
