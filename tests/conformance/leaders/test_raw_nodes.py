"""The nodes of the leader-coordinated mode as another client of ZooKeeper reads them, and requests that it writes."""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster, run_leaders

from minikafka.base.model import TopicPartition
from minikafka.deciders.leaders.model import Operation, StateChange
from minikafka.zookeeper.nodes.leaders import layout, queues

SEEDS = range(1, 4)
ROOT = "/leaders/brokers"


def send(cluster: LeadersCluster, to: int, request: StateChange) -> None:
    """Add a request to the queue of a broker."""
    cluster.ensemble.write([queues.entry(to, request)])


def owner(cluster: LeadersCluster, path: str) -> int:
    """Return the session that owns a node, 0 for a persistent one."""
    return cluster.ensemble.stat(f"{ROOT}/{path}").ephemeral_owner


def topic_id(cluster: LeadersCluster) -> bytes:
    return layout.decode_topic(cluster.node("topics/t") or b"")


async def until_consumed(cluster: LeadersCluster, broker: int) -> None:
    await cluster.until(lambda: not cluster.ensemble.children(f"{ROOT}/state/{broker}"))


def texts(cluster: LeadersCluster, broker: int, fact: str) -> list[str]:
    """Return the sentences of a broker's ledger about one step in the life of requests."""
    return [line["text"] for line in cluster.ledger(broker) if line.get("fact") == fact]


@pytest.mark.row("A1", "A2", "A3", "A4", "B2", "T2")
def test_nodes_of_a_partition_have_the_texts_and_owners_of_the_design() -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.produce(b"a")
        assert cluster.leader is not None
        leader, epoch = cluster.leader
        replicas = [int(id_) for id_ in (cluster.node("topics/t/0/replicas") or b"").split(b",")]
        assert sorted(replicas) == [0, 1, 2]
        assert leader == replicas[0], "the preferred replica leads"
        isr, isr_epoch = (cluster.node("topics/t/0/ISR") or b"").split(b";")
        assert int(isr_epoch) == epoch == 1
        assert sorted(map(int, isr.split(b","))) == [0, 1, 2]
        assert owner(cluster, "topics/t/0/leader") == cluster.sessions[leader].session_id
        assert owner(cluster, "topics/t/0/ISR") == owner(cluster, "topics/t/0/replicas") == 0
        for number, session in cluster.sessions.items():
            assert owner(cluster, f"ids/{number}") == session.session_id
        cluster.kill_with_session(leader)
        assert cluster.node(f"ids/{leader}") is None
        assert cluster.node("topics/t/0/leader") is None
        assert cluster.isr == {0, 1, 2}, "the ISR stays until there is a next leader"
        await cluster.produce(b"b")
        assert cluster.leader is not None
        assert cluster.leader[1] == 2

    run_leaders(1, scenario)


@pytest.mark.row("A6", "C7", "C15")
def test_queue_of_a_stopped_broker_keeps_its_requests_until_the_broker_starts() -> None:
    """The queue exists from the first start on. The request closes a replica of a topic that no longer exists."""

    async def scenario(cluster: LeadersCluster) -> None:
        await cluster.stop(2, controlled=False)
        for path in ("leader", "ISR", "replicas", ""):
            node = f"{ROOT}/topics/t/0/{path}".rstrip("/")
            if node in cluster.ensemble.nodes:
                cluster.ensemble.delete(node)
        former = topic_id(cluster)
        cluster.ensemble.delete(f"{ROOT}/topics/t")
        send(cluster, 2, StateChange(Operation.CLOSE, T0, former, 1, 0))
        await asyncio.sleep(60)
        assert len(cluster.ensemble.children(f"{ROOT}/state/2")) == 1
        assert owner(cluster, "state/2") == 0
        await cluster.start(2)
        await until_consumed(cluster, 2)
        assert T0 not in cluster.brokers[2].replicas.partitions
        assert any("completed close-replica" in text for text in texts(cluster, 2, "completed"))

    run_leaders(1, scenario)


@pytest.mark.row("C6", "C5")
@pytest.mark.parametrize("operation", [Operation.START, Operation.CLOSE])
def test_request_for_a_replica_that_is_not_hosted_is_consumed_without_a_replica(
    operation: Operation,
) -> None:
    async def scenario(cluster: LeadersCluster) -> None:
        elsewhere = TopicPartition("elsewhere", 3)
        send(cluster, 1, StateChange(operation, elsewhere, b"e" * 16, 4, 0))
        await until_consumed(cluster, 1)
        assert elsewhere not in cluster.brokers[1].replicas.partitions
        assert any("elsewhere partition 3" in text for text in texts(cluster, 1, "received"))
        await cluster.produce(b"a")
        assert await cluster.consumed() == [b"a"]

    run_leaders(1, scenario)


@pytest.mark.row("C8", "C41")
@pytest.mark.parametrize("seed", SEEDS)
def test_start_request_of_an_earlier_epoch_or_of_another_sender_has_no_effect(seed: int) -> None:
    """Broker 3 of the list never ran: the request must come from the leader, in the present epoch."""

    async def scenario(cluster: LeadersCluster) -> None:
        assert cluster.leader is not None
        cluster.kill_with_session(cluster.leader[0])
        await cluster.until(lambda: cluster.leader is not None)
        leader, epoch = cluster.leader
        other = next(id_ for id_ in cluster.brokers if id_ != leader)
        before = len(texts(cluster, other, "refused"))
        id_ = topic_id(cluster)
        for sender, stated in ((leader, epoch - 1), (leader, epoch + 1), (other, epoch)):
            send(cluster, other, StateChange(Operation.START, T0, id_, stated, sender))
        send(cluster, other, StateChange(Operation.START, T0, id_, epoch, leader))
        await until_consumed(cluster, other)
        refused = texts(cluster, other, "refused")[before:]
        assert len(refused) == 3
        assert f"the partition has epoch {epoch}" in refused[0]
        assert cluster.leader == (leader, epoch)
        assert texts(cluster, other, "completed")[-1] == (
            f"follower, broker id {other}, completed start-replica for topic t partition 0, "
            f"request from leader {leader}, at epoch {epoch}"
        )

    run_leaders(seed, scenario)
