"""Time limits of repeated attempts."""

from __future__ import annotations

from minikafka.spark.wire import deadline as module
from minikafka.spark.wire.deadline import Deadline


def test_retry_pauses_grow_to_one_second_and_end_at_the_deadline(monkeypatch):
    now, pauses = [100.0], []

    def sleep(seconds: float) -> None:
        pauses.append(round(seconds, 2))
        now[0] += seconds

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", sleep)
    deadline = Deadline(3)
    while deadline.wait_to_retry():
        pass
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 0.45]
    assert deadline.left() == 0
    deadline.restart()
    assert deadline.left() == 3
    assert deadline.wait_to_retry()
    assert pauses[-1] == 0.05
