"""The in-process benchmarks run, do the work that they claim to measure, and leak nothing."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.micro import timed
from minikafka.storage.log.segments.segment import Segment

SUBJECTS = sorted(
    path.stem for path in (Path(__file__).parents[3] / "benchmarks").glob("bench_*.py")
)
BENCHES = [
    bench for subject in SUBJECTS for bench in import_module(f"benchmarks.{subject}").BENCHES
]


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.__name__)
def test_benchmark_does_the_same_work_each_time(bench):
    first, second = bench(256), bench(256)

    assert first.digest == second.digest
    assert first.operations == 256
    assert first.nanoseconds > 0


def test_digests_of_two_benchmark_runs_with_different_results_differ():
    assert timed(1, lambda: 1).digest != timed(1, lambda: 2).digest


def test_benchmark_ends_with_the_exit_of_a_signal_that_interrupts_an_append(monkeypatch):
    from benchmarks.bench_log import append_replicated

    note = Segment.note

    def interrupted_after_the_first_entry(segment, *batch):
        if not segment.index.positions:
            return note(segment, *batch)
        monkeypatch.undo()
        segment.index.lasts.append(0)
        sys.exit(143)

    monkeypatch.setattr(Segment, "note", interrupted_after_the_first_entry)
    with pytest.raises(SystemExit):
        append_replicated(256)


@pytest.mark.row("N4")
def test_ten_thousand_appends_leave_fewer_than_500_memory_blocks_allocated():
    from benchmarks.bench_log import append_and_flush

    append_and_flush(64)
    gc.collect()
    before = sys.getallocatedblocks()
    append_and_flush(10_000)
    gc.collect()

    assert sys.getallocatedblocks() - before < 500
