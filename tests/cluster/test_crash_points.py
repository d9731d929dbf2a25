"""Whoever is killed at whichever named step of an operation: it ends as the documents promise.

Every step of creation, reassignment, deletion and controlled shutdown is held in turn on a real cluster,
and there the controller, or the leader or a follower of what is being changed, is killed. The next
controller goes on, the victim comes back, and then ZooKeeper, the brokers' disks and a client are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from support.invariants import check_ledgers
from support.operations import OPERATIONS, Cast, staged
from support.stage import Stage, eventually, running_stage

from minikafka.controller.steps import STEPS

CASES = [
    (operation, step, victim)
    for operation, steps in STEPS.items()
    for step in steps
    for victim in OPERATIONS[operation].victims
]


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("stage")
    yield from running_stage(data)
    check_ledgers(data)


@pytest.fixture
async def stage(shared_stage: Stage) -> AsyncIterator[Stage]:
    try:
        yield shared_stage
    finally:
        await shared_stage.heal()


@pytest.mark.row("D18", "I6", "L6")
@pytest.mark.parametrize(
    ("operation", "step", "victim"), CASES, ids=[" ".join(case) for case in CASES]
)
async def test_an_operation_ends_as_promised_whoever_is_killed_at_whichever_step(
    stage: Stage, operation: str, step: str, victim: str
) -> None:
    cast = Cast.of(stage)
    dying = getattr(cast, victim)
    staging = staged(stage, cast, operation, step, f"t{CASES.index((operation, step, victim))}")
    epoch = stage.controller_epoch()
    name = f"{operation}.{step}"
    await staging.prepare()
    async with stage.stream(staging.written, len(staging.bystander)) as stream:
        await stage.cluster.hold(name)
        asked = asyncio.create_task(staging.ask())
        assert await stage.cluster.held(name) == cast.controller
        await stage.kill(dying)
        await stage.cluster.release(name)
        await staging.resume()
        if victim not in staging.waits_for:
            await asked
            await eventually(lambda: not staging.missing(), staging.missing)
        await stage.cluster.start(dying)
        await asked
        await stage.cluster.start()
        await eventually(lambda: not staging.missing(), staging.missing)
        await staging.confirm()
        await stream.check()
    assert (stage.controller_epoch() > epoch) == (dying == cast.controller)
