"""A job that reads, processes and writes exactly once, while brokers and the job itself die at each step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from support.copy_job import PARTITIONS, SOURCE, TARGET, CopyJob, Source

from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC, TRANSACTION_TOPIC
from minikafka.client import NewTopic
from minikafka.deciders.transactions.steps import STEPS, TRANSACTION
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import SeededLoop, run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
SMALL = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "replica_lag_time_max_ms": 3_000,
}
COORDINATOR = TopicPartition(TRANSACTION_TOPIC, 0)
PLACES = {
    "transaction coordinator": COORDINATOR,
    "group coordinator": TopicPartition(GROUP_TOPIC, 0),
    "leader of the target": TopicPartition(TARGET, 1),
    "leader of the source": TopicPartition(SOURCE, 0),
}
"""The brokers that are killed: the leaders of these partitions."""
Scenario = Callable[[MemoryCluster, Source], Coroutine[Any, Any, None]]


def run(scenario: Scenario, seed: int = 1) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **SMALL) as cluster, cluster.client() as user:
            topics = [NewTopic(name, PARTITIONS, 3) for name in (SOURCE, TARGET)]
            await user.admin.create_topics(topics)
            source = Source(cluster)
            await scenario(cluster, source)
            await source.check()

    run_seeded(seed, scene())


def leader_of(cluster: MemoryCluster, tp: TopicPartition) -> int:
    """Return the running broker that leads a partition, -1 if there is none."""
    for number, broker in cluster.brokers.items():
        partition = broker.replicas.partition(tp)
        if partition is not None and partition.is_open and not partition.offline:
            return number
    return -1


async def until(cluster: MemoryCluster, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(600):
        while not condition():
            await cluster.clock.sleep(20)


async def leading(cluster: MemoryCluster, tp: TopicPartition) -> int:
    """Wait until a partition has a leader; return the leader's number."""
    await until(cluster, lambda: leader_of(cluster, tp) >= 0)
    return leader_of(cluster, tp)


async def kill(cluster: MemoryCluster, number: int, down_ms: int = 2_000) -> None:
    """Kill a broker, let the cluster learn it at once, and start the broker again."""
    session_id = cluster.sessions[number].session_id
    cluster.kill(number)
    cluster.ensemble.end_session(session_id)
    await cluster.clock.sleep(down_ms)
    await cluster.start(number)


async def stop(job: CopyJob, running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.wait([running])
    job.close()


@pytest.mark.parametrize("place", PLACES)
def test_copy_is_exact_when_a_broker_dies_at_each_step_of_a_commit(place: str) -> None:
    async def scenario(cluster: MemoryCluster, source: Source) -> None:
        for step in STEPS[TRANSACTION]:
            await source.fill(2)
            gate = cluster.brokers[await leading(cluster, COORDINATOR)].gate
            gate.hold(f"{TRANSACTION}.{step}")
            job = CopyJob(cluster)
            running = job.start()
            await until(cluster, lambda gate=gate: gate.waiting)
            killing = asyncio.create_task(
                kill(cluster, await leading(cluster, PLACES.get(place, COORDINATOR)))
            )
            await cluster.clock.sleep(500)
            gate.open()
            await killing
            await source.until_copied()
            await stop(job, running)

    run(scenario)


def test_copy_is_exact_when_the_job_dies_after_each_of_its_requests() -> None:
    async def scenario(cluster: MemoryCluster, source: Source) -> None:
        await source.fill(1)
        for last in range(1, 40):
            await source.fill(1)
            job = CopyJob(cluster, dies_at=last)
            await job.start()
            assert job.requests == last
        job = CopyJob(cluster)
        running = job.start()
        await source.until_copied()
        await stop(job, running)

    run(scenario)


def test_copy_is_exact_when_two_instances_of_the_job_fence_each_other() -> None:
    async def scenario(cluster: MemoryCluster, source: Source) -> None:
        await source.fill(1)
        jobs = [CopyJob(cluster, home=home) for home in (0, 1)]
        running = [job.start() for job in jobs]
        await source.fill(8)
        await cluster.clock.sleep(5_000)
        await stop(jobs[0], running[0])
        await source.until_copied()
        await stop(jobs[1], running[1])
        assert any("Fenced" in error for job in jobs for error in job.restarts)

    run(scenario, seed=2)


@pytest.mark.parametrize("seed", range(2))
def test_copy_is_exact_when_the_job_asks_a_replaced_group_coordinator(seed: int) -> None:
    """The coordinator is paused meanwhile, and has not learned of its successor when it reads the job's requests."""

    async def scenario(cluster: MemoryCluster, source: Source) -> None:
        await source.fill(3)
        job = CopyJob(cluster)
        running = job.start()
        await source.until_copied()
        number = await leading(cluster, PLACES["group coordinator"])
        over = asyncio.Event()
        pausing = asyncio.create_task(pause(cluster, number, over.wait()))
        await cluster.clock.sleep(0)
        cluster.ensemble.end_session(cluster.sessions[number].session_id)
        await cluster.clock.sleep(3_000)
        await source.fill(3)
        await source.until_copied()
        await stop(job, running)
        job = CopyJob(cluster, home=number)
        running = job.start()
        await cluster.clock.sleep(300)
        over.set()
        await pausing
        await cluster.clock.sleep(5_000)
        await source.fill(1)
        await source.until_copied()
        await stop(job, running)

    run(scenario, seed)


@pytest.mark.parametrize("seed", range(4))
def test_copy_is_exact_under_a_random_schedule_of_deaths_and_pauses(seed: int) -> None:
    async def scenario(cluster: MemoryCluster, source: Source) -> None:
        chance = random.Random(seed)
        job = CopyJob(cluster)
        running = job.start()
        filling = asyncio.create_task(source.fill(25))
        for _ in range(8):
            await cluster.clock.sleep(chance.randrange(2_000))
            number = chance.choice(list(cluster.brokers))
            fault = chance.choice(("kill", "kill", "pause", "job", "stop"))
            if fault == "kill":
                await kill(cluster, number, chance.randrange(3_000))
            elif fault == "pause":
                await pause(cluster, number, cluster.clock.sleep(chance.randrange(10_000)))
            elif fault == "stop":
                await cluster.stop(number)
                await cluster.start(number)
            else:
                await stop(job, running)
                job = CopyJob(cluster)
                running = job.start()
        await filling
        await source.until_copied()
        await stop(job, running)

    run(scenario, seed)


async def pause(cluster: MemoryCluster, number: int, over: Awaitable[object]) -> None:
    """Pause a broker, as by SIGSTOP, until `over` ends."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SeededLoop)
    process = cluster.processes[number]
    loop.pause(process)
    await over
    loop.resume(process)
