"""Generated schedules of brokers in the leader-coordinated mode: invariants after each step, recovery at the end."""

from __future__ import annotations

import pytest
from support.leaders_world import World


@pytest.mark.row("C19", "C42")
@pytest.mark.parametrize("seed", range(40))
def test_random_schedule_keeps_the_invariants_and_settles(seed: int) -> None:
    world = World(seed)
    for _ in range(4):
        world.run(600)
        world.settle()
