"""The order of one connection's requests if the handlers of some requests do not answer immediately."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from support.kafka.peer import Peer
from support.until import until

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import QUEUE_MARK_BYTES
from minikafka.broker import turns as scheduler
from minikafka.broker.network import cold_requests, listener
from minikafka.broker.network.cold_requests import WAITING_BYTES_MAX, WAITING_MAX
from minikafka.broker.services import LATER, RequestContext, Services, Steps
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.codec import decode_response, encode_request, request, response
from minikafka.kafka.wire.versions import FETCH, FIND_COORDINATOR, METADATA, PRODUCE
from minikafka.simulation.cluster import MemoryCluster

T0 = TopicPartition("t", 0)


class Parking:
    """A handler that answers FindCoordinator requests only when the test calls `answer`."""

    def __init__(self) -> None:
        self.parked: list[RequestContext] = []
        self.keys: list[str] = []

    def __call__(self, services: Services, asked: Any, context: RequestContext) -> Any:
        self.parked.append(context)
        self.keys.append(asked.key)
        return LATER

    def answer(self, number: int = 0) -> None:
        self.parked[number].answer(response(FIND_COORDINATOR, 0, node_id=7, host="h", port=1))


class Bench:
    """One broker, a client connection, and the `Parking` handler."""

    def __init__(self, cluster: MemoryCluster, peer: Peer, parking: Parking) -> None:
        self.cluster = cluster
        self.peer = peer
        self.parking = parking

    @property
    def log_end(self) -> int:
        return self.cluster.brokers[0].replicas.partitions[T0].log.log_end_offset

    def send(self, *frames: bytes) -> None:
        self.peer.link.send([b"".join(frames)])

    async def answered(self, *correlations: int) -> None:
        await until(lambda: self.peer.answered() == list(correlations))


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    parking = Parking()
    monkeypatch.setitem(listener.HANDLERS, FIND_COORDINATOR, parking)
    async with MemoryCluster(1) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 1))
        peer = Peer()
        await cluster.transport.connect(lambda: peer, "127.0.0.1", 9092)
        yield Bench(cluster, peer, parking)


def find(correlation: int, key: str = "group", client_id: str | None = "me") -> bytes:
    body = request(FIND_COORDINATOR, 0, key=key)
    return encode_request(FIND_COORDINATOR, 0, correlation, client_id, body)


def metadata(correlation: int) -> bytes:
    return encode_request(METADATA, 9, correlation, "me", request(METADATA, 9, topics=None))


def waiting_fetch(correlation: int) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body = request(
        FETCH,
        4,
        replica_id=-1,
        max_wait_ms=3_600_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[{"topic": "t", "partitions": [partition]}],
    )
    return encode_request(FETCH, 4, correlation, "me", body)


BATCH = build([Record(0, 1000, None, b"x", ())])


def produce(correlation: int, batch: bytes | None = BATCH) -> bytes:
    rows = [{"index": 0, "records": batch}]
    body = request(
        PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[{"name": "t", "partition_data": rows}],
    )
    return encode_request(PRODUCE, 9, correlation, "me", body)


def fetch(correlation: int) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body = request(
        FETCH,
        4,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[{"topic": "t", "partitions": [partition]}],
    )
    return encode_request(FETCH, 4, correlation, "me", body)


async def test_requests_around_a_produce_with_null_records_are_answered(bench: Bench) -> None:
    bench.send(produce(1), produce(2, None), produce(3))
    await bench.answered(1, 2, 3)
    assert bench.log_end == 2
    assert not bench.peer.is_closed


async def test_cold_request_begins_when_earlier_cold_requests_are_answered(bench: Bench) -> None:
    bench.send(find(1, "a"), find(2, "b"), metadata(3), find(4, "c"))
    await until(lambda: bench.parking.keys)
    bench.parking.answer(0)
    await bench.answered(1)
    assert bench.parking.keys == ["a", "b"]
    bench.parking.answer(1)
    await bench.answered(1, 2, 3)
    assert bench.parking.keys == ["a", "b", "c"]
    bench.parking.answer(2)
    await bench.answered(1, 2, 3, 4)


async def test_produce_and_fetch_are_handled_before_an_earlier_request_is_answered(
    bench: Bench,
) -> None:
    bench.send(find(1), metadata(2), produce(3))
    await until(lambda: bench.log_end == 1 and bench.parking.parked)
    bench.send(fetch(4), produce(5))
    await until(lambda: bench.log_end == 2)
    assert bench.peer.answered() == []
    bench.parking.answer()
    await bench.answered(1, 2, 3, 4, 5)
    found = decode_response(FETCH, 4, bench.peer.frames()[3])
    assert found.responses[0].partitions[0].records


async def test_waiting_requests_are_kept_when_the_receive_buffer_is_reused(bench: Bench) -> None:
    keys = [f"{number}-" + "k" * 900 for number in range(40)]
    for number, key in enumerate(keys):
        bench.send(find(number, key, f"client-{number}"))
        await until(lambda: not bench.peer.link.other._inbox)
    for number in range(40):
        await until(lambda: len(bench.parking.parked) == number + 1)  # noqa: B023  awaited here
        bench.parking.answer(number)
    await bench.answered(*range(40))
    assert bench.parking.keys == keys
    assert [context.client_id for context in bench.parking.parked] == [
        f"client-{number}" for number in range(40)
    ]


async def test_request_context_has_client_version_connection_listener_and_principal(
    bench: Bench,
) -> None:
    bench.send(find(1, client_id=None))
    other = Peer()
    await bench.cluster.transport.connect(lambda: other, "127.0.0.1", 9092)
    other.link.send([find(1, client_id="other")])
    await until(lambda: len(bench.parking.parked) == 2)
    first, second = bench.parking.parked
    assert (first.client_id, second.client_id) == (None, "other")
    assert first.version == 0
    assert first.connection.id != second.connection.id
    assert first.connection.peer == bench.peer.link.other.peer()
    assert first.connection.listener == "PLAINTEXT"
    assert first.connection.principal == "User:ANONYMOUS"


async def test_response_is_sent_when_the_handler_answers_before_it_returns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(services: Services, asked: Any, context: RequestContext) -> Any:
        context.answer(response(FIND_COORDINATOR, 0, node_id=7, host="h", port=1))
        return LATER

    bench.send(find(1))
    await until(lambda: bench.parking.parked)
    monkeypatch.setitem(listener.HANDLERS, FIND_COORDINATOR, at_once)
    bench.send(*(find(number) for number in range(2, WAITING_MAX)))
    ours = bench.peer.link.other
    await until(lambda: not ours._inbox)
    bench.parking.answer()
    await bench.answered(*range(1, WAITING_MAX))


async def test_requests_that_wait_are_dropped_when_the_connection_closes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.send(find(1, "a"), find(2, "b"), produce(3))
    await until(lambda: bench.log_end == 1 and bench.parking.parked)
    ours = bench.peer.link.other
    bench.peer.link.abort()
    await until(lambda: ours._gone)
    bench.parking.answer()
    for _ in range(3):
        await bench.cluster.brokers[0].clock.sleep(0)
    assert bench.parking.keys == ["a"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def _kafka_error(*_: Any) -> Any:
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)


def _defect(*_: Any) -> Any:
    raise KeyError("a defect")


async def _late_kafka_error(*_: Any) -> Any:
    _kafka_error()


async def _late_defect(*_: Any) -> Any:
    _defect()


def _not_a_response(*_: Any) -> Any:
    return 7


@pytest.mark.parametrize(
    "failing", [_kafka_error, _defect, _late_kafka_error, _late_defect, _not_a_response]
)
async def test_exception_in_a_handler_closes_only_the_connection_of_the_request(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., Any]
) -> None:
    monkeypatch.setitem(listener.HANDLERS, METADATA, failing)
    bench.send(find(1, "a"), metadata(2), find(3, "b"))
    await until(lambda: bench.parking.parked)
    bench.parking.answer()
    await until(lambda: bench.peer.is_closed)
    assert bench.parking.keys == ["a"]
    other = Peer()
    await bench.cluster.transport.connect(lambda: other, "127.0.0.1", 9092)
    other.link.send([produce(1)])
    await until(lambda: other.answered() == [1])
    assert bench.cluster.crashes == []


async def test_malformed_request_closes_the_connection_after_earlier_responses(
    bench: Bench,
) -> None:
    cut = encode_request(METADATA, 9, 2, "me", b"\0\0\0\7")
    bench.send(find(1, "a"), cut, find(3, "b"))
    await until(lambda: bench.parking.parked)
    assert not bench.peer.is_closed
    bench.parking.answer()
    await until(lambda: bench.peer.is_closed)
    assert bench.parking.keys == ["a"]


@pytest.mark.parametrize("key_bytes", [1, 30_000], ids=["many", "large"])
async def test_connection_is_not_read_while_too_many_requests_wait(
    bench: Bench, key_bytes: int
) -> None:
    count = 4 * WAITING_MAX
    frames = [find(number, "k" * key_bytes) for number in range(count)]
    bench.send(*frames)
    ours = bench.peer.link.other
    await until(lambda: ours._paused)
    read = count * len(frames[0]) - len(ours._inbox) - len(bench.peer.link._queue)
    assert read < WAITING_BYTES_MAX + (256 << 10) + 4 * len(frames[0])
    for number in range(count):
        await until(lambda: len(bench.parking.parked) == number + 1)  # noqa: B023  awaited here
        bench.parking.answer(number)
    await bench.answered(*range(count))
    assert not ours._paused


@pytest.fixture
async def wide(bench: Bench) -> Bench:
    """Create a topic whose Metadata response is larger than a socket buffer; return the `bench` fixture."""
    async with bench.cluster.client() as client:
        await client.create_topics(NewTopic("wide", 400, 1))
    return bench


def handled(bench: Bench) -> int:
    return bench.cluster.brokers[0].requests.times[METADATA].count


async def test_few_requests_are_handled_for_a_client_that_does_not_read_its_responses(
    wide: Bench,
) -> None:
    wide.peer.link.pause_reading()
    before = handled(wide)
    ours = wide.peer.link.other
    wide.send(*(metadata(number) for number in range(600)))
    await until(lambda: ours.queued_bytes() > QUEUE_MARK_BYTES)
    async with wide.cluster.client() as other:
        for _ in range(20):
            await other.list_topics()
    assert ours.queued_bytes() < QUEUE_MARK_BYTES + (32 << 10)
    assert handled(wide) - before < 80
    assert len(wide.cluster.brokers[0].replicas.purgatory.ready) == 0
    wide.peer.link.resume_reading()
    await wide.answered(*range(600))


async def test_waiting_fetch_is_answered_before_the_requests_behind_it(bench: Bench) -> None:
    bench.send(waiting_fetch(1), metadata(2), metadata(3), metadata(4))
    await bench.answered(1, 2, 3, 4)


async def test_at_most_one_cold_response_waits_for_an_earlier_response(bench: Bench) -> None:
    bench.peer.link.other._handler.answers.reserve()
    bench.send(*(find(number) for number in range(2, 40)))
    await until(lambda: bench.parking.parked)
    bench.parking.answer()
    for _ in range(20):
        await bench.cluster.brokers[0].clock.sleep(0)
    assert len(bench.parking.parked) == 1


async def test_parsing_stops_inside_the_buffer_while_too_many_requests_wait(
    bench: Bench,
) -> None:
    bench.send(*(produce(number) for number in range(200)))  # makes the buffer large
    await until(lambda: len(bench.peer.answered()) == 200)
    frames = [find(number) for number in range(200, 200 + 3 * WAITING_MAX)]
    bench.send(*frames, produce(999))
    await until(lambda: bench.peer.link.other._paused)
    assert bench.log_end == 200
    for number in range(3 * WAITING_MAX):
        await until(lambda: len(bench.parking.parked) == number + 1)  # noqa: B023  awaited here
        bench.parking.answer(number)
    await bench.answered(*range(200 + 3 * WAITING_MAX), 999)
    assert bench.log_end == 201


def _in_steps(services: Services, asked: Any, context: RequestContext) -> Any:
    def steps() -> Iterator[None]:
        for _ in range(50):
            yield
        return response(FIND_COORDINATOR, 0, node_id=7, host="h", port=1)

    return steps()


async def _later_in_steps(*arguments: Any) -> Any:
    return _in_steps(*arguments)


def _failing_in_steps(*_: Any) -> Any:
    def steps() -> Iterator[None]:
        yield
        raise KeyError("a defect")

    return steps()


@pytest.mark.parametrize("handler", [_in_steps, _later_in_steps])
async def test_long_response_yields_to_other_connections(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, handler: Callable[..., Any]
) -> None:
    monkeypatch.setattr(scheduler, "TURN_MS", 0)
    monkeypatch.setitem(listener.HANDLERS, FIND_COORDINATOR, handler)
    bench.send(find(1), find(2))
    other = Peer()
    await bench.cluster.transport.connect(lambda: other, "127.0.0.1", 9092)
    other.link.send([metadata(1)])
    await until(lambda: other.answered() == [1])
    assert bench.peer.answered() == []
    await bench.answered(1, 2)


async def test_exception_in_the_generator_of_a_response_closes_the_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(listener.HANDLERS, FIND_COORDINATOR, _failing_in_steps)
    bench.send(find(1), metadata(2))
    await until(lambda: bench.peer.is_closed)
    assert bench.cluster.crashes == []


def large(correlation: int, count: int = 3_000) -> bytes:
    """Return a Metadata request for `count` topics, with 12 bytes for each topic."""
    topics = [{"name": f"topic-{number:04}"} for number in range(count)]
    body = request(METADATA, 9, topics=topics, allow_auto_topic_creation=False)
    return encode_request(METADATA, 9, correlation, "me", body)


class Counting:
    """A handler of Metadata that yields ten times before it responds, and counts the requests in progress."""

    def __init__(self) -> None:
        self.in_progress = self.most = self.done = 0
        self.is_held = False
        """True while the requests in progress must not continue."""

    def __call__(self, services: Services, asked: Any, context: RequestContext) -> Any:
        self.in_progress += 1
        self.most = max(self.most, self.in_progress)
        for _ in range(10):
            yield
        while self.is_held:
            yield
        self.in_progress -= 1
        self.done += 1
        return response(METADATA, 9)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Return a `Counting` that handles all Metadata requests. Each turn of the event loop does one of its steps."""
    made = Counting()
    monkeypatch.setitem(listener.HANDLERS, METADATA, made)
    monkeypatch.setattr(scheduler, "TURN_MS", 0)
    return made


async def connected(bench: Bench) -> Peer:
    peer = Peer()
    await bench.cluster.transport.connect(lambda: peer, "127.0.0.1", 9092)
    return peer


async def test_at_most_one_large_request_of_all_connections_is_in_progress(
    bench: Bench, counting: Counting
) -> None:
    peers = [bench.peer] + [await connected(bench) for _ in range(4)]
    for peer in peers:
        peer.link.send([large(1) + large(2)])
    await until(lambda: all(peer.answered() == [1, 2] for peer in peers))
    assert (counting.most, counting.done) == (1, 10)


async def test_no_second_large_request_begins_while_a_large_requests_handler_is_awaited(
    bench: Bench, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def handle(services: Services, asked: Any, context: RequestContext) -> Any:
        steps = counting(services, asked, context)
        next(steps)
        await released.wait()
        return steps

    monkeypatch.setattr(cold_requests, "LARGE_BYTES", 100)
    monkeypatch.setitem(listener.HANDLERS, METADATA, handle)
    peers = [bench.peer] + [await connected(bench) for _ in range(4)]
    for peer in peers:
        peer.link.send([large(1, 10) + large(2, 10)])
    await until(lambda: counting.in_progress)
    small = [await connected(bench) for _ in range(5)]
    for peer in small:
        parked = len(bench.parking.keys)
        peer.link.send([find(1)])
        await until(lambda parked=parked: len(bench.parking.keys) > parked)
    assert counting.in_progress == 1
    released.set()
    await until(lambda: all(peer.answered() == [1, 2] for peer in peers))
    assert (counting.most, counting.done) == (1, 10)


async def test_small_request_is_answered_while_a_large_one_is_decoded(
    bench: Bench, counting: Counting
) -> None:
    other = await connected(bench)
    bench.send(large(1))
    other.link.send([find(1)])
    await until(lambda: bench.parking.keys)
    assert counting.most == 0  # the large request is not decoded yet
    bench.parking.answer()
    await until(lambda: other.answered() == [1])
    await bench.answered(1)


@pytest.mark.parametrize("is_begun", [True, False])
async def test_large_request_begins_when_the_connection_of_an_earlier_one_closes(
    bench: Bench, counting: Counting, is_begun: bool
) -> None:
    first, second, third = bench.peer, await connected(bench), await connected(bench)
    counting.is_held = True
    for peer in (first, second, third):
        peer.link.send([large(1)])
    await until(lambda: counting.in_progress == 1)
    open_connections = bench.cluster.brokers[0].listener._connections
    count = len(open_connections)
    (first if is_begun else second).link.abort()
    await until(lambda: len(open_connections) == count - 1)
    counting.is_held = False
    await until(lambda: third.answered() == [1])
    assert counting.done == 2


async def test_malformed_large_request_closes_only_the_connection_that_sent_it(
    bench: Bench, counting: Counting
) -> None:
    other = await connected(bench)
    frame = bytearray(large(1))
    frame[-28] = 0xFF  # the length of the second last name
    bench.send(bytes(frame))
    other.link.send([large(1)])
    await until(lambda: bench.peer.is_closed)
    await until(lambda: other.answered() == [1])


@pytest.mark.parametrize("steps", [0, 1, 100])
async def test_response_is_sent_when_the_handler_answers_with_a_generator(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    def made() -> Steps:
        for _ in range(steps):
            yield
        return response(METADATA, 9)

    def handle(services: Services, asked: Any, context: RequestContext) -> Any:
        context.answer(made())
        return LATER

    monkeypatch.setitem(listener.HANDLERS, METADATA, handle)
    bench.send(metadata(1), metadata(2), large(3))
    await bench.answered(1, 2, 3)
