"""The progress that a running pipeline shows: its streams and Spark's tasks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace

from minikafka.spark.pipelines.session import report as module
from minikafka.spark.pipelines.session.report import Bar, Report, Silent


class Seen(Silent):
    """A display that records the first non-empty progress bars that it was given."""

    def __init__(self) -> None:
        self.bars: Sequence[Bar] = ()
        self.shown = threading.Event()

    def show(self, bars: Sequence[Bar]) -> None:
        self.bars = self.bars or bars
        self.shown.set()


def test_tasks_have_a_progress_bar_next_to_the_bar_of_their_stream(monkeypatch):
    monkeypatch.setattr(module, "_INTERVAL_S", 0.01)
    stage = SimpleNamespace(numCompletedTasks=1, numTasks=2)
    tracker = SimpleNamespace(getActiveStageIds=lambda: [7], getStageInfo=lambda _: stage)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    display = Seen()
    report = Report(display)
    report.stream(Bar("copy", 5, 20, "batch 1"))
    with report.stage("copy"), report.following(spark):
        assert display.shown.wait(30)
    assert display.bars == [Bar("copy", 5, 20, "batch 1"), Bar("Spark", 1, 2, "1 of 2 tasks")]
