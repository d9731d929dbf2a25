"""Objects, instructions and port calls per request of the hot path, each below a budget.

`support/brokers/hot_path.py` counts them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.brokers.hot_path import Stage, consumer_fetch, run

from benchmarks.allocations import PRODUCT, Allocations, Cost
from minikafka.simulation.storage import MemoryFile
from minikafka.simulation.transport import MemoryLink

ROOT = Path(__file__).parents[3]
LINK = ("send", "pause_reading", "resume_reading")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The calls of files and connections, each of which is a system call on a real machine."""
    counts: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            counts[name] += 1
            return call(*arguments)

        return counted

    for owner, names in ((MemoryFile, ("pread", "pwritev", "sync", "size")), (MemoryLink, LINK)):
        for name in names:
            monkeypatch.setattr(owner, name, counting(name, getattr(owner, name)))
    return counts


@pytest.mark.row("N4")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the counts are those of CPython 3.11")
def test_requests_of_the_hot_path_stay_within_their_allocation_budgets() -> None:
    """Counts in a new process: reading the number of blocks takes longer, the more objects the process has."""
    command = [sys.executable, "-m", "support.brokers.hot_path"]
    counted = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
        text=True,
        capture_output=True,
    )
    print(counted.stdout)
    assert counted.returncode == 0, counted.stdout + counted.stderr


@pytest.mark.row("N4")
@pytest.mark.parametrize(("count", "reads"), [(1, {}), (64, {"pread": 1})])
def test_tick_of_many_produce_requests_makes_as_many_system_calls_as_one(
    calls: Counter[str], count: int, reads: dict[str, int]
) -> None:
    """Small writes stay in memory. The records of a larger one are read from the file for the follower."""

    async def scenario(stage: Stage) -> None:
        stage.round()
        offset = stage.partition.log.log_end_offset
        calls.clear()
        stage.producer.send(stage.produce_request * count)
        assert calls == {"pwritev": 1, **reads, "send": 1}, "a write, a response to the follower"
        calls.clear()
        stage.follower_fetch("commit", offset + count)
        assert calls == {"send": 1}, "all responses to the producer"

    run(scenario)


@pytest.mark.row("N4")
def test_fetch_and_offset_commit_make_one_system_call_per_read_write_and_response(
    calls: Counter[str],
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.round()
        offset = stage.partition.log.log_end_offset
        calls.clear()
        stage.send("consumer fetch", stage.consumer, consumer_fetch(offset - 1))
        assert calls == {"pread": 1, "send": 1}
        await stage.commit_offset()
        calls.clear()
        await stage.commit_offset()
        assert calls == {"pwritev": 1, "send": 1}

    run(scenario)


def test_excess_over_a_budget_names_the_line_that_made_the_objects() -> None:
    source = "def append():\n    kept = []\n    for _ in range(400):\n        kept = [object()]\n"
    made: dict[str, Any] = {}
    exec(compile(source, f"{PRODUCT}/log/wasteful.py", "exec"), made)
    counts = Allocations()
    with counts.counted():
        made["append"]()
    assert counts.excess(1, Cost(1_000, 9_000)) == ""
    (first, place, *_), (second, *_) = (
        counts.excess(1, budget).splitlines() for budget in (Cost(400, 9_000), Cost(1_000, 400))
    )
    assert (first.split()[1], second.split()[1]) == ("objects", "instructions")
    assert place.split()[1] == "log/wasteful.py:4"
