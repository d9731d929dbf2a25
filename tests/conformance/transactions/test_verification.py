"""Leaders that ask coordinators on other brokers before they append the first batch of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.clients.group_client import GroupClient, Unanswered
from support.clients.transactional_client import MustAbort, TransactionalProducer

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SMALL = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 1}
Scenario = Callable[[MemoryCluster], Coroutine[Any, Any, None]]


def run(scenario: Scenario, **config: object) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **{**SMALL, **config}) as cluster, cluster.client() as user:
            assignment = {number: (number, (number + 1) % 3) for number in range(3)}
            await user.admin.create_topics([NewTopic("t", assignment=assignment)])
            await scenario(cluster)

    run_seeded(1, scene())


def ends(cluster: MemoryCluster) -> list[int]:
    """Return the log end offset of each partition at its leader."""
    return [
        partition.log.log_end_offset
        for tp in PARTITIONS
        for broker in cluster.brokers.values()
        if (partition := broker.replicas.partition(tp)) is not None and partition.is_open
    ]


def test_leaders_on_every_broker_refuse_a_partition_outside_the_transaction() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "x")
        await producer.init()
        for tp in PARTITIONS:
            row = await producer.send_batch(tp, 0, [b"1"])
            assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE
        await producer.produce(PARTITIONS[0], b"1")
        for tp in PARTITIONS[1:]:
            row = await producer.send_batch(tp, 0, [b"1"])
            assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert ends(cluster) == [1, 0, 0]
        await producer.end()
        producer.close()

    run(scenario)


def test_late_batch_of_an_ended_transaction_is_refused() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "x")
        await producer.init()
        for tp in PARTITIONS:
            await producer.produce(tp, b"1")
        await producer.end()
        for tp in PARTITIONS:
            row = await producer.send_batch(tp, 1, [b"late"])
            assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE
        producer.close()

    run(scenario)


@pytest.mark.key("transaction.partition.verification.enable")
def test_unverified_batches_are_appended_if_verification_is_disabled() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "x")
        await producer.init()
        for tp in PARTITIONS:
            assert not (await producer.send_batch(tp, 0, [b"1"])).error_code
        producer.close()

    run(scenario, transaction_partition_verification_enable=False)


def test_producer_goes_on_when_its_coordinator_dies_before_the_verification() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "x")
        await producer.init()
        await producer.add(*PARTITIONS)
        coordinator, _ = await producer.find()
        cluster.kill_with_session(coordinator)
        for tp in PARTITIONS:
            await producer.produce(tp, b"1")
        await producer.end()
        producer.close()

    run(scenario)


def test_other_connections_produce_while_one_waits_for_a_coordinator() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "x")
        await producer.init()
        await producer.add(*PARTITIONS)
        coordinator, _ = await producer.find()
        tp = next(tp for tp in PARTITIONS if tp.partition != coordinator)
        cluster.control_delay = lambda: 2
        waiting = cluster.clock.now()
        sending = asyncio.get_running_loop().create_task(producer.produce(tp, b"1"))
        async with cluster.client() as user:
            await user.produce("t", [Record(value=b"1")], partition=tp.partition)
        assert cluster.clock.now() - waiting < 1_000
        await sending
        assert cluster.clock.now() - waiting >= 2_000
        cluster.control_delay = lambda: 0
        await producer.end()
        producer.close()

    run(scenario)


def test_offsets_of_a_group_outside_the_transaction_are_refused() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "x")
        await producer.init()
        group = GroupClient(cluster, "g")
        producer.added.add("g")
        with pytest.raises((MustAbort, Unanswered)) as refusal:
            await producer.commit_offsets(group, {("t", 0): 1})
        assert refusal.value.args == (ErrorCode.TRANSACTION_ABORTABLE,)
        assert await group.committed() == {}
        group.close()
        producer.close()

    run(scenario)
