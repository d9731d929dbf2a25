"""Operations whose real broker processes are killed at named steps: each operation ends as documented.

These cases are a selection of those that `tests/conformance/controller/test_crash_points.py` runs in memory: one
case for each way in which a step and a killed broker may interact with real sockets, files and sessions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.clusters.operations import CASES, kill_at_step
from support.clusters.stage import RealStage, running_stage
from support.ledger.invariants import check_ledgers

CHOSEN = [
    ("creation", "partitions-online", "controller"),
    ("creation", "replicas-online", "leader"),
    ("reassignment", "U3", "newcomer"),
    ("reassignment", "A2", "controller"),
    ("reassignment", "B3", "leader"),
    ("reassignment", "B6", "controller"),
    ("deletion", "deletion-started", "follower"),
    ("deletion", "topic-gone", "controller"),
    ("controlled-shutdown", "leaders-moved", "controller"),
]


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStage]:
    data = tmp_path_factory.mktemp("stage")
    yield from running_stage(data)
    check_ledgers(data)


@pytest.mark.row("D18", "I6", "L6")
@pytest.mark.parametrize("case", CHOSEN, ids=" ".join)
async def test_controller_operation_completes_when_a_broker_is_killed_at_a_chosen_step(
    stage: RealStage, case: tuple[str, str, str]
) -> None:
    await kill_at_step(stage, *case, topic=f"t{CASES.index(case)}")
