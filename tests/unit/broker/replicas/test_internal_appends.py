"""Appends of the broker's own coordinators: acknowledged when committed, failed when no commit is possible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.brokers.hosted import T0, T1, Hosted, batch, state
from support.storage.logs import end_marker
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.kafka.records.batch import records
from minikafka.kafka.records.transactions import Marker
from minikafka.simulation.cluster import MemoryCluster


async def lead(
    hosted: Hosted,
    tp: TopicPartition = T0,
    *,
    leader: int = 0,
    epoch: int = 1,
    isr: tuple[int, ...] = (0,),
) -> None:
    assert await hosted.tell(state(tp, leader, epoch, (0, 9), isr)) == [0]


async def written(hosted: Hosted, offset: int, tp: TopicPartition = T0) -> None:
    log = hosted.replicas.partitions[tp].log
    await until(lambda: log.written_log_end_offset == offset)


@pytest.fixture
async def hosted() -> AsyncIterator[Hosted]:
    async with MemoryCluster(1) as cluster:
        yield Hosted(cluster)


async def test_append_returns_the_base_offset_when_no_other_replica_is_in_sync(
    hosted: Hosted,
) -> None:
    await lead(hosted)
    first = hosted.replicas.appends.append(T0, batch(b"a", b"b"))
    second = hosted.replicas.appends.append(T0, batch(b"c"))
    assert await second == 2
    assert await first == 0
    data, _, _ = hosted.replicas.partitions[T0].log.read(0, 1 << 20, 1 << 20)
    assert [record.value for record in records(data)] == [b"a", b"b", b"c"]


async def test_append_waits_for_the_high_watermark(hosted: Hosted) -> None:
    await lead(hosted, isr=(0, 9))
    first = asyncio.ensure_future(hosted.replicas.appends.append(T0, batch(b"a")))
    second = asyncio.ensure_future(hosted.replicas.appends.append(T0, batch(b"b")))
    await written(hosted, 2)
    hosted.follower_has(0)
    assert not first.done()
    hosted.follower_has(1)
    assert await first == 0
    assert not second.done()
    hosted.follower_has(2)
    assert await second == 1


async def test_append_is_written_at_the_end_of_the_event_loop_tick(hosted: Hosted) -> None:
    await lead(hosted)
    appended = hosted.replicas.appends.append(T0, batch(b"a"))
    log = hosted.replicas.partitions[T0].log
    assert (log.log_end_offset, log.written_log_end_offset) == (1, 0)
    hosted.replicas.purgatory.finish_tick(hosted.broker.clock.now())
    assert log.written_log_end_offset == 1
    assert await appended == 0


async def test_append_outside_of_a_tick_is_written_in_the_next_event_loop_iteration(
    hosted: Hosted,
) -> None:
    await lead(hosted)
    appended = hosted.replicas.appends.append(T0, batch(b"a"))
    for _ in range(2):
        await asyncio.sleep(0)
    assert hosted.replicas.partitions[T0].log.written_log_end_offset == 1
    assert await appended == 0


async def test_failed_disk_does_not_fail_appends_to_another_disk() -> None:
    async with MemoryCluster(1, log_dirs="/data,/other") as cluster:
        hosted = Hosted(cluster)
        await lead(hosted, T0)
        await lead(hosted, T1, isr=(0, 9))
        partition = hosted.replicas.partitions[T1]
        elsewhere = [hosted.replicas.appends.append(T1, batch(value)) for value in (b"a", b"b")]
        await written(hosted, 2, T1)
        partition.record_follower_fetch(partition.followers[9], 1, cluster.brokers[0].clock.now())
        hosted.replicas.purgatory.high_watermark_moved(partition)
        hosted.replicas.logs.storage.fail("/data")
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            await hosted.replicas.appends.append(T0, batch(b"c"))
        assert await elsewhere[0] == 0
        hosted.follower_has(2, T1)
        assert await elsewhere[1] == 1


async def test_append_does_not_change_the_bytes_of_the_caller(hosted: Hosted) -> None:
    await lead(hosted, epoch=4)
    data = batch(b"a")
    assert await hosted.replicas.appends.append(T0, data) == 0
    assert await hosted.replicas.appends.append(T0, data) == 1


@pytest.mark.parametrize("change", ["follower", "deleted", "shutdown"])
async def test_append_fails_when_leadership_ends_before_it_is_committed(
    hosted: Hosted, change: str
) -> None:
    await lead(hosted, isr=(0, 9))
    committed = hosted.replicas.appends.append(T0, batch(b"a"))
    appended = hosted.replicas.appends.append(T0, batch(b"b"))
    await written(hosted, 2)
    hosted.follower_has(1)
    if change == "follower":
        await lead(hosted, leader=9, epoch=2, isr=(0, 9))
    elif change == "deleted":
        await hosted.stop(T0, delete=True)
    else:
        await hosted.cluster.stop(0, controlled=False)
    assert await committed == 0
    with pytest.raises(KafkaError) as raised:
        await appended
    assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_append_is_written_before_its_replica_is_deleted(hosted: Hosted) -> None:
    """A write to the files of a deleted replica would fail, and take the whole log directory offline."""
    await lead(hosted)
    appended = hosted.replicas.appends.append(T0, batch(b"a"))
    log = hosted.replicas.partitions[T0].log
    await hosted.stop(T0, delete=True)
    assert log.written_log_end_offset == 1
    assert await appended == 0


async def test_append_is_acknowledged_in_a_later_leader_epoch_of_the_same_leader(
    hosted: Hosted,
) -> None:
    await lead(hosted, isr=(0, 9))
    appended = hosted.replicas.appends.append(T0, batch(b"a"))
    await written(hosted, 1)
    await lead(hosted, epoch=2, isr=(0,))
    assert await appended == 0


async def test_append_fails_when_the_isr_falls_below_its_minimum() -> None:
    async with MemoryCluster(1, min_insync_replicas=2) as cluster:
        hosted = Hosted(cluster)
        await lead(hosted, isr=(0, 9))
        appended = hosted.replicas.appends.append(T0, batch(b"a"))
        await written(hosted, 1)
        await lead(hosted, epoch=2, isr=(0,))
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
            await appended
        with pytest.raises(KafkaError) as raised:
            await hosted.replicas.appends.append(T0, batch(b"b"))
        assert raised.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_append_is_refused_with_the_error_code_of_a_produce_request(hosted: Hosted) -> None:
    await lead(hosted, leader=9, isr=(0, 9))
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    await lead(hosted, T1)
    for tp, data, code in (
        (T0, batch(b"a"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (TopicPartition("none", 0), batch(b"a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T1, batch(bytes(2 << 20)), ErrorCode.MESSAGE_TOO_LARGE),
        (T1, bytes(broken), ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as raised:
            await hosted.replicas.appends.append(tp, data)
        assert raised.value.code == code


async def test_append_fails_with_a_storage_error_when_the_disk_fails(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead(hosted)
    await lead(hosted, T1, isr=(0, 9))
    log = hosted.replicas.partitions[T0].log
    await hosted.replicas.appends.append(T0, batch(b"a"))  # creates the log's file

    def refuse(*_: Any) -> int:
        raise StorageFailed(log.directory, OSError("no space"))

    elsewhere = asyncio.ensure_future(hosted.replicas.appends.append(T1, batch(b"x")))
    await written(hosted, 1, T1)
    monkeypatch.setattr(log._active.file, "pwritev", refuse)
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            await hosted.replicas.appends.append(T0, batch(b"a"))
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):  # T1 is in the same failed directory
        await elsewhere


async def test_cancelled_append_does_not_affect_other_appends(hosted: Hosted) -> None:
    await lead(hosted, isr=(0, 9))

    async def append(value: bytes) -> int:
        return await hosted.replicas.appends.append(T0, batch(value))

    first, second = asyncio.ensure_future(append(b"a")), asyncio.ensure_future(append(b"b"))
    await written(hosted, 2)
    first.cancel()
    await asyncio.wait([first])
    hosted.follower_has(2)
    assert await second == 1


async def test_marker_of_a_transaction_is_reported_once_it_is_committed(hosted: Hosted) -> None:
    reported: list[tuple[TopicPartition, Marker]] = []
    hosted.replicas.appends.on_marker.append(lambda tp, marker: reported.append((tp, marker)))
    await lead(hosted, isr=(0, 9))
    for commit in (True, False):
        hosted.replicas.appends.append(T0, bytes(end_marker(commit=commit)))
    appended = hosted.replicas.appends.append(T0, batch(b"a"))
    await written(hosted, 3)
    assert reported == []
    hosted.follower_has(1)
    assert reported == [(T0, Marker(7, committed=True))]
    hosted.follower_has(3)
    assert reported[1:] == [(T0, Marker(7, committed=False))]
    assert await appended == 2
