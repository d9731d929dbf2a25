"""Two simulated days of whole brokers in memory. Each step sets the brokers' clocks forward by a quarter of an hour.

In some steps a broker is stopped or killed and started again. One broker is down for a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

from minikafka.base.model import TopicPartition
from minikafka.client import Client
from minikafka.simulation.cluster import MemoryCluster
from minikafka.storage.replication.partition import Partition

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
STEP = 15 * MINUTE
STEPS = 48 * HOUR // STEP
ABSENT = 2
"""The broker that is down for one day, from step `GONE` to step `BACK`."""
GONE, BACK = 40, 40 + 24 * HOUR // STEP


class Days:
    """The cluster with its clock and faults. `ends`: the number of records ever written, by partition."""

    def __init__(self, cluster: MemoryCluster, user: Client, seed: int) -> None:
        self.cluster = cluster
        self.user = user
        self.chance = Random(seed)
        self.ends: dict[TopicPartition, int] = {}

    async def advance(self, number: int) -> None:
        """Set the clocks forward by `STEP`. Stop the broker `ABSENT` in step number `GONE`, start it in step `BACK`."""
        self.cluster.clock.skipped_ms += STEP
        if number == GONE:
            await self.cluster.stop(ABSENT)
        elif number == BACK:
            await self.cluster.start(ABSENT)

    async def maybe_break_one(self) -> None:
        """In some steps, chosen at random, stop or kill a broker and start it again."""
        fault = self.chance.choice([None, None, None, None, "stop", "kill"])
        if fault is None or ABSENT not in self.cluster.brokers:
            return
        await self.cluster.clock.sleep(self.chance.randrange(300))
        victim = self.chance.choice(list(self.cluster.brokers))
        if fault == "stop":
            await self.cluster.stop(victim)
        else:
            self.cluster.kill_with_session(victim)
        await self.cluster.clock.sleep(self.chance.randrange(2000))
        await self.cluster.start(victim)

    def replicas(self, tp: TopicPartition) -> list[Partition]:
        """Return the partition's replica on every running broker, the leader first."""
        found = [
            broker.replicas.partitions[tp]
            for broker in self.cluster.brokers.values()
            if tp in broker.replicas.partitions
        ]
        return sorted(found, key=lambda partition: not partition.is_leader)

    async def settle(self) -> None:
        """Wait until all running brokers are in sync and have had time for retention and cleaning."""
        async with asyncio.timeout(120):
            while not all(map(self._is_settled, self.ends)):
                await self.cluster.clock.sleep(200)
        await self.cluster.clock.sleep(4 * SECOND)

    def _is_settled(self, tp: TopicPartition) -> bool:
        leader, *others = self.replicas(tp)
        end = leader.log.log_end_offset
        return (
            leader.is_leader
            and leader.high_watermark == end == self.ends[tp]
            and len(leader.isr) == len(others) + 1 == len(self.cluster.brokers)
            and all(other.log.log_end_offset == end for other in others)
        )

    def names(self, tp: TopicPartition) -> Iterable[tuple[int, list[str]]]:
        """Yield (broker id, names of the partition's files on the broker's disk) for every broker."""
        for number, storage in self.cluster.storages.items():
            yield number, storage.names(f"/data/{tp}")
