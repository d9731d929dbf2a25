"""The report of one partition for `minikafka why`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.clients.transactional_client import TransactionalProducer

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Call
from minikafka.broker.reports.partition_report import leaders_of, partition_asked
from minikafka.broker.rpc.messages import EXPLAIN, EXPLAIN_GROUP, PLAN
from minikafka.client import NewTopic
from minikafka.simulation.cluster import MemoryCluster

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(3) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 3))
        yield cluster


async def explain(cluster: MemoryCluster, broker: Any, tp: TopicPartition = T0) -> dict[str, Any]:
    found = await broker.on_call(Call(EXPLAIN, {"topic": tp.topic, "partition": tp.partition}))
    json.dumps(found)
    return dict(found)


def leader(cluster: MemoryCluster) -> Any:
    return next(
        b for b in cluster.brokers.values() if (p := b.replicas.partition(T0)) and p.is_leader
    )


async def test_leader_reports_the_offset_of_every_follower(cluster: MemoryCluster) -> None:
    broker = leader(cluster)

    async def fetched() -> bool:
        replica = (await explain(cluster, broker))["replica"]
        return all(follower["log_end_offset"] == 0 for follower in replica["followers"])

    while not await fetched():
        await broker.clock.sleep(5)
    replica = (await explain(cluster, broker))["replica"]
    assert (replica["role"], len(replica["followers"]), replica["pending_isr"]) == (
        "leader",
        2,
        None,
    )
    assert all(follower["last_fetch_ms"] >= 0 for follower in replica["followers"])


async def test_report_has_a_controller_section_only_on_the_active_controller(
    cluster: MemoryCluster,
) -> None:
    views = [await explain(cluster, broker) for broker in cluster.brokers.values()]
    ruling = [view["controller"] for view in views if view["controller"]]
    assert [view["partition"]["leader"] for view in ruling] == [leader(cluster).config.broker_id]
    assert all(view["settings"]["unclean.leader.election.enable"] is False for view in views)


async def test_replica_and_metadata_of_an_unknown_partition_are_reported_as_none(
    cluster: MemoryCluster,
) -> None:
    found = await explain(cluster, leader(cluster), TopicPartition("u", 0))
    assert (found["replica"], found["metadata"]) == (None, None)
    assert "min.insync.replicas" not in found["settings"]


async def test_active_controller_answers_a_request_for_the_plan_of_killing_a_broker(
    cluster: MemoryCluster,
) -> None:
    ruling = next(b for b in cluster.brokers.values() if b.capabilities.diagnostics.is_active)
    victim = next(id_ for id_ in cluster.brokers if id_ != ruling.config.broker_id)
    found = await ruling.on_call(Call(PLAN, {"operation": "kill-broker", "broker": victim}))
    assert any(line["kind"] == "request" for line in found["lines"])


@pytest.mark.parametrize("body", [{}, {"topic": "t"}, {"topic": 1, "partition": 0}])
def test_report_request_without_a_valid_topic_and_partition_is_refused(
    body: dict[str, Any],
) -> None:
    with pytest.raises(KafkaError) as refused:
        partition_asked(body)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_group_report_of_a_broker_that_is_not_the_coordinator_is_an_error(
    cluster: MemoryCluster,
) -> None:
    broker = leader(cluster)
    found = await broker.on_call(Call(EXPLAIN_GROUP, {"group": "g"}))
    assert found["error"] == ErrorCode.NOT_COORDINATOR
    assert (found["group"], found["leaders"]) == (None, [])
    with pytest.raises(KafkaError, match="name a group"):
        await broker.on_call(Call(EXPLAIN_GROUP, {"group": 7}))


async def test_group_report_names_the_leaders_of_subscribed_or_committed_partitions(
    cluster: MemoryCluster,
) -> None:
    broker = leader(cluster)
    mine = [["t", 0, broker.config.broker_id]]
    for topics, offsets in ((["t"], []), (None, [["t", 0, 5, 1]]), ([], [["t", 0, 5, 1]])):
        report = {"topics": topics, "offsets": offsets}
        assert leaders_of(broker.metadata, report) == mine
    assert leaders_of(broker.metadata, {"topics": ["other"], "offsets": []}) == []


async def test_leader_and_coordinator_report_an_open_transaction() -> None:
    config = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
    async with MemoryCluster(3, **config) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 3))
        producer = TransactionalProducer(cluster, "pay")
        await producer.init()
        await producer.produce(T0, b"1")
        await producer.end()
        start = await producer.produce(T0, b"2")
        await cluster.clock.sleep(50)
        replica = (await explain(cluster, leader(cluster)))["replica"]
        assert (replica["last_stable_offset"], replica["high_watermark"]) == (start, start + 1)
        (in_log,) = replica["open_transactions"]
        assert in_log.pop("last_record_ms") >= 50
        assert in_log == {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "start_offset": start,
        }
        answers = [await explain(cluster, broker) for broker in cluster.brokers.values()]
        (known,) = [one for answer in answers for one in answer["transactions"]["open"]]
        assert known.pop("age_ms") >= 50
        assert known.pop("client").startswith("tester at 127.0.0.1:")
        assert known.pop("coordinator_epoch") >= 0
        assert known == {
            "transactional_id": "pay",
            "producer_id": producer.producer_id,
            "state": "Ongoing",
            "timeout_ms": 60_000,
        }
        producer.close()
