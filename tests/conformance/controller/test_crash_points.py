"""Brokers are killed at every named step of an operation, and the operation still ends as documented.

Each case blocks the controller at one step of creation, reassignment, deletion or controlled shutdown. Then the case
kills the controller, or the leader or a follower of the changed partitions. Complete brokers run in memory and in
virtual time. In the long form every case runs under several schedules. `tests/cluster/test_crash_points.py` repeats
some cases with real processes.
"""

from __future__ import annotations

import pytest
from support.clusters.memory_stage import SEEDS, run_on_stage
from support.clusters.operations import CASES, kill_at_step
from support.forms import IS_LONG

RUNS = [
    (seed, case)
    for number, case in enumerate(CASES)
    for seed in SEEDS
    if IS_LONG or seed == number % len(SEEDS)
]


@pytest.mark.row("D18", "I6", "L6")
@pytest.mark.parametrize(
    ("seed", "case"), RUNS, ids=[f"{seed}-{' '.join(case)}" for seed, case in RUNS]
)
def test_controller_operation_completes_when_a_broker_is_killed_at_any_step(
    seed: int, case: tuple[str, str, str]
) -> None:
    run_on_stage(seed, lambda stage: kill_at_step(stage, *case, topic="t"))
