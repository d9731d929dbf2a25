"""Histories of concurrent transactions while brokers die, checked by the isolation checker, in many seeds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from support.clients.group_client import RETRY_MS, Unanswered
from support.clients.transactional_client import (
    CommittedReader,
    Fenced,
    MustAbort,
    TransactionalProducer,
)
from support.forms import seeds

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import OK, UNKNOWN, Recorder, parse
from minikafka.checks.isolation.logs import Stored, stored
from minikafka.checks.isolation.verdict import Verdict, check
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
SMALL = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 2,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000,
    "replica_lag_time_max_ms": 3_000,
}
PARTITIONS = [TopicPartition("t", number) for number in range(2)]
TIMEOUT_MS = 5_000
"""Timeout of a transaction, shorter than some deaths of a broker."""
WRITERS = 3


class Clients:
    """Writers and readers that record what they do. `lines`: their history."""

    def __init__(self, cluster: MemoryCluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.lines: list[str] = []
        self.ended = asyncio.Event()
        self._starts = count()
        self._values = count()

    def recorder(self, name: str) -> Recorder:
        clock = self.cluster.clock
        return Recorder(
            f"{name}.{next(self._starts)}", name, self.lines.append, lambda: clock.now() / 1000
        )

    async def write(self, name: str) -> None:
        """Run transactions until `ended`. After an error, a new producer has the same transactional id."""
        while not self.ended.is_set():
            producer = TransactionalProducer(self.cluster, name, self.chance.randrange(3))
            with suppress(Fenced, MustAbort, Unanswered, OSError):
                await producer.init(TIMEOUT_MS)
                await self._transactions(producer, self.recorder(name))
            producer.close()
            await self.cluster.clock.sleep(RETRY_MS)

    async def _transactions(self, producer: TransactionalProducer, history: Recorder) -> None:
        while not self.ended.is_set():
            history.ended(history.begin())
            for _ in range(self.chance.randint(1, 4)):
                tp = self.chance.choice(PARTITIONS)
                value = b"%d" % next(self._values)
                number = history.write(tp.topic, value, tp.partition)
                offset = await producer.produce(tp, value)
                history.ended(number, OK if offset >= 0 else UNKNOWN, offset=offset)
            commits = self.chance.random() < 0.7
            number = history.commit() if commits else history.abort()
            await producer.end(commit=commits)
            history.ended(number)
            await self.cluster.clock.sleep(self.chance.randint(1, 200))

    async def read(self, tp: TopicPartition) -> None:
        """Read a partition as read_committed until `ended`, and then up to its last stable offset."""
        history, reader = self.recorder("reader"), CommittedReader(self.cluster, tp)
        history.seek(*tp, 0)
        while True:
            is_last = self.ended.is_set()
            found = []
            with suppress(Unanswered, OSError):
                found = await reader.poll()
            for offset, value in found:
                history.read(*tp, offset, value)
            if is_last and not found:
                break
            await self.cluster.clock.sleep(RETRY_MS)
        reader.close()

    def verdict(self) -> Verdict:
        logs: dict[TopicPartition, dict[int, list[Stored]]] = {tp: {} for tp in PARTITIONS}
        for number, broker in self.cluster.brokers.items():
            for tp in PARTITIONS:
                log = broker.replicas.partitions[tp].log
                data, _, _ = log.read(log.locate(0), log.written_position, 1 << 30)
                logs[tp][number] = list(stored(data, tp))
        return check(parse(self.lines), logs)


def is_settled(cluster: MemoryCluster) -> bool:
    """True if no transaction is open, and all replicas have the same records below the same high watermark."""
    replicas = [
        broker.replicas.partitions[tp] for broker in cluster.brokers.values() for tp in PARTITIONS
    ]
    ends = {(one.tp, one.log.log_end_offset, one.high_watermark) for one in replicas}
    return len(ends) == len(PARTITIONS) and all(
        one.high_watermark == one.log.log_end_offset
        and one.log.producers.first_unstable_offset(one.high_watermark) is None
        for one in replicas
    )


async def kill_brokers(cluster: MemoryCluster, chance: random.Random, times: int) -> None:
    """Kill brokers one after the other, each for up to 8 s."""
    for _ in range(times):
        await cluster.clock.sleep(chance.randint(100, 3_000))
        number = chance.choice(sorted(cluster.brokers))
        cluster.kill(number)
        if chance.random() < 0.5:
            cluster.end_session(number)
        await cluster.clock.sleep(chance.randint(100, 8_000))
        await cluster.start(number)


def run(seed: int) -> Verdict:
    """Run writers, readers and deaths, and return the verdict."""

    async def scene() -> Verdict:
        chance = random.Random(seed)
        async with MemoryCluster(3, **SMALL) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("t", len(PARTITIONS), 3)])
            clients = Clients(cluster, chance)
            work: list[Coroutine[Any, Any, None]] = [clients.read(tp) for tp in PARTITIONS]
            work += [clients.write(f"writer-{number}") for number in range(WRITERS)]
            running = [asyncio.create_task(one) for one in work]
            await kill_brokers(cluster, chance, 4)
            await cluster.clock.sleep(2_000)
            clients.ended.set()
            await asyncio.gather(*running)
            async with asyncio.timeout(600):
                while not is_settled(cluster):
                    await cluster.clock.sleep(100)
            return clients.verdict()

    return run_seeded(seed, scene())


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_concurrent_transactions_are_isolated_while_brokers_die(seed: int) -> None:
    verdict = run(seed)
    assert list(verdict.lines()) == []
    assert verdict.facts["committed"] >= 20
    assert verdict.facts["reads"] >= 20
