"""Transactions of one producer on three whole brokers: what read_committed consumers see, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.clients.group_client import GroupClient, Member
from support.clients.transactional_client import (
    CommittedReader,
    Fenced,
    MustAbort,
    TransactionalProducer,
    committed_values,
)

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.wire.versions import OFFSET_FETCH
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
SMALL = {
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
}
Scenario = Callable[[MemoryCluster], Coroutine[Any, Any, None]]


def run(scenario: Scenario, seed: int = 1, **config: object) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **{**SMALL, **config}) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("a", 2, 3), NewTopic("b", 2, 3)])
            await scenario(cluster)

    run_seeded(seed, scene())


async def values_of(cluster: MemoryCluster, *partitions: TopicPartition) -> list[list[bytes]]:
    return [await committed_values(cluster, tp) for tp in partitions]


async def until_visible(cluster: MemoryCluster, tp: TopicPartition, count: int) -> list[bytes]:
    """Return the committed values of a partition as soon as there are `count`."""
    reader = CommittedReader(cluster, tp)
    values: list[bytes] = []
    while len(values) < count:
        values += [value for _, value in await reader.poll()]
        await cluster.clock.sleep(10)
    reader.close()
    return values


def test_committed_transaction_is_visible_in_all_its_partitions() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "tx")
        await producer.init()
        await producer.produce(A, b"1", b"2")
        await producer.produce(B, b"3")
        assert await values_of(cluster, A, B) == [[], []]
        await producer.end()
        assert await until_visible(cluster, A, 2) == [b"1", b"2"]
        assert await until_visible(cluster, B, 1) == [b"3"]
        producer.close()

    run(scenario)


def test_aborted_transaction_is_never_visible() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "tx")
        await producer.init()
        await producer.produce(A, b"1", b"2")
        await producer.produce(B, b"3")
        await producer.end(commit=False)
        await producer.produce(A, b"4")
        await producer.produce(B, b"5")
        await producer.end()
        assert await until_visible(cluster, A, 1) == [b"4"]
        assert await until_visible(cluster, B, 1) == [b"5"]
        everything = CommittedReader(cluster, A, isolation=0)
        assert await everything.rest() == [b"1", b"2", b"4"]
        everything.close()
        producer.close()

    run(scenario)


def test_later_producer_fences_the_earlier_one_and_aborts_its_transaction() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        zombie, producer = (TransactionalProducer(cluster, "tx", home) for home in (0, 1))
        await zombie.init()
        await zombie.produce(A, b"zombie")
        await producer.init()
        assert producer.producer_id == zombie.producer_id
        assert producer.producer_epoch > zombie.producer_epoch
        with pytest.raises(Fenced):
            await zombie.produce(A, b"zombie")
        with pytest.raises(Fenced):
            await zombie.end()
        await producer.produce(A, b"1")
        await producer.end()
        assert await until_visible(cluster, A, 1) == [b"1"]
        zombie.close()
        producer.close()

    run(scenario)


def test_offsets_are_visible_together_with_the_commit() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer, group = TransactionalProducer(cluster, "tx"), GroupClient(cluster, "g")
        await producer.init()
        await producer.produce(A, b"1")
        await producer.commit_offsets(group, {("b", 0): 5})
        assert await group.committed() == {}
        assert await stable_offset(group, "b") == ErrorCode.UNSTABLE_OFFSET_COMMIT
        await producer.end()
        assert await until_visible(cluster, A, 1) == [b"1"]
        while await stable_offset(group, "b") == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await cluster.clock.sleep(10)
        assert await group.committed() == {("b", 0): 5}
        await producer.commit_offsets(group, {("b", 0): 6})
        await producer.end(commit=False)
        while await stable_offset(group, "b") == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await cluster.clock.sleep(10)
        assert await group.committed() == {("b", 0): 5}
        producer.close()
        group.close()

    run(scenario)


def test_s110_offsets_outside_of_the_transaction_are_refused() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer, group = TransactionalProducer(cluster, "tx"), GroupClient(cluster, "g")
        await producer.init()
        await producer.produce(A, b"1")
        producer.added.add("g")  # without AddOffsetsToTxn
        with pytest.raises(MustAbort) as refused:
            await producer.commit_offsets(group, {("b", 0): 5})
        assert refused.value.args == (ErrorCode.TRANSACTION_ABORTABLE,)
        assert await stable_offset(group, "b") == -1
        await producer.end()
        assert await until_visible(cluster, A, 1) == [b"1"]
        producer.close()
        group.close()

    run(scenario)


def test_zombie_consumer_cannot_commit_offsets_in_a_transaction() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer, zombie = TransactionalProducer(cluster, "tx"), Member(cluster, "g")
        await producer.init()
        await zombie.join()
        await producer.produce(A, b"1")
        offsets = {("b", 0): 5}
        stale = zombie.generation - 1
        for generation, member_id, error in (
            (stale, zombie.member_id, ErrorCode.ILLEGAL_GENERATION),
            (zombie.generation, "another", ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            with pytest.raises(MustAbort) as refused:
                await producer.commit_offsets(zombie, offsets, generation, member_id)
            assert refused.value.args == (error,)
        await producer.commit_offsets(zombie, offsets, zombie.generation, zombie.member_id)
        await producer.end()
        await until_visible(cluster, A, 1)
        while await stable_offset(zombie, "b") == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await cluster.clock.sleep(10)
        assert await zombie.committed() == offsets
        producer.close()
        zombie.close()

    run(scenario)


async def stable_offset(group: GroupClient, topic: str) -> int:
    """Return the committed offset of partition 0 for a client that requires stable offsets, or the error code."""
    asked = [{"group_id": group.group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    answer = await group.ask(OFFSET_FETCH, groups=asked, require_stable=True)
    found = answer.groups[0].topics[0].partitions[0]
    return int(found.error_code or found.committed_offset)


def test_transaction_that_times_out_is_aborted_and_its_producer_is_fenced() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        producer = TransactionalProducer(cluster, "tx")
        await producer.init(timeout_ms=5_000)
        await producer.produce(A, b"late")
        reader = CommittedReader(cluster, A)
        assert await reader.end() == 0
        await cluster.clock.sleep(20_000)
        assert await reader.end() == 2
        with pytest.raises(Fenced):
            await producer.end()
        assert await reader.rest() == []
        reader.close()
        producer.close()

    run(scenario)


def test_several_producers_commit_side_by_side() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async def produce(number: int) -> None:
            producer = TransactionalProducer(cluster, f"tx-{number}", number)
            await producer.init()
            for round_ in range(3):
                for tp in (A, B):
                    await producer.produce(tp, b"%d %d" % (number, round_))
                await producer.end(commit=round_ != 1)
            producer.close()

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(produce(number))
        expected = [b"%d %d" % (number, round_) for number in range(5) for round_ in (0, 2)]
        for tp in (A, B):
            values = await until_visible(cluster, tp, len(expected))
            assert sorted(values) == expected
            for number in range(5):
                mine = [value for value in values if value.startswith(b"%d " % number)]
                assert mine == sorted(mine)

    run(scenario)
