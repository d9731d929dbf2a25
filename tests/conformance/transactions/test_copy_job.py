"""A job that reads, processes and writes exactly once, while brokers and the job itself die at each step.

The job copies partitions of a MemoryCluster. It reads committed records, and writes them in a transaction together
with its offsets. It keeps nothing but its transactional id and its group: after any error it begins again with a new
producer at the committed offsets, as Kafka Streams does.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from support.clients.group_client import RETRY_MS, GroupClient, Unanswered
from support.clients.transactional_client import (
    CommittedReader,
    Fenced,
    MustAbort,
    TransactionalProducer,
    committed_values,
)
from support.forms import seeds

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC, TRANSACTION_TOPIC
from minikafka.client import NewTopic
from minikafka.deciders.transactions.steps import STEPS, TRANSACTION
from minikafka.kafka.wire.versions import OFFSET_FETCH
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

SOURCE, TARGET = "source", "target"
PARTITIONS = 2
STEP_BYTES = 200
"""Maximum bytes that the job reads at once from a partition, so that it commits often."""


class Died(Exception):
    """The instance of the job has died."""


class CopyJob:
    """One instance of the job. `restarts`: the errors after which the job began again.

    `dies_at`: the number of the request that the instance sends last; it gets no response. None: the instance lives.
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        name: str = "copy",
        home: int = 0,
        dies_at: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.home = home
        self.dies_at = dies_at
        self.requests = 0
        self.restarts: Counter[str] = Counter()
        self.transactions = 0
        self._clients: list[GroupClient] = []

    def start(self) -> asyncio.Task[None]:
        """Copy in a task, until the task is cancelled or the instance dies."""
        return asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except Died:
                return
            except (Fenced, MustAbort, Unanswered, OSError) as error:
                self.restarts[repr(error)] += 1
            finally:
                self.close()
            await self.cluster.clock.sleep(RETRY_MS)

    def close(self) -> None:
        """Close all connections of the job."""
        for client in self._clients:
            client.close()
        self._clients.clear()

    async def _session(self) -> None:
        producer = TransactionalProducer(self.cluster, self.name, self.home)
        group = GroupClient(self.cluster, self.name, self.home)
        readers = [
            CommittedReader(self.cluster, TopicPartition(SOURCE, number))
            for number in range(PARTITIONS)
        ]
        self._clients += [producer, producer.leaders, group, *readers]
        for client in self._clients:
            client.before_response = self._count_request
        await producer.init()
        positions = await stable_positions(group)
        for reader in readers:
            reader.position = positions[reader.tp.partition]
        while True:
            if not await self._copy_next(producer, group, readers):
                await self.cluster.clock.sleep(RETRY_MS)

    def _count_request(self) -> None:
        self.requests += 1
        if self.requests == self.dies_at:
            raise Died

    async def _copy_next(
        self,
        producer: TransactionalProducer,
        group: GroupClient,
        readers: list[CommittedReader],
    ) -> bool:
        """Copy what the next read of each partition returns, in one transaction. Return False if that is nothing."""
        offsets: dict[tuple[str, int], int] = {}
        for reader in readers:
            before = reader.position
            found = await reader.poll(STEP_BYTES)
            if found:
                target = TopicPartition(TARGET, reader.tp.partition)
                await producer.produce(target, *(transformed(value) for _, value in found))
            if reader.position > before:
                offsets[reader.tp] = reader.position
        if offsets:
            await producer.commit_offsets(group, offsets)
            await producer.end()
            self.transactions += 1
        return bool(offsets)


async def stable_positions(group: GroupClient) -> dict[int, int]:
    """Return the committed offset of each source partition, 0 without one; wait while an offset is unstable."""
    asked = [{"name": SOURCE, "partition_indexes": list(range(PARTITIONS))}]
    while True:
        answer = await group.ask(
            OFFSET_FETCH,
            groups=[{"group_id": group.group, "topics": asked}],
            require_stable=True,
        )
        rows = answer.groups[0].topics[0].partitions
        codes = {int(row.error_code) for row in rows}
        if codes == {0}:
            return {row.partition_index: max(row.committed_offset, 0) for row in rows}
        assert codes <= {0, int(ErrorCode.UNSTABLE_OFFSET_COMMIT)}, codes
        await group.cluster.clock.sleep(RETRY_MS)


def transformed(value: bytes) -> bytes:
    """Return the value that the job writes for a value that it has read."""
    return b"<" + value + b">"


class Source:
    """The producer of the source: it commits most of its transactions, and aborts every third."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.expected: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.count = 0

    async def fill(self, transactions: int) -> None:
        """Write transactions with some records to every partition, on a healthy cluster."""
        producer = TransactionalProducer(self.cluster, "source")
        await producer.init()
        for _ in range(transactions):
            self.count += 1
            is_committed = self.count % 3 != 0
            for number in range(PARTITIONS):
                values = [b"%d-%d-%d" % (number, self.count, i) for i in range(3)]
                await producer.produce(TopicPartition(SOURCE, number), *values)
                if is_committed:
                    self.expected[number] += values
            await producer.end(commit=is_committed)
        producer.close()

    async def until_copied(self, seconds: float = 600) -> None:
        """Wait until the target holds as many committed records as the source. Raises AssertionError after a while."""
        readers = [
            CommittedReader(self.cluster, TopicPartition(TARGET, number))
            for number in range(PARTITIONS)
        ]
        found: list[list[bytes]] = [[] for _ in readers]
        try:
            async with asyncio.timeout(seconds):
                while any(len(self.expected[n]) > len(values) for n, values in enumerate(found)):
                    for reader, values in zip(readers, found, strict=True):
                        values += [value for _, value in await reader.poll()]
                    await self.cluster.clock.sleep(RETRY_MS)
        except TimeoutError:
            counts = [(len(self.expected[n]), len(values)) for n, values in enumerate(found)]
            raise AssertionError(f"(expected, copied) records: {counts}") from None
        finally:
            for reader in readers:
                reader.close()

    async def check(self) -> None:
        """Check that the target equals the transformed source: each record once, in order."""
        for number in range(PARTITIONS):
            copied = await committed_values(self.cluster, TopicPartition(TARGET, number))
            assert copied == [transformed(value) for value in self.expected[number]]


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
    cluster.kill_with_session(number)
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


@pytest.mark.parametrize("seed", seeds(1, 2))
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
        cluster.end_session(number)
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


@pytest.mark.parametrize("seed", seeds(2, 4))
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
    cluster.pause(number)
    await over
    cluster.resume(number)
