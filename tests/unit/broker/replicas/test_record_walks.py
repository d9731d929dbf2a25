"""The check of produced records before the append, and the event loop turns over which long checks are spread."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any

import cramjam
import pytest
from support.kafka.encoders import CODECS, raw_batch
from support.kafka.peer import Peer
from support.kafka.produced_batches import MANY, MANY_COUNT, THREE, record
from support.until import until

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.replicas.record_walks import MEMORY_MAX, PendingWalk, RecordWalks
from minikafka.broker.turns import Scheduler
from minikafka.client import NewTopic
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.kafka.records.batch import Record, build, records
from minikafka.kafka.records.codecs import compress
from minikafka.kafka.records.rules import RecordRules
from minikafka.kafka.records.walk import Walk, judge
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import API_VERSIONS, PRODUCE
from minikafka.simulation.cluster import MemoryCluster
from minikafka.storage.log.log import Log
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import Purgatory


def walk(pieces: int = 4, count: int = 1) -> Walk:
    """Return a `Walk` over a batch with one record of `pieces` × 32 KiB. The batch header says `count` records."""
    batch = raw_batch(record(value=bytes(pieces << 15)), count)
    outcome = judge(memoryview(batch), 0, len(batch), RecordRules(1 << 30), 0, 0)
    assert isinstance(outcome, Walk)
    return outcome


class Loop:
    """A clock that stands still, with at most one timer; `turn` runs the timer's callback."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def now(self) -> int:
        return 0

    def call_later(self, ms: float, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def turn(self) -> None:
        (callback,) = self.due
        self.due.clear()
        callback()


class Turns:
    def __init__(self) -> None:
        self.loop: Any = Loop()
        self.walks = RecordWalks(self.loop, Scheduler(self.loop, lambda now: None).checks)
        self.done: list[str] = []

    def add(self, name: str, walk: Walk) -> PendingWalk:
        pending = PendingWalk(walk, lambda: self.end(name, pending))
        self.walks.add(pending)
        return pending

    def end(self, name: str, pending: PendingWalk) -> None:
        self.done.append(name)
        self.walks.release(pending)

    def all(self) -> Iterator[list[str]]:
        """Run event loop turns until no timer is due; after each turn, yield the names of the finished requests."""
        while self.loop.due:
            self.loop.turn()
            yield list(self.done)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_record_check_does_not_begin_before_the_next_event_loop_turn(turns: Turns) -> None:
    one = walk()
    turns.add("a", one)
    assert one.inflated == 0
    assert [*turns.all()][-1] == ["a"]
    assert (one.is_done, one.verdict) == (True, 0)


def test_long_record_check_does_not_delay_a_short_one(turns: Turns) -> None:
    turns.add("long", walk(300))
    turns.add("short", walk())
    assert [*turns.all()][-1] == ["short", "long"]


def test_event_loop_turn_checks_few_records_and_finishes_at_most_one_request(
    turns: Turns,
) -> None:
    """Between two turns, the event loop serves the sockets."""
    turns.add("long", walk(200))
    for name in "ab":
        turns.add(name, walk())
    took = [*turns.all()]
    assert len(took) > 200 / 64
    sizes = [len(done) for done in took]
    assert all(after - before <= 1 for before, after in pairwise(sizes))


def bomb(codec: int, content: int) -> bytes:
    """Return a batch with one record of `content` zero bytes; with snappy, in one block, as librdkafka sends it."""
    content_of = record(value=bytes(content))
    if codec == CODECS["snappy"]:
        return raw_batch(bytes(cramjam.snappy.compress_raw(content_of)), 1, codec=codec)
    return raw_batch(compress(codec, content_of), 1, codec=codec)


def begun(batch: bytes, rules: RecordRules = RecordRules(1 << 30)) -> Walk:  # noqa: B008  never changed
    """Return a `Walk` over the batch that has taken the steps that it takes before it is queued."""
    outcome = judge(memoryview(batch), 0, len(batch), rules, 0, 0)
    assert isinstance(outcome, Walk)
    assert all(outcome.step() for _ in range(4))
    return outcome


def test_record_checks_of_all_connections_hold_little_decompressed_memory(turns: Turns) -> None:
    """A snappy batch is decompressed as a whole; without a limit, every waiting check would hold 20 MB."""
    batch = bomb(CODECS["snappy"], 20 << 20)
    walks: list[Walk] = []
    for number in range(9):
        walks.append(begun(batch))
        turns.add(str(number), walks[-1])
        assert sum(one.inflated for one in walks) <= MEMORY_MAX
    for _ in turns.all():
        assert sum(one.inflated for one in walks if not one.is_done) <= MEMORY_MAX
    assert len(turns.done) == len(walks)
    assert {one.verdict for one in walks} == {0}


def test_record_check_that_needs_much_memory_is_done_alone(turns: Turns) -> None:
    """The batch inflates to the content of a Zstandard window of 128 MiB, more than all checks may hold."""
    large = begun(bomb(CODECS["zstd"], 1 << 20))
    pending = PendingWalk(large, lambda: None)
    pending.memory = MEMORY_MAX + 1
    small = [walk() for _ in range(3)]
    turns.add("before", small[0])
    turns.walks.add(pending)
    turns.add("after", small[1])
    assert large.inflated == 0
    assert [*turns.all()][-1] == ["before"]
    assert large.is_done
    turns.walks.release(pending)
    assert [*turns.all()][-1] == ["before", "after"]


@pytest.mark.parametrize("codec", CODECS)
def test_expected_memory_of_a_record_check_covers_what_it_holds(codec: str) -> None:
    content = 3 << 20
    batch = bomb(CODECS[codec], content)
    small = 1 << 20
    expected = {"none": small, "gzip": small, "snappy": content, "lz4": small, "zstd": content}
    memory = begun(batch).memory()
    assert memory < expected[codec] + small
    assert codec != "snappy" or memory >= content
    to_gzip = begun(batch, RecordRules(5 << 20, codec=CODECS["gzip" if codec != "gzip" else "lz4"]))
    assert to_gzip.memory() > memory


async def test_many_connections_with_compressed_bombs_take_little_memory(bench: Bench) -> None:
    frame = produce(1, bomb(CODECS["snappy"], 20 << 20))
    peers = [Peer() for _ in range(8)]
    for peer in peers:
        await bench.cluster.transport.connect(lambda peer=peer: peer, "127.0.0.1", 9092)  # type: ignore[misc]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for peer in peers:
            peer.link.send([frame])
        await until(lambda: all(peer.answered() for peer in peers))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bench.log().log_end_offset == len(peers)
    assert peak - before < MEMORY_MAX + 8 * len(frame) * 4 + (24 << 20)


@pytest.mark.key("compression.type")
async def test_recompressed_batches_of_one_request_are_not_held_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 20 partitions gets 900 KB of zeros, which arrive compressed and are stored without compression."""
    parts, most = 20, 0
    held: list[bytearray] = []
    end, append = Walk.end, Purgatory.append

    def ended(walk: Walk, verdict: int | bytearray) -> None:
        nonlocal most
        end(walk, verdict)
        if isinstance(verdict, bytearray):
            held.append(verdict)
        most = max(most, len(held))

    def used(
        self: Purgatory, partition: Partition, field: memoryview, *rest: int, **options: Any
    ) -> int:
        held[:] = [one for one in held if one is not field.obj]
        return append(self, partition, field, *rest, **options)

    monkeypatch.setattr(Walk, "end", ended)
    monkeypatch.setattr(Purgatory, "append", used)
    async with started(compression_type="uncompressed") as bench:
        async with bench.cluster.client() as client:
            await client.admin.create_partitions({"t": parts})
        partitions = bench.broker.replicas.partitions
        await until(lambda: TopicPartition("t", parts - 1) in partitions)
        bench.send(produce(1, *[bomb(CODECS["zstd"], 900_000)] * parts))
        assert await bench.answered(1) == [[0] * parts]
    assert (held, most) == ([], 1)


def test_cancelled_record_check_does_not_call_its_callback(turns: Turns) -> None:
    one = walk(200)
    pending = turns.add("a", one)
    turns.add("b", walk())
    turns.loop.turn()
    turns.walks.release(pending)
    assert [*turns.all()][-1] == ["b"]
    assert not one.is_done


def test_record_check_that_is_added_by_the_callback_of_another_is_done(turns: Turns) -> None:
    turns.walks.add(PendingWalk(walk(), lambda: turns.add("next", walk()) and None))
    assert [*turns.all()][-1] == ["next"]


def test_records_are_refused_when_their_check_raises_an_exception(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = walk(), walk()
    monkeypatch.setattr(broken, "_steps", map(int, ["not a number"]))
    turns.add("a", broken)
    turns.add("b", other)
    assert sorted([*turns.all()][-1]) == ["a", "b"]
    assert (broken.verdict, other.verdict) == (ErrorCode.INVALID_RECORD, 0)
    assert "could not be read" in caplog.text


VERSION = 9
INVALID = int(ErrorCode.INVALID_RECORD)
GOOD = build([Record(0, 1000, None, b"x", ())])
LARGE_COUNT = 1500
LARGE = build([Record(0, 1000, b"k", b"%0600d" % n, ()) for n in range(LARGE_COUNT)])
"""Too large to be walked at once."""
LARGE_INVALID = raw_batch(LARGE[61:], LARGE_COUNT + 1)
UNREADABLE = raw_batch(THREE, 4)


class Bench:
    """One broker with topic t of two partitions, and a connection to the broker."""

    def __init__(self, cluster: MemoryCluster, peer: Peer) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[0]
        self.peer = peer

    def log(self, number: int = 0, topic: str = "t") -> Log:
        return self.broker.replicas.partitions[TopicPartition(topic, number)].log

    def stored(self, number: int = 0, topic: str = "t") -> list[Record]:
        log = self.log(number, topic)
        data, _, _ = log.read(log.locate(0), log.written_position, 1 << 30)
        return list(records(data))

    def send(self, *frames: bytes) -> None:
        self.peer.link.send([b"".join(frames)])

    async def answered(self, *correlations: int) -> list[list[int]]:
        """Wait for these responses, in this order; return the error codes of each Produce response."""
        async with asyncio.timeout(30):
            await until(lambda: len(self.peer.answered()) >= len(correlations))
        assert self.peer.answered() == list(correlations)
        return [
            [
                int(row.error_code)
                for topic in decode_response(PRODUCE, VERSION, frame).responses
                for row in topic.partition_responses
            ]
            for frame in self.peer.frames()
        ]


@asynccontextmanager
async def started(keys: Mapping[str, Any] | None = None, **settings: str) -> AsyncIterator[Bench]:
    async with MemoryCluster(1, **(keys or {})) as cluster:
        async with cluster.client() as client:
            configs = {name.replace("_", "."): value for name, value in settings.items()}
            await client.create_topics(NewTopic("t", 2, 1, configs=configs))
        peer = Peer()
        await cluster.transport.connect(lambda: peer, "127.0.0.1", 9092)
        yield Bench(cluster, peer)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with started() as bench:
        yield bench


def produce(correlation: int, *batches: bytes, acks: int = -1) -> bytes:
    """Return a Produce request with these batches, one for each of the first partitions of t."""
    rows = [{"index": number, "records": batch} for number, batch in enumerate(batches)]
    body = request(
        PRODUCE,
        VERSION,
        transactional_id=None,
        acks=acks,
        timeout_ms=60_000,
        topic_data=[{"name": "t", "partition_data": rows}],
    )
    return encode_request(PRODUCE, VERSION, correlation, "me", body)


async def test_records_that_no_consumer_can_read_are_refused(bench: Bench) -> None:
    bench.send(produce(1, UNREADABLE), produce(2, GOOD), produce(3, UNREADABLE, GOOD))
    assert await bench.answered(1, 2, 3) == [[INVALID], [0], [INVALID, 0]]
    assert (bench.log(0).log_end_offset, bench.log(1).log_end_offset) == (1, 1)


async def test_responses_keep_their_order_behind_a_large_request(bench: Bench) -> None:
    versions = encode_request(API_VERSIONS, 0, 3, "me", request(API_VERSIONS, 0))
    frames = [produce(1, GOOD), produce(2, LARGE), versions, produce(4, GOOD)]
    bench.send(*frames)
    await until(lambda: len(bench.peer.answered()) == 4)
    assert bench.peer.answered() == [1, 2, 3, 4]
    assert bench.log().log_end_offset == LARGE_COUNT + 2


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
async def test_large_valid_batch_is_stored_unchanged(bench: Bench, codec: int) -> None:
    sent = raw_batch(compress(codec, MANY), MANY_COUNT, codec=codec)
    small = raw_batch(compress(codec, THREE), 3, codec=codec)
    large = raw_batch(compress(codec, LARGE[61:]), LARGE_COUNT, codec=codec)
    bench.send(produce(1, sent), produce(2, small), produce(3, large), produce(4, small, large))
    assert await bench.answered(1, 2, 3, 4) == [[0], [0], [0], [0, 0]]
    values = [record.value for batch in (sent, small, large, small) for record in records(batch)]
    assert [record.value for record in bench.stored()] == values
    assert bench.stored(1) == list(records(large))


async def test_sequence_numbers_stay_in_order_behind_a_large_batch(bench: Bench) -> None:
    def batch(sequence: int, count: int, size: int) -> bytes:
        made = [Record(0, 1000, None, bytes(size), ())] * count
        return build(made, producer_id=7, producer_epoch=0, base_sequence=sequence)

    bench.send(
        produce(1, batch(0, 1, 10)),
        produce(2, batch(1, 1000, 1000)),
        produce(3, batch(1001, 1, 10)),
        produce(4, batch(1002, 500, 1000), batch(0, 500, 1000)),
        produce(5, batch(1502, 1, 10)),
    )
    answers = await bench.answered(1, 2, 3, 4, 5)
    assert answers == [[0], [0], [0], [0, 0], [0]]
    assert bench.log().log_end_offset == 1503


async def test_large_invalid_batch_is_refused_and_the_connection_stays_open(bench: Bench) -> None:
    bench.send(produce(1, LARGE_INVALID), produce(2, LARGE_INVALID, LARGE), produce(3, GOOD))
    assert await bench.answered(1, 2, 3) == [[INVALID], [INVALID, 0], [0]]
    assert (bench.log(0).log_end_offset, bench.log(1).log_end_offset) == (1, LARGE_COUNT)


async def test_other_connections_are_served_while_records_are_checked(bench: Bench) -> None:
    other = Peer()
    await bench.cluster.transport.connect(lambda: other, "127.0.0.1", 9092)
    bomb = raw_batch(compress(4, record(value=bytes(48 << 20))), 1, codec=4)
    bench.send(produce(1, bomb))
    pending = bench.broker.replicas.walks
    await until(lambda: pending._active)
    for correlation in range(3):
        other.link.send([produce(correlation, GOOD)])
        await until(lambda: len(other.answered()) == correlation + 1)  # noqa: B023  awaited here
        assert bench.peer.answered() == []
    assert await bench.answered(1) == [[0]]


async def test_record_check_ends_when_the_connection_of_its_request_closes(bench: Bench) -> None:
    bomb = raw_batch(compress(4, record(value=bytes(64 << 20))), 1, codec=4)
    bench.send(produce(1, bomb), produce(2, GOOD))
    ours, walks = bench.peer.link.other, bench.broker.replicas.walks
    await until(lambda: walks._active)
    ours.abort()
    await until(lambda: not walks._active)
    other = Peer()
    await bench.cluster.transport.connect(lambda: other, "127.0.0.1", 9092)
    other.link.send([produce(1, LARGE)])
    await until(lambda: other.answered() == [1])
    assert bench.log().log_end_offset == LARGE_COUNT
    assert bench.cluster.crashes == []


async def test_large_invalid_batch_with_acks_0_closes_the_connection(
    bench: Bench,
) -> None:
    bench.send(produce(1, LARGE, acks=0), produce(2, GOOD))
    await bench.answered(2)
    bench.send(produce(3, LARGE_INVALID, acks=0))
    await until(lambda: bench.peer.is_closed)
    assert bench.log().log_end_offset == LARGE_COUNT + 1


async def test_batch_above_max_message_bytes_is_refused_before_its_records_are_checked() -> None:
    async with started(max_message_bytes="1000") as bench:
        bench.send(produce(1, LARGE_INVALID), produce(2, UNREADABLE))
        assert await bench.answered(1, 2) == [[ErrorCode.MESSAGE_TOO_LARGE], [INVALID]]


async def test_wrong_crc_is_reported_before_unreadable_records(bench: Bench) -> None:
    for large in (UNREADABLE, LARGE_INVALID):
        bench.send(produce(1, large[:-1] + b"?"))
    assert (await bench.answered(1, 1))[0] == [ErrorCode.CORRUPT_MESSAGE]


@pytest.mark.key("minikafka.records.check.enable")
class TestSwitchedOff:
    OFF = {"minikafka_records_check_enable": "false"}  # noqa: RUF012  never changed

    async def test_unreadable_records_are_accepted_when_the_record_check_is_disabled(self) -> None:
        async with started(self.OFF) as bench:
            bench.send(produce(1, UNREADABLE), produce(2, LARGE_INVALID, UNREADABLE))
            assert await bench.answered(1, 2) == [[0], [0, 0]]

    async def test_compacted_topic_refuses_unreadable_records_although_checks_are_disabled(
        self,
    ) -> None:
        async with started(self.OFF, cleanup_policy="compact") as bench:
            bench.send(produce(1, UNREADABLE), produce(2, GOOD))
            assert await bench.answered(1, 2) == [[INVALID], [INVALID]]


async def test_records_without_a_key_are_refused_in_compacted_topics() -> None:
    keyed = build([Record(0, 1000, b"k", None, ())])
    mixed = build([Record(0, 1000, b"k", b"v", ()), Record(0, 1000, None, b"v", ())])
    async with started(cleanup_policy="compact") as bench:
        bench.send(produce(1, GOOD), produce(2, keyed), produce(3, mixed), produce(4, LARGE))
        assert await bench.answered(1, 2, 3, 4) == [[INVALID], [0], [INVALID], [0]]
        async with bench.cluster.client() as client:
            await client.admin.alter_configs(
                {Resource(ResourceType.TOPIC, "t"): {"cleanup.policy": "delete"}}
            )
        bench.send(produce(5, GOOD))
        assert (await bench.answered(1, 2, 3, 4, 5))[-1] == [0]


@pytest.mark.key("compression.type")
@pytest.mark.parametrize("to", CODECS)
async def test_batches_are_stored_with_the_codec_of_the_topic(to: str) -> None:
    name = "uncompressed" if to == "none" else to
    async with started(compression_type=name) as bench:
        sent = [
            raw_batch(compress(codec, body), count, codec=codec)
            for codec in CODECS.values()
            for body, count in ((THREE, 3), (MANY, MANY_COUNT))
        ]
        bench.send(*(produce(number, batch) for number, batch in enumerate(sent)))
        answers = await bench.answered(*range(len(sent)))
        assert answers == [[0]] * len(sent)
        values = [record.value for batch in sent for record in records(batch)]
        assert [record.value for record in bench.stored()] == values
        assert [record.offset for record in bench.stored()] == list(range(len(values)))
        log = bench.log()
        data, _, _ = log.read(0, log.written_position, 1 << 30)
        assert data[22] & 7 == CODECS[to]


@pytest.mark.key("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", 1, 19)]
)
async def test_batches_are_compressed_with_the_level_of_the_topic(
    codec: str, low: int, high: int
) -> None:
    words, choice = [b"alpha ", b"beta ", b"gamma ", b"delta ", b"eps "], Random(3).randrange
    values = [b"".join(words[choice(5)] for _ in range(40)) for _ in range(300)]
    batch = build([Record(0, 1000, None, value, ()) for value in values])
    sizes = []
    for level in (low, high):
        async with started(
            compression_type=codec, **{f"compression_{codec}_level": str(level)}
        ) as bench:
            bench.send(produce(1, batch))
            assert await bench.answered(1) == [[0]]
            assert [record.value for record in bench.stored()] == values
            sizes.append(bench.log().written_position)
    assert sizes[0] > sizes[1]


async def test_append_time_is_set_in_a_batch_that_is_recompressed() -> None:
    async with started(compression_type="gzip", message_timestamp_type="LogAppendTime") as bench:
        bench.send(produce(1, raw_batch(MANY, MANY_COUNT)))
        assert await bench.answered(1) == [[0]]
        assert {record.timestamp for record in bench.stored()} != {1000}
        assert len({record.timestamp for record in bench.stored()}) == 1


async def test_record_checks_are_deferred_to_later_turns_when_a_turn_takes_too_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker measures the time of a turn, because the size of a batch does not tell how long its check takes."""
    batch = build([Record(0, 1000, None, bytes(20_000), ())])
    begun: list[PendingWalk] = []
    add = RecordWalks.add

    def counted(walks: RecordWalks, pending: PendingWalk) -> None:
        begun.append(pending)
        add(walks, pending)

    monkeypatch.setattr(RecordWalks, "add", counted)
    begin = bench.broker.clock.now()
    monkeypatch.setattr(bench.broker.clock, "now", lambda: begin)
    bench.send(*(produce(number, batch) for number in range(3)))
    await bench.answered(0, 1, 2)
    assert begun == []
    ticks = iter(range(10_000))
    monkeypatch.setattr(bench.broker.clock, "now", lambda: begin + 2 * next(ticks))
    bench.send(*(produce(number, batch) for number in range(3)))
    await bench.answered(0, 1, 2, 0, 1, 2)
    assert begun
