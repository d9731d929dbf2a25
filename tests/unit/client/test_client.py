"""The client with brokers that change leaders, stop answering, die and lose responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from support.clients.stub_cluster import StubCluster
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, NotProduced, Produced, Record, retries
from minikafka.client import client as client_module
from minikafka.client.partitioner import partition_for_key
from minikafka.kafka.wire import versions


@pytest.fixture
async def client(cluster: StubCluster) -> AsyncIterator[Client]:
    async with connect(cluster) as client:
        yield client


def connect(cluster: StubCluster, **options: int) -> Client:
    options = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 10_000} | options
    return Client(cluster.bootstrap, transport=cluster.transport, **options)  # type: ignore[arg-type]


def numbered(first: int, last: int) -> list[Record]:
    return [Record(value=b"%d" % i) for i in range(first, last)]


async def values(client: Client, topic: str, **options: object) -> list[bytes | None]:
    stream = client.consume(topic, until_end=True, max_wait_ms=50, **options)  # type: ignore[arg-type]
    return [record.value async for record in stream]


async def failing_with(code: ErrorCode, operation: object) -> str:
    with pytest.raises(KafkaError) as caught:
        await operation  # type: ignore[misc]
    assert caught.value.code is code
    return caught.value.detail


async def test_consumed_record_equals_the_produced_one(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [2])
    full = Record(timestamp=1234, key=b"k", value=b"v", headers=(("h", b"1"), ("n", None)))
    assert await client.produce("t", [full, Record()]) == [Produced(0, 0), Produced(0, 1)]
    read = [record async for record in client.consume("t", until_end=True)]
    assert read[0] == ("t", 0, 0, 1234, b"k", b"v", (("h", b"1"), ("n", None)), False)
    assert read[1][:3] == ("t", 0, 1)
    assert read[1].timestamp > 10**12
    assert read[1][4:] == (None, None, (), False)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_records_survive_every_compression_codec(
    cluster: StubCluster, client: Client, codec: int
) -> None:
    cluster.create("t", [1])
    await client.produce("t", numbered(0, 100), codec=codec)
    assert await values(client, "t") == [b"%d" % i for i in range(100)]


async def test_key_chooses_the_partition_and_results_keep_the_order_of_records(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2, 3])
    keys = [b"key-%d" % (i % 7) for i in range(50)]
    produced = await client.produce("t", [Record(key=key, value=key) for key in keys])
    assert [p.partition for p in produced] == [partition_for_key(key, 3) for key in keys]
    for number, partition in enumerate(cluster.topics["t"]):
        offsets = [p.offset for p in produced if p.partition == number]
        assert offsets == list(range(len(offsets)))
        stored = [key for key in keys if partition_for_key(key, 3) == number]
        assert partition.values() == stored


async def test_each_produce_call_of_keyless_records_uses_the_next_partition_with_a_leader(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, -1, 3])
    used = []
    for _ in range(4):
        produced = await client.produce("t", numbered(0, 3))
        assert len({p.partition for p in produced}) == 1
        used.append(produced[0].partition)
    assert used in ([0, 2, 0, 2], [2, 0, 2, 0])


async def test_many_keyless_records_of_one_call_are_spread_evenly_over_partitions(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2, 3])
    produced = await client.produce("t", [Record(value=bytes(4096))] * 24)
    used = [p.partition for p in produced]
    assert [used.count(p) for p in range(3)] == [8, 8, 8]
    assert sum(a != b for a, b in pairwise(used)) == 5


async def test_first_partition_of_keyless_records_differs_between_clients(
    cluster: StubCluster,
) -> None:
    """Commands are short-lived clients. If all began with the same partition, they would fill only that partition."""
    cluster.create("t", [1, 2, 3])
    used = set()
    for _ in range(40):
        async with connect(cluster) as client:
            used.add((await client.produce("t", [Record(value=b"v")]))[0].partition)
    assert used == {0, 1, 2}


async def test_produce_accepts_a_separate_partition_for_each_record(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2, 3])
    rows = [Record(value=b"a"), Record(key=b"k"), Record(value=b"b")]
    produced = await client.produce("t", rows, partition=[2, None, 0])
    assert produced == [Produced(2, 0), Produced(2, 1), Produced(0, 0)]
    assert partition_for_key(b"k", 3) == 2


async def test_produce_with_a_partition_appends_to_it_instead_of_hashing_the_key(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2, 3])
    assert await client.produce("t", [Record(key=b"any")], partition=2) == [Produced(2, 0)]


async def test_produce_splits_many_records_into_batches_of_limited_size(
    cluster: StubCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "BATCH_BYTES", 1000)
    cluster.create("t", [1])
    sent = [Record(value=b"%d" % i * 20) for i in range(100)] + [Record(value=bytes(5000))]
    produced = await client.produce("t", sent)
    assert [p.offset for p in produced] == list(range(101))
    batches = cluster.topics["t"][0].batches
    assert len(batches) > 3
    assert max(map(len, batches[:-1])) < 1200
    assert cluster.topics["t"][0].values() == [record.value for record in sent]


async def test_produce_without_records_sends_nothing(cluster: StubCluster, client: Client) -> None:
    cluster.create("t", [1])
    assert await client.produce("t", []) == []
    assert cluster.asked(versions.PRODUCE) == []


async def test_produce_follows_the_leader(cluster: StubCluster, client: Client) -> None:
    cluster.create("t", [1])
    await client.produce("t", numbered(0, 2))
    cluster.lead("t", 0, 3)
    await client.produce("t", numbered(2, 4))
    assert cluster.asked(versions.PRODUCE) == [1, 1, 3]
    assert cluster.topics["t"][0].values() == [b"0", b"1", b"2", b"3"]


async def test_produce_waits_for_a_leader_while_there_is_none(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    await client.produce("t", numbered(0, 1))
    cluster.lead("t", 0, -1)
    produce = asyncio.create_task(client.produce("t", numbered(1, 2)))
    asked = len(cluster.asked(versions.METADATA))
    await until(lambda: len(cluster.asked(versions.METADATA)) > asked + 1)
    assert not produce.done()
    cluster.lead("t", 0, 2)
    assert await produce == [Produced(0, 1)]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE],
)
async def test_produce_retries_after_a_retriable_error(
    cluster: StubCluster, client: Client, code: ErrorCode
) -> None:
    cluster.create("t", [1])
    cluster.failures[versions.PRODUCE].append(code)
    assert await client.produce("t", numbered(0, 1)) == [Produced(0, 0)]


async def test_client_works_after_an_error_that_is_not_retriable(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    cluster.failures[versions.PRODUCE].append(ErrorCode.MESSAGE_TOO_LARGE)
    await failing_with(ErrorCode.MESSAGE_TOO_LARGE, client.produce("t", numbered(0, 1)))
    assert await client.produce("t", numbered(1, 2)) == [Produced(0, 0)]
    assert cluster.producer_ids == 2, "the fate of a sequence is not known: a new identity"


async def test_batch_that_is_too_large_is_sent_in_halves(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    cluster.failures[versions.PRODUCE] += [ErrorCode.MESSAGE_TOO_LARGE] * 2
    produced = await client.produce("t", numbered(0, 9))
    assert [p.offset for p in produced] == list(range(9))
    assert cluster.topics["t"][0].values() == [b"%d" % i for i in range(9)]
    assert len(cluster.topics["t"][0].batches) == 3


async def test_not_produced_error_has_index_of_the_too_large_record_and_stored_count(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    # The results of the batch of four, its first half, its second half, and the third record alone.
    too_large = ErrorCode.MESSAGE_TOO_LARGE
    cluster.failures[versions.PRODUCE] += [too_large, 0, too_large, too_large]
    with pytest.raises(
        NotProduced,
        match=r"^MESSAGE_TOO_LARGE: t-0: the batch is larger than max.message.bytes of the topic$",
    ) as caught:
        await client.produce("t", numbered(0, 4))
    assert (caught.value.index, caught.value.stored) == (2, 2)
    assert cluster.topics["t"][0].values() == [b"0", b"1"]


async def test_not_produced_error_counts_records_stored_outside_the_failed_partition(
    cluster: StubCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", [1, 2])
    keys = [b"a", b"b", b"c", b"d", b"e", b"f"]
    chosen = [partition_for_key(key, 2) for key in keys]
    send = client._send_batch

    async def refuse_partition_one(tp: TopicPartition, body: object, acks: int) -> int:
        if tp.partition == 1:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(tp))
        return await send(tp, body, acks)

    monkeypatch.setattr(client, "_send_batch", refuse_partition_one)
    with pytest.raises(NotProduced) as caught:
        await client.produce("t", [Record(key=key) for key in keys])
    assert caught.value.index == chosen.index(1)
    assert caught.value.stored == chosen.count(0)
    assert 0 < chosen.count(0) < len(keys)


async def test_retry_after_a_lost_response_does_not_duplicate_records(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    for i in range(5):
        cluster.lose_answers_of.add(versions.PRODUCE)
        assert await client.produce("t", numbered(i, i + 1)) == [Produced(0, i)]
    assert cluster.topics["t"][0].values() == [b"0", b"1", b"2", b"3", b"4"]
    assert cluster.producer_ids == 1


async def test_retry_with_acks_one_may_duplicate_records(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    cluster.lose_answers_of.add(versions.PRODUCE)
    await client.produce("t", numbered(0, 1), acks=1)
    assert cluster.topics["t"][0].values() == [b"0", b"0"]
    assert cluster.producer_ids == 0


async def test_produce_with_acks_zero_returns_without_offsets(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    assert await client.produce("t", numbered(0, 1), acks=0) == [Produced(0, -1)]
    await client.produce("t", numbered(1, 2), acks=1)
    assert cluster.topics["t"][0].values() == [b"0", b"1"]


async def test_records_of_concurrent_produce_calls_are_appended_in_call_order(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    await client.produce("t", [])
    cluster.failures[versions.PRODUCE].append(ErrorCode.NOT_ENOUGH_REPLICAS)
    async with asyncio.TaskGroup() as group:
        for i in range(5):
            group.create_task(client.produce("t", numbered(i, i + 1), partition=0))
    assert cluster.topics["t"][0].values() == [b"0", b"1", b"2", b"3", b"4"]


async def test_overdue_response_leads_to_a_retry_at_another_broker(cluster: StubCluster) -> None:
    async with connect(cluster, request_timeout_ms=200) as client:
        cluster.create("t", [1])
        await client.produce("t", numbered(0, 1))
        cluster.silent.add(1)
        cluster.lead("t", 0, 2)
        cluster.known_by = {}
        assert await client.produce("t", numbered(1, 2)) == [Produced(0, 1)]


async def test_lasting_retriable_error_is_raised_after_the_delivery_timeout(
    cluster: StubCluster,
) -> None:
    async with connect(cluster, delivery_timeout_ms=300) as client:
        cluster.create("t", [-1])
        await failing_with(
            ErrorCode.LEADER_NOT_AVAILABLE, client.produce("t", numbered(0, 1), partition=0)
        )


async def test_unreachable_cluster_raises_network_exception(cluster: StubCluster) -> None:
    for broker in (1, 2, 3):
        await cluster.kill(broker)
    async with connect(cluster, delivery_timeout_ms=200) as client:
        detail = await failing_with(ErrorCode.NETWORK_EXCEPTION, client.list_topics())
    assert f"no broker answers at {cluster.bootstrap} (" in detail
    assert detail.endswith("is the cluster up, and are these its addresses?")


async def test_client_connects_when_one_bootstrap_server_answers(
    cluster: StubCluster, client: Client
) -> None:
    await cluster.kill(1)
    await cluster.kill(2)
    assert await client.list_topics() == []


async def test_unknown_topic_error_is_raised_after_a_short_time_limit(
    cluster: StubCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "UNKNOWN_TOPIC_MS", 250)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await failing_with(unknown, client.produce("no", numbered(0, 1))) == "no"
    assert await failing_with(unknown, client.list_offsets("no", "latest")) == "no"
    assert await failing_with(unknown, client.fetch("no", 0, 0)) == "no"
    assert await failing_with(unknown, client.describe_topics("no")) == "no"


async def test_produce_lets_the_broker_auto_create_the_topic(
    cluster: StubCluster, client: Client
) -> None:
    cluster.auto_create = True
    assert (await client.produce("new", numbered(0, 1)))[0].offset == 0
    with pytest.raises(KafkaError):
        await client.describe_topics("never produced to")
    assert list(cluster.topics) == ["new"]


async def test_client_creates_describes_lists_and_deletes_topics(
    cluster: StubCluster, client: Client
) -> None:
    cluster.controller = 3
    await client.create_topics(
        NewTopic("b", 2, 3, {"retention.ms": "1"}), NewTopic("a", assignment={0: [2, 3]})
    )
    assert cluster.asked(versions.CREATE_TOPICS) == [3]
    assert await client.list_topics() == ["a", "b"]
    (a,) = await client.describe_topics("a")
    assert a.partitions[0].leader == 2
    assert a.partitions[0].isr == (1, 2, 3)
    await failing_with(ErrorCode.TOPIC_ALREADY_EXISTS, client.create_topics(NewTopic("a", 1)))
    await client.delete_topics("a", "b")
    assert await client.list_topics() == []
    await failing_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, client.delete_topics("a"))


async def test_admin_requests_follow_the_controller(cluster: StubCluster, client: Client) -> None:
    answer = cluster.metadata
    lag = iter([1])

    def lagging(broker: int, request: object) -> object:
        response = answer(broker, request)
        return response | {"controller_id": next(lag, 2)}

    cluster.controller = 2
    versions_metadata = versions.METADATA
    original = cluster.answer
    cluster.answer = lambda broker, api, request: (  # type: ignore[method-assign]
        lagging(broker, request) if api == versions_metadata else original(broker, api, request)
    )
    await client.create_topics(NewTopic("t", 1, 1))
    assert cluster.asked(versions.CREATE_TOPICS) == [1, 2]


async def test_describe_cluster_returns_brokers_and_controller(
    cluster: StubCluster, client: Client
) -> None:
    cluster_info = await client.describe_cluster()
    assert cluster_info.cluster_id == "stub"
    assert cluster_info.controller_id == 1
    assert {i: node.port for i, node in cluster_info.brokers.items()} == cluster.ports


async def test_list_offsets_accepts_earliest_latest_and_a_time(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1, 2])
    await client.produce("t", [Record(timestamp=t) for t in (10, 20, 30)], partition=0)
    assert await client.list_offsets("t", "earliest") == {0: 0, 1: 0}
    assert await client.list_offsets("t", "latest") == {0: 3, 1: 0}
    assert await client.list_offsets("t", 15, [0]) == {0: 1}
    assert await client.list_offsets("t", 31) == {0: -1, 1: -1}


async def test_list_offsets_follows_the_leader(cluster: StubCluster, client: Client) -> None:
    cluster.create("t", [1])
    await client.list_offsets("t", "latest")
    cluster.lead("t", 0, 2)
    assert await client.list_offsets("t", "latest") == {0: 0}


async def test_fetch_returns_the_next_offset_and_the_records_from_the_requested_offset(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    await client.produce("t", numbered(0, 10))
    fetched = await client.fetch("t", 0, 4)
    assert [record.offset for record in fetched.records] == [4, 5, 6, 7, 8, 9]
    assert fetched.next_offset == fetched.high_watermark == 10
    assert fetched.log_start_offset == 0
    empty = await client.fetch("t", 0, 10, max_wait_ms=10)
    assert (empty.records, empty.next_offset) == ([], 10)


async def test_fetch_outside_the_log_raises_offset_out_of_range(
    cluster: StubCluster, client: Client
) -> None:
    cluster.create("t", [1])
    detail = await failing_with(ErrorCode.OFFSET_OUT_OF_RANGE, client.fetch("t", 0, 1))
    assert detail == "t-0 at offset 1"


async def test_fetch_follows_the_leader(cluster: StubCluster, client: Client) -> None:
    cluster.create("t", [1])
    await client.produce("t", numbered(0, 1))
    cluster.lead("t", 0, 2)
    assert len((await client.fetch("t", 0, 0)).records) == 1
