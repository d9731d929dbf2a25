"""Whole brokers in memory: queues that another program has written to, and reads that fail."""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

from minikafka.base.errors import OutcomeUnknown
from minikafka.deciders.leaders.model import Operation, StateChange
from minikafka.zookeeper.nodes.leaders import layout

QUEUE = "/leaders/brokers/state/2"


@pytest.mark.row("C1", "C5")
@pytest.mark.parametrize("name", ["q-0000000000", "q-forged", "lock-0000000003"])
def test_broker_starts_although_its_queue_has_an_entry_that_nobody_can_read(name: str) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.stop(2)
        cluster.ensemble.put(f"{QUEUE}/{name}", b"garbage")
        await asyncio.wait_for(cluster.start(2), 60)
        await cluster.until_in_sync()

    run_leaders(1, scenario)


@pytest.mark.row("C7", "C41")
def test_forged_close_of_a_hosted_replica_deletes_nothing_and_is_consumed() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        topic_id = layout.decode_topic(cluster.ensemble.nodes["/leaders/brokers/topics/t"].data)
        for id_ in (topic_id, None, bytes(16)):
            request = StateChange(Operation.CLOSE, T0, id_, 2**31 - 1, 0)
            await cluster.sessions[0].create(
                f"{QUEUE}/q-", layout.encode_request(request), sequential=True
            )
        await cluster.until(lambda: not cluster.ensemble.nodes[QUEUE].children)
        assert T0 in cluster.brokers[2].replicas.partitions
        await cluster.produce(b"b")
        await cluster.until_in_sync()
        assert await cluster.consumed() == [b"a", b"b"]
        assert cluster.brokers[2].replicas.partitions[T0].log.log_end_offset == 2

    run_leaders(1, scenario)


@pytest.mark.row("C31")
def test_reassignment_completes_without_a_close_to_a_broker_that_has_no_queue() -> None:
    """Broker 9 was assigned by hand, and has never started."""

    async def scenario(cluster: LeadersCluster) -> None:
        cluster.ensemble.put("/leaders/brokers/topics/t/0/replicas", b"0,1,2,9")
        cluster.ensemble.put("/leaders/brokers/partitions_reassigned/t/0", b"0,1,2")
        await cluster.until(lambda: cluster.node("topics/t/0/replicas") == b"0,1,2")
        assert cluster.node("partitions_reassigned/t/0") is None
        assert "/leaders/brokers/state/9" not in cluster.ensemble.nodes

    run_leaders(1, scenario)


@pytest.mark.row("C35")
def test_broker_starts_again_in_its_new_session_although_reads_of_zookeeper_fail() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        session = cluster.sessions[2]
        await session.expire()
        session.failures = [OutcomeUnknown("no answer") for _ in range(8)]
        await session.attach()
        await cluster.until(lambda: "/leaders/brokers/ids/2" in cluster.ensemble.nodes)
        await cluster.produce(b"a")
        await cluster.until_in_sync()

    run_leaders(1, scenario)
