"""What the pytest plugin costs: the start of its shared cluster, and a test with a topic of its own.

`python -m benchmarks.kit` runs pytest on a file of `--tests` tests, each of which creates a topic, writes a record and
reads it, on one broker and on three. "Ready" is the setup of the first test, with the import of the kit. "Bare" is a
LocalCluster of the same size in a process that has imported it. "Per test" is all time after the first setup, divided
by the tests. Processor time is that of pytest, brokers and ZooKeeper together. The best of `--rounds` is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import lifetime, report
from minikafka import LocalCluster

URGENT: Final = 5
"""The real-time priority of `--urgent`."""
PLUGINS: Final = ("-p", "minikafka.pytest", "-p", "no:cacheprovider", "-p", "no:asyncio")
TESTS: Final = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_topic(minikafka, number):
    topic = minikafka.topic()
    minikafka.produce(topic, b"x")
    assert minikafka.records(topic, 1)[0].value == b"x"
"""
CONFTEST: Final = """
import json, time

moments = []

def pytest_runtest_logreport(report):
    moments.append(time.time())

def pytest_runtest_logstart():
    moments.append(time.time())

def pytest_unconfigure():
    print(json.dumps([moments[1] - moments[0], moments[-2] - moments[1]]))
"""


class Run(NamedTuple):
    """The figures of one run, in seconds. `per_test` and `processor` are per test."""

    ready: float
    bare: float
    per_test: float
    processor: float


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kit", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each size (default: 5)")
    parser.add_argument("--tests", type=int, default=200, help="tests of a run (default: 200)")
    parser.add_argument(
        "--urgent", action="store_true", help="give all processes real-time priority"
    )
    options = parser.parse_args()
    if options.urgent:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(URGENT))
    lifetime.live_blocking(lambda: compare(options.rounds, options.tests))


def compare(rounds: int, tests: int) -> None:
    """Run both sizes in turn, and print the best figures of each."""
    print(report.machine(), flush=True)
    print("brokers  ready  bare  ready/bare  per test  processor time per test", flush=True)
    found: dict[int, list[Run]] = {1: [], 3: []}
    for _ in range(rounds):
        for brokers, runs in found.items():
            runs.append(run(brokers, tests))
    for brokers, runs in found.items():
        best = Run(*map(min, zip(*runs, strict=True)))
        ratio = best.ready / best.bare
        print(
            f"{brokers:7}  {best.ready:4.2f} s  {best.bare:4.2f} s  {ratio:6.2f}"
            f"  {best.per_test:7.3f} s  {best.processor:7.3f} s",
            flush=True,
        )


def run(brokers: int, tests: int) -> Run:
    """Start a bare cluster, then run pytest once."""
    began = time.monotonic()
    with LocalCluster(brokers):
        bare = time.monotonic() - began
    with lifetime.scratch_directory() as directory:
        Path(directory, "test_it.py").write_text(TESTS.format(tests=tests))
        Path(directory, "conftest.py").write_text(CONFTEST)
        before = _processor_seconds()
        options = ("-q", "-s", "--rootdir=.", *PLUGINS)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"--minikafka-brokers={brokers}"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    ready, rest = json.loads(done.stdout.splitlines()[-1])
    return Run(ready, bare, rest / tests, (_processor_seconds() - before) / tests)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
