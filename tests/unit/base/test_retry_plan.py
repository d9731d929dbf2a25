"""The pauses between the attempts of a call, and the end of its time limit."""

from __future__ import annotations

from minikafka.base.retry_plan import RetryPlan


def test_pauses_double_up_to_the_longest_one() -> None:
    plan = RetryPlan(0, 10_000, 100, 400)

    assert [plan.next_pause_ms(0) for _ in range(4)] == [100, 200, 400, 400]


def test_last_pause_ends_at_the_time_limit() -> None:
    plan = RetryPlan(1_000, 500, 100, 400)

    assert plan.next_pause_ms(1_450) == 50
    assert plan.next_pause_ms(1_500) is None
    assert plan.left_ms(1_600) == 0


def test_lower_limit_of_an_error_ends_the_attempts_earlier() -> None:
    plan = RetryPlan(0, 10_000, 100, 100)

    assert plan.next_pause_ms(4_950, limit_ms=5_000) == 50
    assert plan.next_pause_ms(5_000, limit_ms=5_000) is None
    assert plan.next_pause_ms(5_000) == 100


def test_restart_begins_the_limit_and_the_pauses_again() -> None:
    plan = RetryPlan(0, 500, 100, 400)
    plan.next_pause_ms(0)
    plan.restart(500)

    assert plan.left_ms(500) == 500
    assert plan.next_pause_ms(600) == 100
