"""Produce on one connection: appended and refused batches, and the order of the responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.brokers.produce_connection import T0, T1, VERSION, Connected
from support.until import until

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker import turns as scheduler
from minikafka.broker.produce.handler import LARGE_STEP
from minikafka.broker.reports.partition_report import row_of
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.codec import encode_request, request
from minikafka.kafka.wire.produce import ELEMENTS_MAX, STEP_ELEMENTS
from minikafka.kafka.wire.versions import PRODUCE
from minikafka.simulation.cluster import MemoryCluster


@pytest.fixture
async def connected() -> AsyncIterator[Connected]:
    async with MemoryCluster(1) as cluster:
        yield Connected(cluster)


@pytest.mark.parametrize("also", [(), (T0,)], ids=["alone", "with another partition"])
async def test_batches_are_refused_until_the_response_to_an_earlier_refused_batch_is_sent(
    connected: Connected, also: tuple[TopicPartition, ...]
) -> None:
    """A later batch must not be appended before the client has sent the refused batch again."""
    await connected.lead(T0, 0, 1, 0, 9)
    await connected.lead(T1, 9, 1, 0, 9)
    connected.produce(T0)  # waits for broker 9; every later response waits behind it
    connected.produce(T1, *also)
    await connected.lead(T1, 0, 2, 0)
    connected.produce(T1)
    connected.produce(T1, *also)
    assert connected.answered == []
    assert connected.end_of(T1) == 0
    await connected.lead(T0, 0, 2, 0)
    await until(lambda: connected.answered != [])
    refused = {T1: ErrorCode.NOT_LEADER_OR_FOLLOWER} | dict.fromkeys(also, ErrorCode.NONE)
    assert connected.answered == [{T0: 0}, refused, {T1: refused[T1]}, refused]
    connected.produce(T1)
    assert connected.answered[-1] == {T1: ErrorCode.NONE}
    assert connected.end_of(T1) == 1


@pytest.mark.parametrize("also", [(), (T0,)], ids=["alone", "with another partition"])
async def test_producers_batches_are_refused_until_it_resends_its_first_refused_batch(
    connected: Connected, also: tuple[TopicPartition, ...]
) -> None:
    """A client can send more batches before it reads the error. Without refusals, the log would append them."""
    await connected.lead(T0, 0, 0, 0)
    first, second, third = ((9, 0, sequence) for sequence in range(3))
    connected.produce(T1, *also, producer=first)
    assert connected.answered[-1][T1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await connected.lead(T1, 0, 0, 0)
    connected.produce(T1, producer=second)
    connected.produce(T1, producer=third)
    refused = {T1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert connected.answered[-2:] == [refused, refused]
    connected.produce(T1, producer=(8, 0, 0))
    assert connected.answered[-1] == {T1: ErrorCode.NONE}, "another producer's"
    connected.produce(T1, producer=first)
    connected.produce(T1, producer=second)
    connected.produce(T1, producer=third)
    assert connected.answered[-3:] == [{T1: ErrorCode.NONE}] * 3
    assert connected.end_of(T1) == 4


async def test_batch_after_a_sequence_gap_is_refused_until_the_missing_batch_is_resent(
    connected: Connected,
) -> None:
    """After the response, the log itself refuses later batches: it knows the producer and finds the sequence gap."""
    await connected.lead(T0, 0, 0, 0)
    connected.produce(T0, producer=(9, 0, 0))
    await connected.lead(T0, 9, 1, 0, 9)
    connected.produce(T0, producer=(9, 0, 1))
    assert connected.answered[-1] == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    await connected.lead(T0, 0, 2, 0)
    connected.produce(T0, producer=(9, 0, 2))
    assert connected.answered[-1] == {T0: ErrorCode.LEADER_NOT_AVAILABLE}, "it comes too early"
    connected.produce(T0, producer=(9, 0, 1))
    connected.produce(T0, producer=(9, 0, 2))
    assert connected.answered[-2:] == [{T0: ErrorCode.NONE}] * 2
    assert connected.api.refused == {}


def commit(connected: Connected, tp: TopicPartition, offset: int) -> None:
    """Let broker 9 acknowledge the records below the offset."""
    partition, now = connected.replicas.partitions[tp], connected.broker.clock.now()
    if partition.record_follower_fetch(partition.followers[9], offset, now):
        connected.replicas.purgatory.high_watermark_moved(partition)
    connected.replicas.purgatory.finish_tick(now)


@pytest.mark.parametrize("also", [(), (T0,)], ids=["alone", "with another partition"])
async def test_truncated_record_is_not_acknowledged_by_the_record_that_replaces_it(
    connected: Connected, also: tuple[TopicPartition, ...]
) -> None:
    """The response waits behind the response for another partition on the same connection."""
    await connected.lead(T0, 0, 1, 0, 9)
    await connected.lead(T1, 0, 1, 0, 9)
    connected.produce(T0)
    connected.produce(T1)
    connected.produce(T1, *also)
    commit(connected, T1, 1)
    await connected.lead(T1, 9, 2, 0, 9)
    partition = connected.replicas.partitions[T1]
    partition.truncate_to(1)
    other = build([Record(0, 1000, None, b"another", ())], base_offset=1, leader_epoch=2)
    buf = bytearray(other)
    partition.log.append_replicated(buf, memoryview(buf), 0, len(buf))
    partition.follow_high_watermark(2)
    commit(connected, T0, 1 + len(also))
    refused = {T1: int(ErrorCode.NOT_LEADER_OR_FOLLOWER)} | dict.fromkeys(also, 0)
    assert connected.answered == [{T0: 0}, {T1: 0}, refused]


async def test_partition_counts_and_fails_a_waiting_produce_behind_an_unsent_response(
    connected: Connected,
) -> None:
    await connected.lead(T0, 0, 1, 0, 9)
    await connected.lead(T1, 0, 1, 0, 9)
    connected.produce(T0)
    connected.produce(T1)
    connected.produce(T1)
    commit(connected, T1, 1)
    partition = connected.replicas.partitions[T1]
    assert row_of(partition, lambda _: None)["waiting_produces"] == 1
    partition.fail_produces(int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    commit(connected, T0, 1)
    assert connected.answered[1:] == [{T1: 0}, {T1: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}]


async def test_produce_waiter_is_removed_when_its_records_commit_or_its_connection_closes(
    connected: Connected,
) -> None:
    await connected.lead(T0, 0, 1, 0, 9)
    await connected.lead(T1, 0, 1, 0, 9)
    waiting = [connected.replicas.partitions[tp].produce_waiting for tp in (T0, T1)]
    connected.produce(T0)
    connected.produce(T1)
    commit(connected, T1, 1)
    assert [len(waiters) for waiters in waiting] == [1, 0]
    connected.produce(T0, T1)
    connected.api.answers.close()
    assert [len(waiters) for waiters in waiting] == [0, 0]
    assert connected.answered == []


async def test_append_time_is_returned_only_after_the_topic_changes_to_log_append_time(
    connected: Connected,
) -> None:
    await connected.lead(T0, 0, 1, 0)
    connected.produce(T0)
    connected.produce(T0)
    partition = connected.replicas.partitions[T0]
    partition.configure(replace(partition.log.config, message_timestamp_type="LogAppendTime"))
    connected.produce(T0)
    assert [time >= 0 for time in connected.append_times] == [False, False, True]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("also", [(), (T1,)], ids=["alone", "with another partition"])
async def test_records_are_not_acknowledged_when_the_write_fails(
    connected: Connected, also: tuple[TopicPartition, ...], acks: int
) -> None:
    await connected.lead(T0, 0, 1, 0)
    await connected.lead(T1, 0, 1, 0)
    connected.produce(T0, *also, acks=acks)
    connected.broker.logs.storage.fail(connected.broker.config.log_dirs[0])
    connected.produce(T0, *also, acks=acks)
    both = (T0, *also)
    assert connected.answered == [
        dict.fromkeys(both, 0),
        dict.fromkeys(both, int(ErrorCode.KAFKA_STORAGE_ERROR)),
    ]


@pytest.mark.row("R34")
@pytest.mark.parametrize("also", [(), (T1,)], ids=["alone", "with another partition"])
async def test_produce_with_invalid_acks_is_refused(
    connected: Connected, also: tuple[TopicPartition, ...]
) -> None:
    await connected.lead(T0, 0, 1, 0)
    await connected.lead(T1, 0, 1, 0)
    connected.produce(T0, *also, acks=2)
    assert connected.answered == [dict.fromkeys((T0, *also), int(ErrorCode.INVALID_REQUIRED_ACKS))]
    assert connected.end_of(T0) == 0


@pytest.mark.parametrize("known", [False, True], ids=["first request", "known head"])
@pytest.mark.parametrize("also", [(), (T1,)], ids=["alone", "with another partition"])
async def test_refused_produce_with_acks_0_closes_the_connection(
    connected: Connected, also: tuple[TopicPartition, ...], known: bool
) -> None:
    await connected.lead(T0, 0, 1, 0)
    await connected.lead(T1, 0, 1, 0)
    if known:
        connected.produce(T0, *also, acks=0)
    assert connected.closed == 0
    await connected.lead(T0, 9, 2, 0, 9)
    connected.produce(T0, *also, acks=0)
    assert (connected.closed, connected.answered) == (1, [])


async def test_response_has_the_same_version_as_its_request(connected: Connected) -> None:
    """Bodies of two versions can begin with equal bytes. A cached decoding of the bytes is valid for one version."""
    await connected.lead(T0, 0, 1, 0)
    for connected.version in (7, 8):
        connected.produce(T0)
    assert connected.answered == [{T0: ErrorCode.NONE}] * 2


async def test_zstd_batch_is_refused_before_version_7(connected: Connected) -> None:
    await connected.lead(T0, 0, 1, 0)
    connected.version = 6
    connected.produce(T0, codec=4)
    connected.produce(T0)
    assert connected.answered == [{T0: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}, {T0: 0}]


@pytest.mark.parametrize("version", range(3, 10))
async def test_null_records_are_refused_with_invalid_record(
    connected: Connected, version: int
) -> None:
    await connected.lead(T0, 0, 1, 0)
    await connected.lead(T1, 0, 1, 0)
    connected.version = version
    good = build([Record(0, 1000, None, b"x", ())])
    connected.send({T0: None})
    connected.send({T0: good, T1: None})
    connected.send({T0: good})
    invalid = ErrorCode.INVALID_RECORD
    assert connected.answered == [{T0: invalid}, {T0: 0, T1: invalid}, {T0: 0}]
    assert (connected.end_of(T0), connected.end_of(T1), connected.closed) == (2, 0, 0)


MANY = [TopicPartition("t", number) for number in range(2, STEP_ELEMENTS + 2)]


@pytest.fixture
def one_step_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "TURN_MS", 0)


@pytest.mark.usefixtures("one_step_in_a_turn")
async def test_produce_request_of_many_partitions_takes_several_event_loop_turns(
    connected: Connected,
) -> None:
    await connected.lead(T0, 0, 1, 0)
    await connected.lead(T1, 0, 1, 0)
    connected.produce(T0, *MANY, T1)
    turns = 0
    while not connected.resumed:
        assert connected.answered == []
        turns += 1
        await asyncio.sleep(0)
    assert turns > STEP_ELEMENTS / 8
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert connected.answered == [{T0: 0, T1: 0} | dict.fromkeys(MANY, unknown)]
    connected.handle()
    assert (connected.end_of(T0), connected.end_of(T1), len(connected.answered)) == (1, 1, 1)
    connected.produce(T0)
    assert connected.end_of(T0) == 2


async def test_large_produce_request_writes_the_batches_of_a_step_before_the_next_step(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "TURN_MS", 60_000)
    led = [TopicPartition("t", number) for number in range(20)]
    for tp in led:
        await connected.lead(tp, 0, 1, 0)
    purgatory, most = connected.replicas.purgatory, 0
    append = type(purgatory).append

    def counted(*batch: Any, **options: Any) -> int:
        nonlocal most
        result = append(*batch, **options)
        most = max(most, len(purgatory.dirty))
        return result

    monkeypatch.setattr(type(purgatory), "append", counted)
    connected.produce(*led, *MANY[20:])
    await until(lambda: connected.resumed == 1)
    assert [connected.end_of(tp) for tp in led] == [1] * 20
    assert most == LARGE_STEP


async def test_produce_is_refused_in_the_next_iterations_when_leadership_ends(
    connected: Connected,
) -> None:
    await connected.lead(T0, 0, 1, 0, 9)
    connected.produce(T0)
    await connected.lead(T0, 9, 2, 0, 9)
    for _ in range(2):
        await asyncio.sleep(0)
    assert connected.answered == [{T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}]


@pytest.mark.usefixtures("one_step_in_a_turn")
async def test_large_produce_requests_are_handled_one_after_the_other(
    connected: Connected,
) -> None:
    other = Connected(connected.cluster, connected.turns)
    connected.produce(*MANY)
    other.produce(*MANY)
    while not connected.resumed:
        assert not other.api.answers.entries
        await asyncio.sleep(0)
    await until(lambda: other.resumed == 1)


async def test_refused_batches_are_forgotten_when_the_connection_ends(connected: Connected) -> None:
    connected.produce(T0)
    assert connected.api.refused
    connected.api.end_connection()
    assert not connected.api.refused


@pytest.mark.usefixtures("one_step_in_a_turn")
async def test_leader_replaced_during_a_long_produce_request_acknowledges_no_record(
    connected: Connected,
) -> None:
    await connected.lead(T0, 0, 1, 0, 9)
    connected.produce(T0, *MANY)
    await until(lambda: connected.end_of(T0) == 1)
    assert connected.resumed == 0
    await connected.lead(T0, 9, 2, 0, 9)
    connected.replicas.partitions[T0].follow_high_watermark(1)
    await until(lambda: connected.resumed == 1)
    assert connected.answered[0][T0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_refused_long_produce_with_acks_0_closes_the_connection(connected: Connected) -> None:
    await connected.lead(T0, 0, 1, 0)
    connected.produce(T0, *MANY, acks=0)
    await until(lambda: connected.resumed == 1)
    assert (connected.closed, connected.answered) == (1, [])
    assert connected.end_of(T0) == 1


async def test_long_produce_request_ends_when_its_connection_ends(connected: Connected) -> None:
    await connected.lead(T1, 0, 1, 0)
    connected.produce(*MANY, T1)
    connected.api.end_connection()
    connected.api.answers.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (connected.resumed, connected.end_of(T1)) == (0, 0)


@pytest.mark.parametrize("version", [3, 9])
async def test_request_of_too_many_partitions_closes_the_connection(
    connected: Connected, version: int
) -> None:
    connected.version = version
    connected.send({TopicPartition("t", number): None for number in range(ELEMENTS_MAX + 256)})
    await until(lambda: connected.closed == 1)
    assert connected.answered == []


async def test_event_loop_tick_handles_a_limited_number_of_refused_partitions(
    connected: Connected,
) -> None:
    """Refused requests take the slow general path, and thousands of small requests fit into a buffer."""
    for _ in range(3):
        connected.produce(T0)
    assert connected.resumed == 0
    connected.produce(*MANY[:65])
    await until(lambda: connected.resumed == 1)
    assert len(connected.answered) == 4


@pytest.mark.key("minikafka.producer.ids.max")
async def test_new_producer_ids_are_refused_until_idle_ids_are_forgotten() -> None:
    keys = {"minikafka_producer_ids_max": 10, "minikafka_producer_ids_keep_ms": 1}
    async with MemoryCluster(1, **keys) as cluster:
        connected = Connected(cluster)
        for tp in (T0, T1):
            await connected.lead(tp, 0, 0, 0)
        for producer in range(10):
            connected.produce((T0, T1)[producer % 2], producer=(producer, 0, 0))
        connected.produce(T0, producer=(77, 0, 0))
        connected.produce(T0, producer=(77, 0, 1))
        connected.produce(T0, producer=(0, 0, 1))
        connected.produce(T1, producer=(1, 0, 1))
        refused = {T0: ErrorCode.LEADER_NOT_AVAILABLE}
        assert connected.answered[10:] == [refused, refused, {T0: 0}, {T1: 0}]
        for _ in range(2):
            connected.replicas.logs.checkpoint()
        connected.produce(T0, producer=(77, 0, 0))
        connected.produce(T0, producer=(77, 0, 1))
        assert connected.answered[14:] == [{T0: 0}, {T0: 0}]


async def test_heads_with_long_client_ids_are_remembered_in_little_memory(
    connected: Connected,
) -> None:
    await connected.lead(T0, 0, 0, 0)
    rows = [{"index": 0, "records": build([Record(0, 1000, None, b"x", ())])}]
    topics = [{"name": "t", "partition_data": rows}]
    body = request(
        PRODUCE, VERSION, transactional_id=None, acks=1, timeout_ms=60_000, topic_data=topics
    )
    memo = connected.api.memo
    most = 0
    for number in range(100):
        client_id = f"{number:03d}" * 10_000
        buf = bytearray(encode_request(PRODUCE, VERSION, 7, client_id, body))
        at = 14 + len(client_id)
        connected.api.parts = 0
        connected.api.on_request(buf, memoryview(buf), VERSION, 7, 0, at, len(buf))
        most = max(most, sum(map(len, memo)))
    assert connected.end_of(T0) == 100
    assert 0 < most <= 1 << 20
