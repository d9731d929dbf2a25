"""Whole brokers in memory: new leaders that wait for the in-sync replicas, and what brokers report meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.brokers.hosted import batch
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders
from support.until import until

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ErrorCode
from minikafka.broker.capabilities import TopicPlan
from minikafka.client import NewTopic, Record
from minikafka.client.login import Connector
from minikafka.client.network import Address, Network, request
from minikafka.kafka.wire.versions import PRODUCE
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.descriptors import FewDescriptors

LAG_MS = 3_000


class Election:
    """The dead leader of t-0, a follower that is paused, and the other follower, which becomes the leader."""

    def __init__(self, cluster: LeadersCluster) -> None:
        self.cluster = cluster
        self.dead = cluster.state.leader
        self.paused, self.leader = sorted(set(cluster.brokers) - {self.dead})

    async def __aenter__(self) -> Election:
        """Pause the follower and kill the leader; return when the next leader waits for the paused follower."""
        self.cluster.pause(self.paused)
        self.cluster.kill_with_session(self.dead)
        try:
            await self.cluster.until(lambda: self.row["opening"] == [self.paused])
        except BaseException:
            self.resume()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let the follower run, even after a failure: the end of the test waits for it."""
        self.resume()

    def resume(self) -> None:
        self.cluster.resume(self.paused)

    @property
    def row(self) -> dict[str, Any]:
        """The leader's row of t-0 in `status`."""
        report = self.cluster.brokers[self.leader].describe()
        return next(row for row in report["replicas"] if row["topic"] == "t")

    async def produced(self) -> int:
        """Return the error code of one produce request with acks=1 to the new leader."""
        network = Network(Connector(self.cluster.transport), self.cluster.clock, "test")
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"b")}]}]
        body = request(PRODUCE, transactional_id=None, acks=1, timeout_ms=1_000, topic_data=data)
        response = await network.call(
            Address("127.0.0.1", 9092 + self.leader), PRODUCE, 1_000, body
        )
        network.close()
        return int(response.responses[0].partition_responses[0].error_code)


@pytest.mark.row("C17", "C18")
@pytest.mark.parametrize("seed", range(1, 4))
def test_new_leader_refuses_clients_until_a_live_replica_in_sync_has_its_log(seed: int) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        async with Election(cluster) as election:
            assert await election.produced() == ErrorCode.NOT_LEADER_OR_FOLLOWER
            explained = cluster.brokers[election.leader].explain(T0)
            assert explained["replica"]["opening"] == [election.paused]
            assert explained["controller"]["status"] == "opening"
        await cluster.until(lambda: election.row["opening"] is None)
        assert await election.produced() == 0
        await cluster.until(lambda: cluster.isr == {election.leader, election.paused})

    run_leaders(seed, scenario)


@pytest.mark.row("C17", "C18", "C40")
@pytest.mark.key("replica.lag.time.max.ms")
def test_new_leader_opens_without_a_silent_replica_after_the_lag_time() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        began = cluster.clock.now()
        async with Election(cluster) as election:
            opening = cluster.clock.now()
            await cluster.until(lambda: election.row["opening"] is None)
            opened = cluster.clock.now()
            assert opened - began >= LAG_MS
            assert opened - opening <= LAG_MS + 500
            assert await election.produced() == 0
            await cluster.until(lambda: cluster.isr == {election.leader})
        await cluster.until(lambda: cluster.isr == {election.leader, election.paused})

    run_leaders(1, scenario, replica_lag_time_max_ms=LAG_MS)


@pytest.mark.row("C17", "C18")
def test_next_leader_opens_when_a_leader_dies_while_it_is_opening() -> None:
    """The second leader waits in its own epoch, and the first one opens nothing when it returns."""

    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        async with Election(cluster) as election:
            assert cluster.leader == (election.leader, 2)
            cluster.kill_with_session(election.leader)
        await cluster.until(lambda: cluster.leader == (election.paused, 3))
        await cluster.produce(b"b")
        for number in (election.dead, election.leader):
            await cluster.start(number)
        await cluster.until_in_sync()
        assert cluster.leader == (election.paused, 3)
        assert await cluster.consumed() == [b"a", b"b"]

    run_leaders(1, scenario)


@pytest.mark.row("C39")
def test_every_broker_reports_the_requests_that_wait_for_a_broker_that_is_down() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.stop(2)
        plan = TopicPlan("u", b"u" * 16, dict.fromkeys(range(4), (0, 1, 2)), {}, TopicConfig())
        assert await cluster.brokers[0].capabilities.topics.create([plan]) == {}
        for broker in cluster.brokers.values():
            await cluster.until(lambda: broker.describe()["backlog"].get("2") == 4)  # noqa: B023
            assert broker.describe()["metrics"]["TotalQueueSize"] == 4
        await cluster.start(2)
        report = cluster.brokers[0].describe
        await cluster.until(lambda: report()["backlog"].get("2") == 0)

    run_leaders(1, scenario)


async def test_leader_without_descriptors_opens_once_it_has_some() -> None:
    async with MemoryCluster(1, coordination="leaders") as cluster, cluster.client() as client:
        few = FewDescriptors(cluster.storages[0])
        few.fail_all("/data/t-0")
        created = asyncio.ensure_future(client.create_topics(NewTopic("t", 1, 1)))
        await until(lambda: few.failed > 1)
        few.heal()
        await created
        await client.produce("t", [Record(value=b"stored")])
