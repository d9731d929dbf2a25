"""Brokers are killed at every named step of an operation, and the operation still ends as documented.

Each case blocks the controller at one step of creation, reassignment, deletion or controlled shutdown. Then the case
kills the controller, or the leader or a follower of the changed partitions. Complete brokers run in memory and in
virtual time. Every case runs under several schedules. `tests/cluster/test_crash_points.py` repeats some cases
with real processes.
"""

from __future__ import annotations

import pytest
from support.clusters.memory_stage import MemoryStage, on_memory_stage
from support.clusters.operations import CASES, kill_at_step


@pytest.mark.row("D18", "I6", "L6")
@pytest.mark.parametrize("case", CASES, ids=" ".join)
@on_memory_stage
async def test_controller_operation_completes_when_a_broker_is_killed_at_any_step(
    stage: MemoryStage, case: tuple[str, str, str]
) -> None:
    await kill_at_step(stage, *case, topic="t")
