"""One client connection: a handler that raises, and clients that receive no responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from support.brokers.controller_bench import until
from support.kafka.encoders import raw_batch
from support.kafka.produced_batches import record
from support.kafka.silent_client import Reader, Silent, join
from support.storage.logs import remove_below

from minikafka.base.errors import StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import QUEUE_MARK_BYTES
from minikafka.broker.fetch.consumer_fetch import ROWS_MAX
from minikafka.broker.network import cold_requests, listener
from minikafka.broker.network.connection import ENTRIES_MAX, Reason
from minikafka.broker.network.unsent import PIECE_MAX
from minikafka.broker.replicas.record_walks import MEMORY_MAX, PendingWalk, RecordWalks
from minikafka.broker.turns import TURN_MS
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.codecs import compress
from minikafka.kafka.records.rules import RecordRules
from minikafka.kafka.records.walk import Walk, judge
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import DELETE_TOPICS, DESCRIBE_CONFIGS, FETCH, METADATA, PRODUCE
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.cluster import MemoryCluster


async def test_exception_in_a_handler_closes_only_the_connection_of_that_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    met = 0

    async def defect(*_: Any) -> Any:
        nonlocal met
        met += 1
        raise KeyError("of a defect")

    async with MemoryCluster(1) as cluster, cluster.client() as other, cluster.client() as unlucky:
        assert await other.list_topics() == []
        monkeypatch.setitem(listener.HANDLERS, DELETE_TOPICS, defect)
        trying = asyncio.ensure_future(unlucky.delete_topics("t"))
        await until(lambda: met > 1)  # the client has connected again and repeated its request
        trying.cancel()
        assert "of a defect" in caplog.text
        assert await other.list_topics() == []
        assert cluster.crashes == []


def metadata_request(correlation: int) -> bytes:
    return encode_request(METADATA, 9, correlation, "silent", request(METADATA, 9, topics=None))


def fetch_request(
    correlation: int,
    max_bytes: int,
    offset: int = 0,
    *,
    rows: int = 1,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
) -> bytes:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 30}
    body = request(
        FETCH,
        4,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[{"topic": "t", "partitions": [partition] * rows}],
    )
    return encode_request(FETCH, 4, correlation, "silent", body)


PIECE = QUEUE_MARK_BYTES + PIECE_MAX
"""The most that a connection holds of records that its client has not received."""


@pytest.fixture
async def stored() -> AsyncIterator[MemoryCluster]:
    """Start one broker with 4.5 MB of records in `t`, in segments of 2 MiB."""
    async with MemoryCluster(1, log_segment_bytes=2 << 20) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        for number in range(45):
            await client.produce("t", [Record(value=b"%02d" % number * 50_000)], partition=0)
        yield cluster


async def test_at_most_two_fetches_are_handled_for_a_client_that_reads_no_responses(
    stored: MemoryCluster,
) -> None:
    silent = await join(stored)
    silent.link.send([fetch_request(number, 1 << 30) for number in range(40)])
    owing = silent.link.other
    await until(lambda: owing.queued_bytes() > 0)
    async with stored.client() as client:
        for _ in range(5):
            assert len(await client.list_topics()) == 1
    assert owing.queued_bytes() <= PIECE
    read = stored.brokers[0].replicas.partitions[TopicPartition("t", 0)].log.traffic
    assert read.fetch_requests < 3  # the other requests are not even parsed


async def test_client_that_reads_late_gets_complete_responses_in_order(
    stored: MemoryCluster,
) -> None:
    reader = await join(stored)
    log = stored.brokers[0].replicas.partitions[TopicPartition("t", 0)].log
    first, offset, position = log.read(0, log.written_position, 1 << 30)
    reader.link.send(
        [fetch_request(1, 1 << 30), metadata_request(2), fetch_request(3, 1 << 30, offset)]
    )
    reader.link.resume_reading()
    await until(lambda: len(reader.responses()) == 3)
    got = [decode_response(FETCH, 4, reader.responses()[number]) for number in (0, 2)]
    records = [response.responses[0].partitions[0].records for response in got]
    assert records == [first, log.read(position, log.written_position, 1 << 30)[0]]
    assert [int.from_bytes(data[:4], "big") for data in reader.responses()] == [1, 2, 3]


async def test_requests_wait_until_the_client_receives_an_earlier_large_response(
    stored: MemoryCluster,
) -> None:
    slow = await join(stored)
    slow.link.send([fetch_request(1, 1 << 30), metadata_request(2), *[fetch_request(3, 100)] * 200])
    owing = slow.link.other
    await until(lambda: owing.queued_bytes() > QUEUE_MARK_BYTES)
    assert owing._paused
    slow.link.resume_reading()
    await until(lambda: len(slow.responses()) == 202)
    assert not owing._paused


async def test_connection_handles_a_limited_number_of_fetched_partitions_per_loop_turn(
    stored: MemoryCluster,
) -> None:
    client = await join(stored)
    client.link.resume_reading()
    traffic = stored.brokers[0].replicas.partitions[TopicPartition("t", 0)].log.traffic
    client.link.send([fetch_request(number, 1, 45) for number in range(4_000)])
    most = 0
    while traffic.fetch_requests < 4_000:
        before = traffic.fetch_requests
        await asyncio.sleep(0)
        most = max(most, traffic.fetch_requests - before)
    assert 0 < most <= ROWS_MAX + 1


class LongTurns(LoopClock):
    """A clock that advances by `TURN_MS` whenever it is read, so that a turn handles only one piece of work."""

    time = 0

    def now(self) -> int:
        self.time += TURN_MS
        return self.time


async def test_connections_with_many_small_fetches_are_served_in_turn(
    stored: MemoryCluster,
) -> None:
    traffic = stored.brokers[0].replicas.partitions[TopicPartition("t", 0)].log.traffic
    stored.brokers[0].listener._shared.turns.requests._clock = LongTurns()
    clients = [await join(stored) for _ in range(20)]
    for client in clients:
        client.link.resume_reading()
        client.link.send([fetch_request(number, 1, 45) for number in range(1_000)])
    await until(lambda: all(client.link.other._paused for client in clients))
    most = 0
    while traffic.fetch_requests < 20_000:
        before = traffic.fetch_requests
        await asyncio.sleep(0)
        most = max(most, traffic.fetch_requests - before)
    # In each turn, one connection continues and one receives bytes.
    assert 0 < most <= 2 * (ROWS_MAX + 1)
    await until(lambda: all(len(client.responses()) == 1_000 for client in clients))


async def test_connection_is_not_read_while_a_large_fetch_waits(stored: MemoryCluster) -> None:
    client = await join(stored)
    waiting = fetch_request(1, 1 << 30, 45, rows=ROWS_MAX + 1, max_wait_ms=60_000)
    client.link.send([waiting, metadata_request(2)[:10]])
    await until(lambda: client.link.other._paused)
    assert client.responses() == []


async def test_connection_is_closed_when_records_are_deleted_before_they_are_sent(
    stored: MemoryCluster,
) -> None:
    slow = await join(stored)
    slow.link.send([fetch_request(1, 1 << 30)])
    owing = slow.link.other
    await until(lambda: owing.queued_bytes() > QUEUE_MARK_BYTES)
    log = stored.brokers[0].replicas.partitions[TopicPartition("t", 0)].log
    log.roll()
    remove_below(log, log.log_end_offset)
    log.retired.close()
    slow.link.resume_reading()
    await until(lambda: slow.is_closed)
    assert slow.responses() == []
    assert stored.crashes == []


async def test_log_directory_goes_offline_when_records_for_a_response_cannot_be_read(
    stored: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = await join(stored)
    slow.link.send([fetch_request(1, 1 << 30)])
    owing = slow.link.other
    await until(lambda: owing.queued_bytes() > QUEUE_MARK_BYTES)
    partition = stored.brokers[0].replicas.partitions[TopicPartition("t", 0)]

    def fail(count: int, position: int) -> bytes:
        raise StorageFailed(partition.log.segments[0].file.path, OSError(5, "a bad sector"))

    monkeypatch.setattr(partition.log.segments[0].file, "pread", fail)
    slow.link.resume_reading()
    await until(lambda: slow.is_closed)
    assert partition.offline


async def test_clients_that_read_no_responses_share_one_budget_of_queued_bytes(
    stored: MemoryCluster,
) -> None:
    silent = [await join(stored) for _ in range(60)]
    for reader in silent:
        reader.link.send([fetch_request(number, 1 << 30) for number in range(3)])
    owing = [reader.link.other for reader in silent]
    await until(lambda: all(link.queued_bytes() > QUEUE_MARK_BYTES for link in owing))
    ahead = stored.brokers[0].listener._shared.ahead
    assert ahead.used == sum(link.queued_bytes() for link in owing) <= 60 * PIECE
    for link in owing:
        link.abort()
    await until(lambda: ahead.used == 0)


async def half_sent(cluster: MemoryCluster, api: int, size: int) -> Reader:
    """Return a client that has sent half of a request."""
    client = await join(cluster)
    client.link.resume_reading()
    half = size.to_bytes(4) + api.to_bytes(2) + bytes(6) + b"\xff\xff" + bytes(size // 2)
    client.link.send([half])
    return client


@pytest.mark.parametrize(
    ("api", "size", "count", "most_allowed"),
    [
        (0, 60 << 20, 3, 100 << 20),
        (0, 1_000_000, 90, 64 << 20),
        (1, 1_000_000, 50, 32 << 20),
        (3, 6 << 20, 8, 32 << 20),
    ],
)
async def test_half_sent_large_requests_of_all_clients_use_a_bounded_amount_of_memory(
    monkeypatch: pytest.MonkeyPatch, api: int, size: int, count: int, most_allowed: int
) -> None:
    monkeypatch.setattr(listener, "_ROOM_SWEEPS", 1)
    async with MemoryCluster(1) as cluster, cluster.client() as other:
        await other.create_topics(NewTopic("t", 1, 1))
        connections = cluster.brokers[0].listener._connections
        clients: list[Reader] = []
        most, has_waited = 0, False

        def one_waits() -> bool:
            nonlocal most, has_waited
            most = max(most, sum(len(c._big or b"") for c in connections))
            waits = any(Reason.ROOM in c.link.other._handler.gate.reasons for c in clients)
            has_waited |= waits
            return waits

        for _ in range(count):
            clients.append(await half_sent(cluster, api, size))
            one_waits()
        await until(lambda: one_waits() or has_waited)
        await until(lambda: not one_waits())
        assert most <= most_allowed
        await other.produce("t", [Record(value=bytes(900_000))], partition=0)


async def test_connection_holds_few_responses_that_wait_behind_a_long_fetch() -> None:
    """Each of the Produce requests names 60 partitions. Their responses are ready, but must keep their order."""
    rows = [{"index": number, "records": b""} for number in range(60)]
    topics = [{"name": "unknown", "partition_data": rows}]
    body = request(PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=60_000, topic_data=topics)
    frame = encode_request(PRODUCE, 9, 2, "silent", body)
    async with MemoryCluster(1) as cluster, cluster.client() as other:
        await other.create_topics(NewTopic("t", 1, 1))
        client = await join(cluster)
        client.link.resume_reading()
        served = client.link.other._handler
        client.link.send([fetch_request(1, 1 << 20, min_bytes=1 << 20, max_wait_ms=3_600_000)])
        client.link.send([frame] * 500)
        await until(lambda: served.answers.rows >= ENTRIES_MAX // 2)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert served.answers.rows < 2 * ENTRIES_MAX
        assert served.gate.reasons == {Reason.UNANSWERED}
        for _ in range(30):
            await other.produce("t", [Record(value=bytes(40_000))], partition=0)
        await until(lambda: len(client.responses()) == 501)
        assert served.answers.rows == 0


async def test_broker_holds_one_large_response_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not receive its large response is disconnected while others wait."""
    monkeypatch.setattr(cold_requests, "LARGE_RESPONSE", 20_000)
    monkeypatch.setattr(listener, "_ROOM_SWEEPS", 1)
    names = [f"t{number}" for number in range(150)]
    resources = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names
    ]
    body = request(
        DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True, include_documentation=True
    )
    frame = encode_request(DESCRIBE_CONFIGS, 4, 1, "silent", body)
    async with MemoryCluster(1) as cluster, cluster.client() as other:
        await other.create_topics(*(NewTopic(name, 1, 1) for name in names))
        silent = [await join(cluster) for _ in range(4)]
        served = [one.link.other._handler for one in silent]
        reader = await join(cluster)
        reader.link.resume_reading()
        for one in silent:
            one.link.send([frame])
        await until(lambda: any(one.link.queued_bytes() for one in served))
        reader.link.send([frame])
        most = 0

        def is_answered() -> bool:
            nonlocal most
            most = max(most, sum(one.link.queued_bytes() > 0 for one in served))
            return bool(reader.responses())

        await until(is_answered)
        (answer,) = reader.responses()
        assert len(answer) > 500_000
        assert most == 1
        for one in silent:
            one.link.abort()
        room = cluster.brokers[0].listener._shared.rooms.responses
        await until(lambda: not room._held)


async def test_paused_connection_ends_when_its_client_disconnects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "_ROOM_SWEEPS", 1)
    async with MemoryCluster(1) as cluster, cluster.client() as other:
        await other.create_topics(NewTopic("t" * 200, 1, 1))
        silent = await join(cluster)
        served = silent.link.other._handler
        silent.link.send([metadata_request(number) for number in range(20_000)])
        await until(lambda: served.gate.is_closed)
        assert served.gate.reasons <= {Reason.COLD, Reason.UNRECEIVED, Reason.TURN}
        silent.link.abort()
        await until(lambda: served not in cluster.brokers[0].listener._connections)


async def test_restarted_follower_copies_missed_records_in_large_fetch_responses() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 3, 2))
        await cluster.stop(1)
        for number in range(60):
            value = b"%02d" % number * 50_000
            await client.produce("t", [Record(value=value)], partition=number % 3)
        back = await cluster.start(1)
        leader = cluster.brokers[0].replicas.partitions
        follower = back.replicas.partitions
        for tp, led in leader.items():
            end = led.log.log_end_offset
            await until(lambda tp=tp: tp in follower)
            await until(lambda tp=tp, end=end: follower[tp].log.written_log_end_offset == end)
            data = [part.log.read(0, 1 << 30, 1 << 30)[0] for part in (led, follower[tp])]
            assert len(data[0]) > 2_000_000
            assert data[0] == data[1]


@pytest.mark.row("R53")
async def test_fetch_with_max_bytes_0_returns_one_batch() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        await client.produce("t", [Record(value=bytes(100_000))], partition=0)
        silent = Silent()
        await cluster.transport.connect(lambda: silent, "127.0.0.1", 9092)
        silent.link.send([fetch_request(1, 0)])
        await until(lambda: len(silent.link._inbox) > 100_000)


Ending = Callable[[], Awaitable[object]]


def produce_frame(topic: str, *fields: bytes, acks: int = 1) -> bytes:
    rows = [{"index": number, "records": field} for number, field in enumerate(fields)]
    topics = [{"name": topic, "partition_data": rows}]
    body = request(
        PRODUCE, 9, transactional_id=None, acks=acks, timeout_ms=60_000, topic_data=topics
    )
    return encode_request(PRODUCE, 9, 2, "silent", body)


async def receive(client: Reader) -> None:
    client.link.resume_reading()


async def leave(client: Reader) -> None:
    client.link.abort()


async def release(walks: RecordWalks, ended: PendingWalk) -> None:
    walks.release(ended)


async def append(other: Client) -> None:
    await other.produce("t", [Record(value=b"new")], partition=0)


async def no_wait() -> None:
    """Do nothing: the reason ends by itself."""


async def hold_back(
    reason: Reason, cluster: MemoryCluster, other: Client, client: Reader
) -> Ending:
    """Give the client's connection the reason not to read. Return a function that ends the reason."""
    match reason:
        case Reason.UNANSWERED:
            waiting = fetch_request(1, 1 << 30, 45, max_wait_ms=3_600_000)
            client.link.send([waiting, *[produce_frame("unknown", *[b""] * 60)] * 500])
            return partial(append, other)
        case Reason.UNSENT:
            client.link.send([fetch_request(number, 1 << 30) for number in range(3)])
        case Reason.UNRECEIVED:
            client.link.send([produce_frame("unknown", *[b""] * 60)] * 500)
        case Reason.COLD:
            client.link.send([metadata_request(number) for number in range(2_000)])
        case Reason.FETCHES:
            rows = ROWS_MAX + 1
            client.link.send([fetch_request(1, 1 << 30, 45, rows=rows, max_wait_ms=3_600_000)])
            return partial(append, other)
        case Reason.PRODUCE:
            batch = raw_batch(compress(3, record(value=bytes(300_000))), 1, codec=3)
            walk = judge(memoryview(batch), 0, len(batch), RecordRules(1 << 30), 0, 0)
            assert isinstance(walk, Walk)
            ended = PendingWalk(walk, lambda: None)
            ended.memory = MEMORY_MAX
            walks = cluster.brokers[0].replicas.walks
            walks.add(ended)
            client.link.send([produce_frame("t", batch, acks=0)])  # no response ends the wait
            return partial(release, walks, ended)
        case Reason.THROTTLED:
            client.link.other._handler.throttle(50)
            return no_wait
        case Reason.ROOM:
            holder = await half_sent(cluster, PRODUCE, 32 << 20)
            room = cluster.brokers[0].listener._shared.rooms.large_produce
            await until(lambda: room._held)
            client.link.send([produce_frame("t", bytes(2 << 20))])
            return partial(leave, holder)
    return partial(receive, client)


@pytest.mark.parametrize(
    "reason", [one for one in Reason if one is not Reason.TURN], ids=lambda reason: reason.name
)
async def test_connection_reads_again_when_its_reason_not_to_read_has_ended(
    stored: MemoryCluster, reason: Reason
) -> None:
    async with stored.client() as other:
        client = await join(stored)
        gate = client.link.other._handler.gate
        end = await hold_back(reason, stored, other, client)
        await until(lambda: gate.is_closed and reason in gate.reasons)
        client.link.send([metadata_request(77)])
        await end()
        client.link.resume_reading()
        await until(lambda: any(one[:4] == (77).to_bytes(4) for one in client.responses()))
        await until(lambda: not gate.is_closed)
