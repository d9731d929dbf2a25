"""The in-process benchmarks run, do the work that they claim to measure, and leak nothing."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.micro import timed

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


@pytest.mark.row("N4")
def test_ten_thousand_appends_leave_fewer_than_500_memory_blocks_allocated():
    from benchmarks.bench_log import append_and_flush

    append_and_flush(64)
    gc.collect()
    before = sys.getallocatedblocks()
    append_and_flush(10_000)
    gc.collect()

    assert sys.getallocatedblocks() - before < 500
