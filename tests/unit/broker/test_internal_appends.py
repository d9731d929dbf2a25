"""Appends of the broker's own coordinators: acknowledged when they are committed, failed when they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.memory_cluster import MemoryCluster
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.base.model import (
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
)
from minikafka.broker.replicas import ReplicaManager
from minikafka.record.batch import Record, build, records

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 100


def batch(*values: bytes) -> bytes:
    return bytes(build([Record(0, 1000, None, value, ()) for value in values]))


class Hosted:
    """One broker whose controller is played by the test. Broker 9 is a follower that the test plays too."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[0]

    @property
    def replicas(self) -> ReplicaManager:
        return self.broker.replicas

    async def lead(
        self,
        tp: TopicPartition = T0,
        *,
        leader: int = 0,
        epoch: int = 1,
        isr: tuple[int, ...] = (0,),
    ) -> None:
        state = PartitionState(tp, leader, epoch, isr, 5, EPOCH, (0, 9), is_new=True)
        info = self.broker.info
        answer = await self.replicas.handle(
            LeaderAndIsrRequest(0, EPOCH, info.epoch, (state,), (info,), ())
        )
        assert [code for _, code in answer.partitions] == [0]

    async def stop(self, tp: TopicPartition = T0) -> None:
        partitions = (StopReplicaPartition(tp, -1, True),)
        await self.replicas.handle(StopReplicaRequest(0, EPOCH, self.broker.info.epoch, partitions))

    def follower_has(self, offset: int, tp: TopicPartition = T0) -> None:
        """Broker 9 fetches from this offset."""
        partition, now = self.replicas.partitions[tp], self.broker.clock.now()
        if partition.record_follower_fetch(partition.followers[9], offset, now):
            self.replicas.purgatory.high_watermark_moved(partition)
        self.replicas.purgatory.finish_tick(now)

    async def written(self, offset: int, tp: TopicPartition = T0) -> None:
        log = self.replicas.partitions[tp].log
        await until(lambda: log.written_log_end_offset == offset)


@pytest.fixture
async def hosted() -> AsyncIterator[Hosted]:
    async with MemoryCluster(1) as cluster:
        yield Hosted(cluster)


async def test_append_returns_the_base_offset_when_nobody_else_is_in_sync(hosted: Hosted) -> None:
    await hosted.lead()
    first = hosted.replicas.append(T0, batch(b"a", b"b"))
    second = hosted.replicas.append(T0, batch(b"c"))
    assert await second == 2
    assert await first == 0
    data, _, _ = hosted.replicas.partitions[T0].log.read(0, 1 << 20, 1 << 20)
    assert [record.value for record in records(data)] == [b"a", b"b", b"c"]


async def test_append_waits_for_the_high_watermark(hosted: Hosted) -> None:
    await hosted.lead(isr=(0, 9))
    first = asyncio.ensure_future(hosted.replicas.append(T0, batch(b"a")))
    second = asyncio.ensure_future(hosted.replicas.append(T0, batch(b"b")))
    await hosted.written(2)
    hosted.follower_has(0)
    assert not first.done()
    hosted.follower_has(1)
    assert await first == 0
    assert not second.done()
    hosted.follower_has(2)
    assert await second == 1


async def test_append_inside_of_a_tick_is_written_at_its_end(hosted: Hosted) -> None:
    await hosted.lead()
    appended = hosted.replicas.append(T0, batch(b"a"))
    log = hosted.replicas.partitions[T0].log
    assert (log.log_end_offset, log.written_log_end_offset) == (1, 0)
    hosted.replicas.purgatory.finish_tick(hosted.broker.clock.now())
    assert log.written_log_end_offset == 1
    assert await appended == 0


async def test_append_does_not_change_the_bytes_of_the_caller(hosted: Hosted) -> None:
    await hosted.lead(epoch=4)
    data = batch(b"a")
    assert await hosted.replicas.append(T0, data) == 0
    assert await hosted.replicas.append(T0, data) == 1


@pytest.mark.parametrize("change", ["follower", "deleted", "shutdown"])
async def test_append_fails_when_leadership_ends_before_it_is_committed(
    hosted: Hosted, change: str
) -> None:
    await hosted.lead(isr=(0, 9))
    committed = hosted.replicas.append(T0, batch(b"a"))
    appended = hosted.replicas.append(T0, batch(b"b"))
    await hosted.written(2)
    hosted.follower_has(1)
    if change == "follower":
        await hosted.lead(leader=9, epoch=2, isr=(0, 9))
    elif change == "deleted":
        await hosted.stop()
    else:
        await hosted.cluster.stop(0, controlled=False)
    assert await committed == 0
    with pytest.raises(KafkaError) as raised:
        await appended
    assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_append_survives_a_new_epoch_of_the_same_leader(hosted: Hosted) -> None:
    await hosted.lead(isr=(0, 9))
    appended = hosted.replicas.append(T0, batch(b"a"))
    await hosted.written(1)
    await hosted.lead(epoch=2, isr=(0,))
    assert await appended == 0


async def test_append_fails_when_the_isr_falls_below_its_minimum() -> None:
    async with MemoryCluster(1, min_insync_replicas=2) as cluster:
        hosted = Hosted(cluster)
        await hosted.lead(isr=(0, 9))
        appended = hosted.replicas.append(T0, batch(b"a"))
        await hosted.written(1)
        await hosted.lead(epoch=2, isr=(0,))
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
            await appended
        with pytest.raises(KafkaError) as raised:
            await hosted.replicas.append(T0, batch(b"b"))
        assert raised.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_append_is_refused_with_the_code_of_a_produce(hosted: Hosted) -> None:
    await hosted.lead(leader=9, isr=(0, 9))
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    await hosted.lead(T1)
    for tp, data, code in (
        (T0, batch(b"a"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (TopicPartition("none", 0), batch(b"a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T1, batch(bytes(2 << 20)), ErrorCode.MESSAGE_TOO_LARGE),
        (T1, bytes(broken), ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as raised:
            await hosted.replicas.append(tp, data)
        assert raised.value.code == code


async def test_append_fails_with_a_storage_error_when_the_disk_does(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hosted.lead()
    await hosted.lead(T1, isr=(0, 9))
    log = hosted.replicas.partitions[T0].log

    def refuse(*_: Any) -> int:
        raise StorageFailed(log.directory, OSError("no space"))

    elsewhere = asyncio.ensure_future(hosted.replicas.append(T1, batch(b"x")))
    await hosted.written(1, T1)
    monkeypatch.setattr(log._active.file, "pwritev", refuse)
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            await hosted.replicas.append(T0, batch(b"a"))
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):  # its replica is in the same directory
        await elsewhere


async def test_cancelled_append_does_not_disturb_the_others(hosted: Hosted) -> None:
    await hosted.lead(isr=(0, 9))

    async def append(value: bytes) -> int:
        return await hosted.replicas.append(T0, batch(value))

    first, second = asyncio.ensure_future(append(b"a")), asyncio.ensure_future(append(b"b"))
    await hosted.written(2)
    first.cancel()
    await asyncio.wait([first])
    hosted.follower_has(2)
    assert await second == 1
