"""Measures one step of the hot path in one process: nanoseconds per operation, and a hash of the result.

A bench is a function that takes a number of operations and returns an `Outcome`. Equal hashes show that the same
work was done. Tests run each bench with a small number of operations.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

OPERATIONS = 100_000
ROUNDS = 5


class Outcome(NamedTuple):
    """The result of one bench run. `digest`: CRC-32 of the result, equal for equal numbers of operations."""

    nanoseconds: int
    operations: int
    digest: int


Bench = Callable[[int], Outcome]


def timed(operations: int, work: Callable[[], object]) -> Outcome:
    """Run `work` once, and return the time and a hash of the result's text."""
    started = perf_counter_ns()
    result = work()
    elapsed = perf_counter_ns() - started
    return Outcome(elapsed, operations, zlib.crc32(repr(result).encode()))


def main(*benches: Bench) -> None:
    """Print the best round of each bench. Example: `python -m benchmarks.bench_log [OPERATIONS]`."""
    operations = int(sys.argv[1]) if len(sys.argv) > 1 else OPERATIONS
    for bench in benches:
        best = min(bench(operations) for _ in range(ROUNDS))
        name = bench.__name__.replace("_", " ")
        cost = best.nanoseconds / best.operations
        print(f"{name:44} {cost:9.0f} ns  {best.digest:08x}", flush=True)
