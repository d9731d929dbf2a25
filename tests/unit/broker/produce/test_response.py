"""The response to a Produce request: bad records (KIP-467), current leaders (KIP-951), bytes after a batch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.brokers.produce_connection import T0, T1, Connected
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record, build, records
from minikafka.kafka.records.header import LOG_APPEND_TIME
from minikafka.kafka.records.rules import LISTED_MAX
from minikafka.simulation.cluster import MemoryCluster

INVALID, TIME = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP
NO_KEY = "Compacted topic cannot accept message without key in topic partition t-{}"
GOOD = build([Record(0, 1000, b"k", b"v")])


@pytest.fixture
async def connected() -> AsyncIterator[Connected]:
    async with MemoryCluster(1) as cluster:
        made = Connected(cluster)
        await made.lead(T0, 0, 1, 0)
        await made.lead(T1, 0, 1, 0)
        yield made


def configure(connected: Connected, tp: TopicPartition, **settings: Any) -> None:
    partition = connected.replicas.partitions[tp]
    partition.configure(replace(partition.log.config, **settings))


def batch(*without_key: int, count: int = 100, codec: int = 0) -> bytes:
    """Return a batch in which the records with these indexes have no key."""
    keys = [None if index in without_key else b"k" for index in range(count)]
    return build([Record(0, 1000, key, b"v") for key in keys], codec=codec)


async def answer(connected: Connected) -> None:
    """Wait for the response. If the request took several turns, pass it again, as the connection does."""
    await until(lambda: connected.answered != [])
    if connected.resumed:
        connected.resumed = 0
        connected.handle()


async def listed(connected: Connected, *tps: TopicPartition) -> dict[TopicPartition, list[int]]:
    """Wait for a response; return the indexes of the bad records of its partitions."""
    await answer(connected)
    rows = {tp: connected.rows[tp].record_errors for tp in tps}
    return {tp: [error.batch_index for error in errors] for tp, errors in rows.items()}


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("codec", [0, 2])
async def test_response_names_the_records_without_keys_from_version_8_on(
    connected: Connected, version: int, codec: int
) -> None:
    configure(connected, T0, cleanup_policy=("compact",))
    connected.version = version
    connected.send({T0: batch(10, 90, codec=codec)})
    await until(lambda: connected.answered != [])
    assert connected.answered == [{T0: INVALID}]
    assert connected.end_of(T0) == 0
    if version < 8:
        return
    row = connected.rows[T0]
    text = NO_KEY.format(0)
    errors = [(error.batch_index, error.batch_index_error_message) for error in row.record_errors]
    assert errors == [(10, text), (90, text)]
    assert row.error_message.startswith("One or more records have been rejected due to 2 record")


async def test_only_the_refused_batch_of_a_request_has_bad_records(connected: Connected) -> None:
    configure(connected, T1, cleanup_policy=("compact",))
    connected.send({T0: batch(10), T1: batch(20)})
    assert await listed(connected, T0, T1) == {T0: [], T1: [20]}
    assert connected.answered == [{T0: 0, T1: INVALID}]
    assert connected.rows[T0].error_message is None
    connected.answered.clear()
    connected.send({T1: GOOD + GOOD})
    assert await listed(connected, T1) == {T1: []}, "this refusal has another reason"
    assert connected.answered == [{T1: INVALID}]
    connected.answered.clear()
    connected.send({T1: GOOD})
    assert connected.answered == [{T1: 0}]


async def test_response_names_the_records_outside_the_timestamp_limits(
    connected: Connected,
) -> None:
    now = connected.broker.clock.wall_ms()
    configure(connected, T0, message_timestamp_before_max_ms=5_000)
    times = [now, now - 60_000, now, 0]
    connected.send({T0: build([Record(0, time, b"k", b"v") for time in times])})
    assert await listed(connected, T0) == {T0: [1, 3]}
    assert connected.answered == [{T0: TIME}]
    (first, _) = connected.rows[T0].record_errors
    assert first.batch_index_error_message.startswith(f"Timestamp {now - 60_000} of message with")


async def test_error_of_the_native_client_names_the_bad_records() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        compacted = NewTopic("t", 1, 1, configs={"cleanup.policy": "compact"})
        await client.create_topics(compacted)
        keys = (b"k", None, b"k", None)
        with pytest.raises(KafkaError) as caught:
            await client.produce("t", [Record(key=key, value=b"v") for key in keys], partition=0)
    text = NO_KEY.format(0)
    assert caught.value.code is INVALID
    assert caught.value.detail == f"t-0; record 1: {text}; record 3: {text}"


async def test_one_response_names_a_limited_number_of_bad_records(connected: Connected) -> None:
    for tp in (T0, T1):
        configure(connected, tp, cleanup_policy=("compact",))
    bad = build([Record(0, 1000, None, b"")] * (LISTED_MAX - 10), codec=4)
    connected.send({T0: bad, T1: bad})
    found = await listed(connected, T0, T1)
    assert (len(found[T0]), len(found[T1])) == (LISTED_MAX - 10, 10)
    assert connected.answered == [{T0: INVALID, T1: INVALID}]


async def test_bad_records_count_towards_the_unanswered_rows_of_a_connection(
    connected: Connected,
) -> None:
    """Otherwise a client could let a broker keep many of them behind a response that waits."""
    configure(connected, T1, cleanup_policy=("compact",))
    await connected.lead(T0, 0, 2, 0, 9)
    connected.send({T0: GOOD})
    connected.send({T1: batch(*range(50))})
    await until(lambda: connected.answers.rows > 0)
    assert connected.answers.rows == 51
    await connected.lead(T0, 0, 3, 0)
    await until(lambda: len(connected.answered) == 2)
    assert connected.answers.rows == 0


# ---- timestamp types


@pytest.mark.parametrize("checks_all", [True, False])
@pytest.mark.parametrize("also", [(), (T1,)], ids=["alone", "with another partition"])
async def test_batch_with_log_append_time_gets_the_timestamp_type_of_the_topic(
    connected: Connected, also: tuple[TopicPartition, ...], checks_all: bool
) -> None:
    connected.api.checks._checks_all = checks_all
    dated = build([Record(0, time, b"k", b"v") for time in (7, 9)], attributes=LOG_APPEND_TIME)
    connected.send(dict.fromkeys((T0, *also), dated))
    await answer(connected)
    assert connected.answered == [dict.fromkeys((T0, *also), 0)]
    log = connected.replicas.partitions[T0].log
    data, *_ = log.read(0, log.written_position, 1 << 20)
    assert [record.timestamp for record in records(data)] == [7, 9]
    configure(connected, T0, message_timestamp_type="LogAppendTime")
    connected.answered.clear()
    connected.send(dict.fromkeys((T0, *also), dated))
    assert await listed(connected, T0) == {T0: [0, 1]}
    assert connected.answered == [{T0: TIME, **dict.fromkeys(also, 0)}]


# ---- bytes after the batch


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (b"x", 0),
        (b"x" * 11, 0),
        (bytes(8) + (14).to_bytes(4) + bytes(4), 0),
        (GOOD[:-1], 0),
        (bytes(12), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + (13).to_bytes(4), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + (900).to_bytes(4) + bytes(4) + b"\x03", ErrorCode.CORRUPT_MESSAGE),
        (GOOD, INVALID),
        (bytes(8) + (14).to_bytes(4) + bytes(14), INVALID),
    ],
)
@pytest.mark.parametrize("codec", [0, 4])
async def test_bytes_after_the_batch_are_ignored_or_refused_as_by_kafka(
    connected: Connected, rest: bytes, code: int, codec: int
) -> None:
    one = build([Record(0, 1000, b"k", b"v" * 50)], codec=codec)
    for _ in range(2):
        connected.send({T0: one + rest})
        connected.send({T0: one + rest, T1: GOOD})
    await until(lambda: len(connected.answered) == 4)
    assert [answer[T0] for answer in connected.answered] == [code] * 4
    assert [answer.get(T1, 0) for answer in connected.answered] == [0] * 4
    assert connected.end_of(T0) == (0 if code else 4)
    log = connected.replicas.partitions[T0].log
    assert log.written_position == (0 if code else 4 * len(one)), "only the batch is stored"


# ---- current leaders


@pytest.mark.parametrize("version", [9, 10, 11])
@pytest.mark.parametrize("also", [(), (T1,)], ids=["alone", "with another partition"])
async def test_refused_produce_names_the_leader_from_version_10_on(
    connected: Connected, also: tuple[TopicPartition, ...], version: int
) -> None:
    connected.version = version
    live = connected.broker.metadata.brokers
    other = replace(live[0], id=9)
    connected.replicas.metadata.snapshot.brokers[9] = other  # type: ignore[index]
    await connected.lead(T0, 0, 2, 0, 9)
    connected.send(dict.fromkeys((T0, *also), GOOD))
    await connected.lead(T0, 9, 3, 0, 9)
    await until(lambda: connected.answered != [])
    connected.send(dict.fromkeys((T0, *also), GOOD))
    codes = {T0: int(ErrorCode.NOT_LEADER_OR_FOLLOWER), **dict.fromkeys(also, 0)}
    assert connected.answered == [codes, codes], "one waited, one came later"
    assert len(connected.leaders) == len(connected.nodes) == 2
    if version < 10:
        assert connected.nodes == [{}, {}]
        return
    assert [leader[T0] for leader in connected.leaders] == [(9, 3), (9, 3)]
    assert all(leader.get(T1, (-1, -1)) == (-1, -1) for leader in connected.leaders)
    address = ("127.0.0.1", 9092)
    assert connected.nodes == [{9: address}, {9: address}]
