"""Suspects in a cluster of whole brokers in memory: acks=all does not wait for them, and a suspect may be alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from minikafka.base.model import TopicPartition
from minikafka.broker.modes.controller.terms.term import Term
from minikafka.broker.modes.controller.terms.view import summary_of
from minikafka.client import NewTopic
from minikafka.deciders.controller.events import BrokerSuspected, SuspicionEnded
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.storage.replication.partition import Partition

T0 = TopicPartition("t", 0)
SOON = 5
"""Seconds within which a write must be acknowledged; `replica.lag.time.max.ms` is 30 s."""

Scenario = Callable[["Suspected"], Coroutine[Any, Any, None]]


class Suspected:
    """Brokers 0 (the controller), 1 and 2 with the topic `t`, whose single partition broker 1 leads."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.client = cluster.client()

    @property
    def term(self) -> Term:
        (term,) = [
            broker.capabilities.diagnostics._term
            for broker in self.cluster.brokers.values()
            if broker.capabilities.diagnostics.is_active
        ]
        return term

    def epoch(self, broker: int) -> int:
        return self.term.machine.context.brokers[broker].epoch

    def suspect(self, broker: int) -> None:
        self.term.put(BrokerSuspected(broker, self.epoch(broker), "refused"))

    def clear_of_suspicion(self, broker: int) -> None:
        self.term.put(SuspicionEnded(broker, self.epoch(broker)))

    def partition(self, broker: int = 1) -> Partition:
        return self.cluster.brokers[broker].replicas.partitions[T0]

    def stop_following(self, broker: int) -> None:
        """Let a follower fetch no longer, as if its process had died; the test says when it is suspected."""
        self.cluster.brokers[broker].replicas.fetchers.remove(T0)

    def follow_again(self, broker: int) -> None:
        self.cluster.brokers[broker].replicas.fetchers.add(self.partition(broker))

    async def isr_becomes(self, *isr: int, leader: int = 1) -> None:
        await self.eventually(
            lambda: self.partition(leader).is_leader and set(self.partition(leader).isr) == set(isr)
        )

    async def eventually(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SOON):
            while not condition():  # noqa: ASYNC110  what is watched has no event
                await asyncio.sleep(0.01)

    async def produce(self, value: bytes) -> None:
        async with asyncio.timeout(SOON):
            await self.client.produce("t", [Record(value=value)])


def run(scenario: Scenario, seed: int, **keys: object) -> None:
    async def whole() -> None:
        async with MemoryCluster(auto_leader_rebalance_enable=False, **keys) as cluster:
            suspected = Suspected(cluster)
            async with suspected.client as client:
                await client.create_topics(NewTopic("t", assignment={0: (1, 2, 0)}))
                await suspected.produce(b"first")
                await scenario(suspected)

    run_seeded(seed, whole())


@pytest.mark.parametrize("seed", range(3))
def test_write_does_not_wait_for_a_follower_that_is_suspected(seed: int) -> None:
    async def scenario(s: Suspected) -> None:
        s.stop_following(2)
        write = asyncio.ensure_future(s.produce(b"second"))
        await asyncio.sleep(1)
        assert not write.done()
        s.suspect(2)
        await write
        assert set(s.partition().isr) == {0, 1}

    run(scenario, seed)


@pytest.mark.parametrize("seed", range(3))
def test_isr_keeps_a_suspect_that_min_insync_replicas_demands(seed: int) -> None:
    async def scenario(s: Suspected) -> None:
        s.stop_following(2)
        s.suspect(2)
        write = asyncio.ensure_future(s.produce(b"second"))
        await asyncio.sleep(SOON / 2)
        assert not write.done()
        assert set(s.partition().isr) == {0, 1, 2}
        s.follow_again(2)
        await write

    run(scenario, seed, min_insync_replicas=3)


@pytest.mark.parametrize("seed", range(3))
def test_follower_that_is_alive_joins_the_isr_again_only_after_the_suspicion(seed: int) -> None:
    async def scenario(s: Suspected) -> None:
        s.suspect(2)
        await s.isr_becomes(0, 1)
        for number in range(20):
            await s.produce(b"%d" % number)
            await asyncio.sleep(0.1)
        await s.eventually(lambda: s.partition(2).log.log_end_offset == 21)
        assert set(s.partition().isr) == {0, 1}
        s.clear_of_suspicion(2)
        await s.isr_becomes(0, 1, 2)
        assert summary_of(s.term)["false_suspicions"] == 1

    run(scenario, seed)


@pytest.mark.parametrize("seed", range(5))
def test_suspect_that_is_alive_and_written_to_loses_no_acknowledged_record(seed: int) -> None:
    async def scenario(s: Suspected) -> None:
        acknowledged = [b"first"]

        async def write() -> None:
            for number in range(60):
                await s.produce(b"%d" % number)
                acknowledged.append(b"%d" % number)
                await asyncio.sleep(0.02)

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0.3)
        s.suspect(1)
        await s.isr_becomes(0, 2, leader=2)
        await writing
        assert (s.partition(2).leader_epoch, s.partition(1).leader) == (1, 2)
        s.clear_of_suspicion(1)
        await s.isr_becomes(0, 1, 2, leader=2)
        assert s.partition(2).leader_epoch == 1
        fetched = await s.client.fetch("t", 0, 0)
        assert [record.value for record in fetched.records] == acknowledged

    run(scenario, seed)
