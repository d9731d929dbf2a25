"""The loader reads partitions in small steps and finishes only when the end of a partition is certain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.brokers.cold import Tasks
from support.storage.logs import end_marker
from support.until import until

from minikafka.base.coordinators import (
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TransactionEnded,
)
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.coordinators.internal_topic import TopicSettings
from minikafka.broker.coordinators.loading import Loader, read_chunk
from minikafka.broker.turns import Scheduler
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.kafka.records.transactions import Marker
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.descriptors import no_descriptor


class Log:
    """A partition reader that returns one chunk per read. After the last chunk, `at_end` returns `is_certain`."""

    def __init__(self, *chunks: bytes, is_certain: bool = True) -> None:
        self.chunks = list(chunks)
        self.is_certain = is_certain
        self.error: KafkaError | None = None

    def read(self, max_bytes: int) -> bytes:
        if self.error is not None:
            raise self.error
        return self.chunks.pop(0) if self.chunks else b""

    def at_end(self) -> bool:
        return self.is_certain and not self.chunks

    def file_of(self, offset: int) -> str:
        return "/d/c-3/0.log"


class Target:
    """A stand-in for a coordinator. `values`: loaded values by partition. `steps`: number of values per event."""

    def __init__(self) -> None:
        self.values: dict[int, list[bytes | None]] = {}
        self.steps: list[int] = []

        self.loaded: list[tuple[int, int]] = []

    def handle(self, event: RecordsRead | TransactionEnded | LoadFinished) -> None:
        if isinstance(event, RecordsRead):
            found = [value for _, value, _ in event.records]
            self.steps.append(len(found))
            self.values.setdefault(event.partition, []).extend(found)
        elif isinstance(event, LoadFinished):
            self.loaded.append((event.partition, event.epoch))


class Topic:
    """An internal topic that is in the metadata if `exists` is set."""

    settings = TopicSettings("c", 10, 1, "", {}, load_bytes=1000)
    exists = True
    partition_count = 10


class Bench:
    """A loader that reads the given `Log` objects."""

    def __init__(self, **logs: Log) -> None:
        self.logs = {int(name[1:]): log for name, log in logs.items()}
        self.target = Target()
        self.topic = Topic()
        self.tasks = Tasks()
        self.clock = LoopClock()
        self.loader = Loader(
            self.target.handle,
            self.topic,  # type: ignore[arg-type]
            self.open,  # type: ignore[arg-type]
            Scheduler(self.clock, lambda now: None).loading,
            self.clock,
            self.tasks,
        )

    def open(self, tp: TopicPartition) -> Log:
        return self.logs[tp.partition]


def records(*values: str) -> bytes:
    return build([Record(timestamp=0, key=b"k", value=value.encode()) for value in values])


async def test_partition_load_reads_on_until_the_reader_confirms_the_end_of_the_log() -> None:
    bench = Bench(p3=Log(records("a", "b"), records("c"), is_certain=False))
    bench.loader.start(LoadPartition(3, 7))
    await bench.clock.sleep(30)
    assert bench.target.values == {3: [b"a", b"b", b"c"]}
    assert bench.target.loaded == []
    bench.logs[3].chunks.append(records("d"))
    bench.logs[3].is_certain = True
    await bench.tasks.settle()
    assert bench.target.values == {3: [b"a", b"b", b"c", b"d"]}
    assert bench.target.loaded == [(3, 7)]


async def test_load_that_waits_for_the_log_end_does_not_delay_another_partitions_load() -> None:
    bench = Bench(p0=Log(records("a"), is_certain=False), p1=Log(records("b")))
    bench.loader.start(LoadPartition(0, 1))
    bench.loader.start(LoadPartition(1, 1))
    await until(lambda: bench.target.loaded)
    assert bench.target.loaded == [(1, 1)]
    bench.loader.cancel(0)
    await bench.tasks.settle()
    assert bench.target.loaded == [(1, 1)]


async def test_load_waits_until_the_metadata_shows_the_topic() -> None:
    bench = Bench(p0=Log(records("a")))
    bench.topic.exists = False
    bench.loader.start(LoadPartition(0, 1))
    await bench.clock.sleep(30)
    assert bench.target.loaded == []
    bench.topic.exists = True
    await bench.tasks.settle()
    assert bench.target.loaded == [(0, 1)]


async def test_load_lets_other_tasks_run_between_the_records_of_one_batch() -> None:
    bench = Bench(p0=Log(records(*map(str, range(1000)))))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(other())
    bench.loader.start(LoadPartition(0, 1))
    await bench.tasks.settle()
    task.cancel()
    assert bench.target.steps == [200] * 5
    assert turns >= 5


async def test_load_begins_again_in_a_later_leader_epoch() -> None:
    log = Log(records("a"), is_certain=False)
    bench = Bench(p0=log)
    bench.loader.start(LoadPartition(0, 1))
    await bench.clock.sleep(30)
    bench.logs[0] = Log(records("a"), records("b"))
    bench.loader.start(LoadPartition(0, 2))
    log.is_certain = True
    await bench.tasks.settle()
    assert bench.target.loaded == [(0, 2)]
    assert bench.target.values == {0: [b"a", b"a", b"b"]}


async def test_load_ends_when_the_leadership_has_ended() -> None:
    bench = Bench(p0=Log(records("a"), is_certain=False))
    bench.loader.start(LoadPartition(0, 1))
    await bench.clock.sleep(30)
    bench.logs[0].error = KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    await bench.tasks.settle()
    assert bench.target.loaded == []
    bench.logs[0].error = None
    bench.loader.start(LoadPartition(0, 2))
    bench.logs[0].is_certain = True
    await bench.tasks.settle()
    assert bench.target.loaded == [(0, 2)]


async def test_partition_is_loaded_after_the_load_of_another_one_has_failed() -> None:
    bench = Bench(p0=Log(records("a")), p1=Log(records("b")))
    failures = [ValueError("a record of a later version")]

    def fail_once(event: Any) -> None:
        if failures:
            raise failures.pop()
        bench.target.handle(event)

    bench.loader._handle = fail_once
    bench.loader.start(LoadPartition(0, 1))
    with pytest.raises(ValueError, match="later version"):
        await bench.tasks.settle()
    bench.loader.start(LoadPartition(1, 1))
    await until(lambda: (1, 1) in bench.target.loaded, seconds=5)
    await bench.tasks.settle()


async def test_load_continues_after_a_read_that_found_no_file_descriptor() -> None:
    bench = Bench(p0=Log(records("a")))
    failed = bench.logs[0].error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    failed.__cause__ = no_descriptor("/d/0.index")
    bench.loader.start(LoadPartition(0, 1))
    await bench.clock.sleep(30)
    assert bench.target.loaded == []
    bench.logs[0].error = None
    await bench.tasks.settle()
    assert (bench.target.loaded, bench.target.values) == ([(0, 1)], {0: [b"a"]})


def test_chunk_is_read_as_records_with_their_transactions_and_markers_in_order() -> None:
    attributes = {"producer_id": 7, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    in_transaction = build([Record(timestamp=0, key=b"k", value=b"c")], **attributes)
    broken = bytearray(records("lost"))
    broken[-1] ^= 1
    chunk = b"".join(
        (
            records("a", "b"),
            in_transaction,
            bytes(broken),
            end_marker(),
            records("d"),
        )
    )
    skipped: list[tuple[int, str]] = []
    read = read_chunk(chunk, lambda offset, error: skipped.append((offset, str(error))))
    assert list(read) == [
        LoadedRecord(b"k", b"a"),
        LoadedRecord(b"k", b"b"),
        LoadedRecord(b"k", b"c", 7),
        Marker(7, committed=True),
        LoadedRecord(b"k", b"d"),
    ]
    assert [offset for offset, _ in skipped] == [0]


async def test_corrupt_batch_is_named_until_the_partition_is_loaded_again_or_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = bytearray(build([Record(timestamp=0, key=b"k", value=b"lost")], base_offset=41))
    broken[-1] ^= 1
    bench = Bench(p3=Log(records("a"), bytes(broken)))
    bench.loader.start(LoadPartition(3, 7))
    await bench.tasks.settle()
    assert bench.target.values == {3: [b"a"]}
    [batch] = bench.loader.skipped[3]
    assert batch[:4] == ("c", 3, 41, "/d/c-3/0.log")
    assert "skipping a corrupt batch of c-3 at offset 41 in /d/c-3/0.log: " in caplog.text
    bench.logs[3] = Log(records("a"))
    bench.loader.start(LoadPartition(3, 8))
    assert bench.loader.skipped == {}
    await bench.tasks.settle()
    bench.loader.skipped[3] = [batch]
    bench.loader.cancel(3)
    assert bench.loader.skipped == {}
