"""Transactional producers while brokers are killed, paused, restarted and lose their sessions, in virtual time."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from support.clients.group_client import Unanswered
from support.clients.transactional_client import (
    Fenced,
    MustAbort,
    TransactionalProducer,
    committed_values,
)

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
SMALL = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 3}
PRODUCERS = 3
FAULTS = 4


@dataclass
class Storm:
    """What the producers did. `sent`: value of each transaction -> its partitions, with one record or more in each."""

    cluster: MemoryCluster
    chance: random.Random
    sent: dict[bytes, set[TopicPartition]] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)
    is_over: bool = False

    async def produce(self, name: str) -> None:
        """Commit and abort transactions until the storm is over. The outcome of the last one may be unknown."""
        producer = TransactionalProducer(self.cluster, name)
        await producer.init()
        number = 0
        while not self.is_over:
            number += 1
            value = f"{name} {number}".encode()
            commit = self.chance.random() < 0.7
            self.sent[value] = set(self.chance.sample(PARTITIONS, self.chance.randint(1, 4)))
            try:
                for tp in self.sent[value]:
                    await producer.produce(tp, value)
                await producer.end(commit=commit)
                (self.committed if commit else self.aborted).add(value)
            except (MustAbort, Fenced, Unanswered):
                await producer.init()
            await self.cluster.clock.sleep(self.chance.randint(50, 500))
        producer.close()

    async def harm(self) -> None:
        """Let one fault happen to one broker, and mend it."""
        cluster = self.cluster
        number = self.chance.choice(list(cluster.brokers))
        pause_ms = self.chance.randint(500, 8_000)
        kind = self.chance.choice(["kill", "pause", "replace", "restart"])
        if kind == "kill":
            cluster.kill(number)
        elif kind == "restart":
            await cluster.stop(number)
        else:
            cluster.pause(number)
        if kind in ("kill", "replace"):
            cluster.end_session(number)
        await cluster.clock.sleep(pause_ms)
        if kind in ("kill", "restart"):
            await cluster.start(number)
        else:
            cluster.resume(number)

    async def settle(self) -> None:
        """Wait until no transaction is open in any partition."""
        async with asyncio.timeout(300):
            while not self.is_settled():
                await self.cluster.clock.sleep(100)

    def is_settled(self) -> bool:
        leaders = [
            partition
            for broker in self.cluster.brokers.values()
            for tp in PARTITIONS
            if (partition := broker.replicas.partition(tp)) is not None and partition.is_open
        ]
        return len(leaders) == len(PARTITIONS) and all(
            leader.log.producers.first_unstable_offset(leader.high_watermark) is None
            for leader in leaders
        )


def test_transactions_are_visible_whole_and_once_or_not_at_all() -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **SMALL) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("t", 4, 3)])
            storm = Storm(cluster, random.Random(1))
            producers = [
                asyncio.get_running_loop().create_task(storm.produce(f"p{number}"))
                for number in range(PRODUCERS)
            ]
            for _ in range(FAULTS):
                await storm.harm()
                await cluster.clock.sleep(storm.chance.randint(200, 3_000))
            storm.is_over = True
            await asyncio.gather(*producers)
            await storm.settle()
            values = {tp: await committed_values(cluster, tp) for tp in PARTITIONS}
            assert len(storm.committed) > 20
            assert len(storm.aborted) > 5
            for value, partitions in storm.sent.items():
                seen = {tp: values[tp].count(value) for tp in PARTITIONS if value in values[tp]}
                assert seen in ({}, dict.fromkeys(partitions, 1)), (value, seen)
                assert bool(seen) or value not in storm.committed, value
                assert not seen or value not in storm.aborted, value

    run_seeded(1, scene())
