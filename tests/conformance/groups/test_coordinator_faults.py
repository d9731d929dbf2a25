"""Faults of a group coordinator: the coordinator is killed, paused or moved while it handles requests.

The tests check that no commit is lost and that the members keep their generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from support.clusters.group_life import STEPS, Faults, Life, SteppedCluster
from support.forms import IS_LONG

from minikafka.base.coordination import CONTROLLER
from minikafka.client import NewTopic
from minikafka.deciders.groups.states import STABLE
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
KEYS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 1,
    "min.insync.replicas": 2,
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 50,
    "replica.lag.time.max.ms": 1_000,
    "auto.leader.rebalance.enable": False,
}
MEMBERS = 2
SHORT_RUN = 50


async def live_through(fault: str, step: int) -> str:
    """Run a group, and begin `fault` at step number `step` of the `SteppedCluster`.

    Return the step's name, "" if the run ends before this step.
    """
    cluster = SteppedCluster(**{key.replace(".", "_"): value for key, value in KEYS.items()})
    begun: asyncio.Future[Callable[[], Awaitable[None]]] = (
        asyncio.get_running_loop().create_future()
    )
    faults = Faults(cluster)
    stable_generations: list[int] = []

    def at_step(broker: int, number: int, name: str) -> None:
        if number != step:
            return
        group = cluster.brokers[broker].groups.context.groups.get("g")
        if group is not None and group.state is STABLE and len(group.members) == MEMBERS:
            stable_generations.append(group.generation)
        begun.set_result(faults.begin(fault, broker))

    async with cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", MEMBERS, 3))
        cluster.at_step = at_step
        life = Life(cluster, "g", MEMBERS)
        life.start()
        progress = asyncio.get_running_loop().create_task(life.progress())
        await asyncio.wait([progress, begun], return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            await begun.result()()
        else:
            cluster.at_step = nothing
        await progress
        await life.progress()
        await life.stop()
    for generation in stable_generations:
        assert [member.generation for member in life.members] == [generation] * MEMBERS
    return cluster.steps[step] if begun.done() else ""


def nothing(broker: int, number: int, name: str) -> None:
    """Inject no fault at the step."""


@pytest.mark.parametrize("fault", ["kill", "pause", "move"])
def test_no_offset_commit_is_lost_when_the_coordinator_fails_at_any_commit_step(fault: str) -> None:
    """Each fault is injected at one of every five steps, and in the other mode at another one of them.

    A commit has six steps, so over many commits each fault is injected at every step of a commit. The short form ends
    after the first `SHORT_RUN` of about 100 steps; later steps are those of further commits.
    """
    reached = []
    first = 2 if MemoryCluster.default_coordination == CONTROLLER else 4
    for step in count(first, 5) if IS_LONG else range(first, SHORT_RUN, 5):
        name = run_seeded(step, live_through(fault, step))
        if not name:
            break
        reached.append(name)
    assert len(reached) > 8
    assert {name.split()[1] for name in reached} == set(STEPS)


async def roll(groups: int) -> None:
    """Restart every broker in turn while groups commit. While a broker is down, every group must commit."""
    keys = {**KEYS, "offsets.topic.num.partitions": 6}
    cluster = MemoryCluster(**{key.replace(".", "_"): value for key, value in keys.items()})
    async with cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 3))
        lives = [Life(cluster, f"group-{number}", 1) for number in range(groups)]
        for life in lives:
            life.start()
        await asyncio.gather(*(life.progress(1) for life in lives))
        begun = [life.members[0].generation for life in lives]
        # Without a controller the first leader is alone in the ISR, so that the first assignment may be refused.
        assert cluster.coordination != CONTROLLER or set(begun) == {1}
        for broker in tuple(cluster.storages):
            await asyncio.gather(*(life.progress(1) for life in lives))
            await cluster.stop(broker)
            await asyncio.gather(*(life.progress(2) for life in lives))
            await cluster.start(broker)
        for life, generation in zip(lives, begun, strict=True):
            await life.stop()
            (member,) = life.members
            assert {each for each, _ in member.history} == {generation}


def test_no_commit_is_lost_when_every_broker_is_restarted_in_turn() -> None:
    run_seeded(7, roll(20))
