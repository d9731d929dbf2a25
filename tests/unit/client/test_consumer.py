"""The client reads a topic, also while partition leaders change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.clients.stub_cluster import StubCluster
from support.clients.transactional_client import TransactionalProducer
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.client.consumer import records_from
from minikafka.client.log_offsets import LATEST
from minikafka.kafka.records.batch import build
from minikafka.kafka.records.header import CONTROL, LOG_APPEND_TIME
from minikafka.kafka.wire import versions
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded


@pytest.fixture
async def client(cluster: StubCluster) -> AsyncIterator[Client]:
    async with Client(
        cluster.bootstrap,
        transport=cluster.transport,
        request_timeout_ms=5_000,
        delivery_timeout_ms=10_000,
    ) as client:
        yield client


def fill(cluster: StubCluster, partition: int, first: int, last: int) -> None:
    """Append batches of three records, so that a fetch can end inside a batch."""
    log = cluster.topics["t"][partition]
    for at in range(first, last, 3):
        values = range(at, min(at + 3, last))
        log.append(build([Record(timestamp=1, value=b"%d" % value) for value in values]))


async def read(client: Client, **options: object) -> dict[int, list[int]]:
    """Consume topic `t` to its end; return the offsets of the records by partition."""
    seen: dict[int, list[int]] = {}
    options = {"until_end": True, "max_wait_ms": 50} | options
    async for record in client.consume("t", **options):  # type: ignore[arg-type]
        assert record.value == b"%d" % record.offset
        seen.setdefault(record.partition, []).append(record.offset)
    return seen


async def test_consumer_reads_every_partition_in_order_to_its_end(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2, 3, 1, -1])
    cluster.topics["t"].pop()
    for partition in (0, 1, 3):
        fill(cluster, partition, 0, 200)
    assert await read(client) == {p: list(range(200)) for p in (0, 1, 3)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": "latest"}, {}),
        ({"start": 7}, {0: [7, 8, 9], 1: [7, 8, 9]}),
        ({"start": {0: 9, 1: 8}}, {0: [9], 1: [8, 9]}),
        ({"start": {1: 8}}, {1: [8, 9]}),
        ({"start": 8, "partitions": [0]}, {0: [8, 9]}),
        ({"partitions": [1]}, {1: list(range(10))}),
    ],
)
async def test_consumer_reads_from_the_requested_offset_of_the_requested_partitions(
    cluster: StubCluster, client: Client, options: dict[str, object], expected: object
) -> None:
    cluster.create("t", [1, 2])
    fill(cluster, 0, 0, 10)
    fill(cluster, 1, 0, 10)
    assert await read(client, **options) == expected


async def test_consumer_with_until_end_ignores_records_appended_after_it_started(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    fill(cluster, 0, 0, 4)
    seen = []
    async for record in client.consume("t", until_end=True):
        if not seen:
            cluster.topics["t"][0].append(build([Record(timestamp=1, value=b"later")] * 5))
        seen.append(record.offset)
    assert seen == [0, 1, 2, 3]


async def test_consumer_stops_before_the_end_offset_set_for_each_partition(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2])
    fill(cluster, 0, 0, 10)
    fill(cluster, 1, 0, 10)
    assert await read(client, until_end={0: 4, 1: 0}) == {0: [0, 1, 2, 3]}


async def test_consumer_calls_on_end_once_when_it_reaches_the_end_of_a_partition(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2])
    fill(cluster, 0, 0, 4)
    ends: list[tuple[int, int]] = []
    await read(client, on_end=lambda *at: ends.append(at))
    assert sorted(ends) == [(0, 4), (1, 0)]
    ends.clear()
    stream = client.consume("t", start={0: 0}, max_wait_ms=20, on_end=lambda *at: ends.append(at))
    assert [(await anext(stream)).offset for _ in range(4)] == [0, 1, 2, 3]
    more = asyncio.ensure_future(anext(stream))
    fetches = len(cluster.asked(versions.FETCH))
    await until(lambda: len(cluster.asked(versions.FETCH)) > fetches + 2)
    assert ends == [(0, 4)]
    fill(cluster, 0, 4, 5)
    await more
    await stream.aclose()


async def test_consumed_record_says_whether_its_timestamp_is_the_append_time(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    rows = [Record(timestamp=1, value=b"0")]
    cluster.topics["t"][0].append(build(rows))
    cluster.topics["t"][0].append(build(rows, attributes=LOG_APPEND_TIME))
    found = [record.has_append_time async for record in client.consume("t", until_end=True)]
    assert found == [False, True]


async def test_consumer_without_an_end_waits_for_new_records(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2])
    fill(cluster, 0, 0, 3)
    stream = client.consume("t", max_wait_ms=20)
    assert [(await anext(stream)).offset for _ in range(3)] == [0, 1, 2]
    more = asyncio.ensure_future(anext(stream))
    fetches = len(cluster.asked(versions.FETCH))
    await until(lambda: len(cluster.asked(versions.FETCH)) > fetches + 2)
    fill(cluster, 1, 0, 1)
    assert (await more).partition == 1
    await stream.aclose()


async def test_idle_leader_does_not_delay_records_of_another_leader(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2])
    stream = client.consume("t", max_wait_ms=60_000)
    waiting = asyncio.ensure_future(anext(stream))
    await until(lambda: len(cluster.asked(versions.FETCH)) == 2)
    cluster.lead("t", 1, 3)
    for link in cluster.links[2]:
        link.abort()
    fill(cluster, 1, 0, 3)
    async with asyncio.timeout(60):
        assert (await waiting).partition == 1
    await stream.aclose()


async def test_consumer_loses_and_repeats_no_record_while_leaders_change_and_die(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2])
    fill(cluster, 0, 0, 600)
    fill(cluster, 1, 0, 600)
    seen: dict[int, list[int]] = {0: [], 1: []}
    count = 0
    async for record in client.consume("t", until_end=True, max_wait_ms=50):
        seen[record.partition].append(record.offset)
        count += 1
        if count == 200:
            cluster.lead("t", 0, 3)
        if count == 400:
            await cluster.kill(2)
            cluster.lead("t", 1, -1)
        if count == 600:
            cluster.lead("t", 1, 1)
        if count == 800:
            cluster.failures[versions.FETCH].append(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert seen == {0: list(range(600)), 1: list(range(600))}


async def test_consumer_raises_for_an_offset_outside_the_log(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    cluster.topics["t"][0].start = 5
    with pytest.raises(KafkaError, match=r"OFFSET_OUT_OF_RANGE: t-0"):
        await anext(client.consume("t", start=3))


async def test_closed_consumer_cancels_its_fetches(cluster: StubCluster, client: Client) -> None:
    cluster.create("t", [1, 2])
    fill(cluster, 0, 0, 300)
    async for _ in client.consume("t", max_wait_ms=50):
        break
    assert await read(client) == {0: list(range(300))}


def test_fetched_records_below_the_fetch_offset_and_partial_batches_are_skipped() -> None:
    first = build([Record(timestamp=1, value=b"%d" % i) for i in range(5)], base_offset=10)
    second = build([Record(timestamp=1)], base_offset=15)
    found, next_offset = records_from(first + second[:-1], 12)
    assert [record.offset for record in found] == [12, 13, 14]
    assert next_offset == 15


def test_control_batch_yields_no_records_but_advances_the_next_fetch_offset() -> None:
    marker = build([Record(timestamp=1)], base_offset=4, attributes=CONTROL)
    assert records_from(marker, 4) == ([], 5)


def test_empty_fetch_response_leaves_the_next_fetch_offset_unchanged() -> None:
    assert records_from(None, 7) == ([], 7)
    assert records_from(b"", 7) == ([], 7)


async def test_consumer_waits_for_the_leader_of_each_partition_that_it_cannot_read(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2])
    fill(cluster, 0, 0, 3)
    cluster.silent = {2}
    records = client.consume("t", start={0: 0, 1: 0}, max_wait_ms=50)
    assert [(await anext(records)).offset for _ in range(3)] == [0, 1, 2]
    wait = client.waits.oldest()
    assert wait is not None
    assert (wait.about, wait.tp) == ("the leader of t-1", ("t", 1))
    await records.aclose()


def test_reader_of_committed_records_leaves_out_aborted_and_open_transactions() -> None:
    async def scene() -> None:
        config = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
        async with MemoryCluster(3, **config) as cluster, cluster.client() as dirty:
            await dirty.create_topics(NewTopic("tx", 1, 3))
            tp = TopicPartition("tx", 0)
            producer = TransactionalProducer(cluster, "pay")
            await producer.init()
            for value, commit in ((b"1", True), (b"2", False), (b"3", True)):
                await producer.produce(tp, value)
                await producer.end(commit=commit)
            start = await producer.produce(tp, b"4")
            ends: list[int] = []
            async with cluster.client(read_committed=True) as client:
                records = client.consume(
                    "tx", until_end=True, on_end=lambda _, offset: ends.append(offset)
                )
                assert [record.value async for record in records] == [b"1", b"3"]
                fetched = await client.fetch("tx", 0, 0)
                assert [record.value for record in fetched.records] == [b"1", b"3"]
                assert fetched.next_offset == start
                assert await client.list_offsets("tx", "latest") == {0: start}
                assert await client.log_offsets({tp: LATEST}) == {tp: start}
            assert ends == [start]
            records = dirty.consume("tx", until_end=True)
            assert [record.value async for record in records] == [b"1", b"2", b"3", b"4"]
            assert await dirty.list_offsets("tx", "latest") == {0: start + 1}
            producer.close()

    run_seeded(1, scene())


def test_reader_of_committed_records_says_once_what_it_waits_for() -> None:
    async def scene() -> None:
        config = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
        async with (
            MemoryCluster(3, **config) as cluster,
            cluster.client(read_committed=True) as client,
        ):
            await client.create_topics(NewTopic("tx", 1, 3))
            tp = TopicPartition("tx", 0)
            held: list[tuple[TopicPartition, int]] = []
            records = client.consume("tx", on_held=lambda *found: held.append(found))
            reading = asyncio.ensure_future(anext(records))
            producer = TransactionalProducer(cluster, "pay")
            await producer.init()
            start = await producer.produce(tp, b"1")
            await asyncio.sleep(2)
            assert held == []
            await asyncio.sleep(3)
            assert held == [(tp, start)]
            for _ in range(100):
                await asyncio.sleep(0.1)
                wait = client.waits.oldest()
                assert wait is None or wait.since > asyncio.get_running_loop().time() * 1000 - 100
            assert held == [(tp, start)]
            reason = await client.transactions.reason_for_waiting(tp, start)
            assert reason.startswith(f"tx-0: records from offset {start} on are held back by")
            assert "of transactional id pay (producer " in reason
            assert "`minikafka transactions fence pay`" in reason
            await producer.end(commit=True)
            assert (await reading).value == b"1"
            assert await client.transactions.reason_for_waiting(tp, start) == ""
            await records.aclose()
            producer.close()

    run_seeded(1, scene())
