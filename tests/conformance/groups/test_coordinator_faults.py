"""Faults of a group coordinator: the coordinator is killed, paused or moved while it handles requests.

The tests check that no commit is lost and that the members keep their generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count, product

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
FORMING = ("JoinRequest", "SyncRequest")
"""The steps in which a group forms; the others are also those of its commits."""
LATE = 3
"""The first late time of a step: the group has formed, and commits."""


async def live_through(fault: str, step: str, time: int) -> bool:
    """Run a group, and begin `fault` when the `SteppedCluster` comes to a step for the `time`-th time.

    Return False if the run ends before.
    """
    cluster = SteppedCluster(**{key.replace(".", "_"): value for key, value in KEYS.items()})
    begun: asyncio.Future[Callable[[], Awaitable[None]]] = (
        asyncio.get_running_loop().create_future()
    )
    faults = Faults(cluster)
    stable_generations: list[int] = []
    times = count(1)

    def at_step(broker: int, number: int, name: str) -> None:
        if name != step or next(times) != time:
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
    return begun.done()


def nothing(broker: int, number: int, name: str) -> None:
    """Inject no fault at the step."""


@pytest.mark.parametrize("fault", ["kill", "pause", "move"])
def test_no_offset_commit_is_lost_when_the_coordinator_fails_at_any_commit_step(fault: str) -> None:
    """Each fault is injected before and after every step, at one of its first times and, for a commit, also later.

    The long form injects each fault at the first ten times of every step.
    """
    for seed, (step, when) in enumerate(product(STEPS, ("before", "after"))):
        late = () if step in FORMING else (LATE + seed % 3,)
        for time in range(1, 11) if IS_LONG else (1 + seed % 2, *late):
            reached = run_seeded(seed, live_through(fault, f"{when} {step}", time))
            assert reached or time >= LATE, (when, step, time)


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
