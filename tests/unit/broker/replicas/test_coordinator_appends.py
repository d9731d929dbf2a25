"""Appends to one partition: those of one event loop turn share a batch, but each has its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from minikafka.base.coordinators import Append, TransactionalProducer
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.replicas.internal_appends import CoordinatorAppends
from minikafka.deciders.decider import Outcome
from minikafka.kafka.records.batch import records
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    HEADER,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from minikafka.simulation.clocks import ManualClock

TIMEOUT_MS = 5_000
BATCH_BYTES_MAX = 200


class Log:
    """A log that refuses batches larger than `BATCH_BYTES_MAX`; `end_turn` calls `before_write`'s callbacks."""

    def __init__(self) -> None:
        self.gathered: list[Callable[[], None]] = []
        self.batches: list[tuple[int, list[bytes | None], asyncio.Future[int]]] = []
        self.producers: list[tuple[int, int, int]] = []
        """Producer id, epoch and transactional bit of each batch."""
        self.guards: list[int] = []

    def append(self, tp: TopicPartition, batch: bytes, guard: int = 0) -> asyncio.Future[int]:
        self.guards.append(guard)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if len(batch) > BATCH_BYTES_MAX:
            done.set_exception(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "append"))
        else:
            self.batches.append((tp.partition, [record.key for record in records(batch)], done))
            header = HEADER.unpack_from(batch)
            self.producers.append(
                (header[PRODUCER_ID], header[PRODUCER_EPOCH], header[ATTRIBUTES] & TRANSACTIONAL)
            )
        return done

    def before_write(self, append: Callable[[], None]) -> None:
        self.gathered.append(append)

    def end_turn(self) -> None:
        gathered, self.gathered = self.gathered, []
        for append in gathered:
            append()

    def keys(self) -> list[tuple[int, list[bytes | None]]]:
        return [(partition, found) for partition, found, _ in self.batches]


class Bench:
    """The `CoordinatorAppends` under test, and `reports`: the (token, error) of each append that has ended."""

    def __init__(self) -> None:
        self.log = Log()
        self.clock = ManualClock()
        self.reports: list[Outcome] = []
        log: Any = self.log
        self.appends = CoordinatorAppends(log, self.clock, "c", 0, TIMEOUT_MS, self.reports.append)

    def add(
        self,
        token: int,
        partition: int,
        value: bytes = b"v",
        producer: TransactionalProducer | None = None,
    ) -> None:
        self.appends.add(Append(partition, [(b"%d" % token, value)], token, producer))


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_appends_of_an_event_loop_turn_become_one_batch_for_each_partition(
    bench: Bench,
) -> None:
    for token, partition in ((1, 7), (2, 8), (3, 7)):
        bench.add(token, partition)
    assert bench.log.batches == []
    bench.log.end_turn()
    bench.add(4, 7)
    bench.log.end_turn()
    assert bench.log.keys() == [(7, [b"1", b"3"]), (8, [b"2"]), (7, [b"4"])]


async def test_records_of_a_transaction_are_in_batches_of_their_producer(bench: Bench) -> None:
    first, second = TransactionalProducer(5, 1, 77), TransactionalProducer(6, 0)
    for token, producer in enumerate((None, None, first, first, second, first, None), 1):
        bench.add(token, 7, producer=producer)
    bench.log.end_turn()
    found = [keys for _, keys, _ in bench.log.batches]
    assert found == [[b"1", b"2"], [b"3", b"4"], [b"5"], [b"6"], [b"7"]]
    none, in_first = (-1, -1, 0), (5, 1, TRANSACTIONAL)
    in_second = (6, 0, TRANSACTIONAL)
    assert bench.log.producers == [none, in_first, in_second, in_first, none]
    assert bench.log.guards == [0, 77, 0, 77, 0]


async def test_result_of_each_append_is_reported_when_its_batch_is_committed(bench: Bench) -> None:
    for token in (1, 2):
        bench.add(token, 7)
    bench.log.end_turn()
    await asyncio.sleep(0)
    assert bench.reports == []
    bench.log.batches[0][2].set_result(0)
    await asyncio.sleep(0)
    assert bench.reports == [(1, 0), (2, 0)]
    bench.clock.advance(2 * TIMEOUT_MS)
    assert len(bench.reports) == 2


async def test_append_that_is_too_large_fails_without_failing_other_appends(bench: Bench) -> None:
    for token, value in ((1, b"v"), (2, bytes(BATCH_BYTES_MAX)), (3, b"v")):
        bench.add(token, 7, value)
    bench.log.end_turn()
    for _, _, done in bench.log.batches:
        done.set_result(0)
    await asyncio.sleep(0)
    assert bench.log.keys() == [(7, [b"1"]), (7, [b"3"])]
    assert sorted(bench.reports) == [(1, 0), (2, ErrorCode.MESSAGE_TOO_LARGE), (3, 0)]


async def test_appends_are_written_in_separate_batches_when_one_batch_is_too_large(
    bench: Bench,
) -> None:
    for token in (1, 2):
        bench.add(token, 7, bytes(BATCH_BYTES_MAX // 2))
    bench.log.end_turn()
    assert bench.log.keys() == [(7, [b"1"]), (7, [b"2"])]


async def test_uncommitted_appends_are_reported_as_timed_out_at_the_deadline(bench: Bench) -> None:
    for token in (1, 2):
        bench.add(token, 7)
    bench.log.end_turn()
    bench.clock.advance(1)
    bench.add(3, 7)
    bench.log.end_turn()
    bench.clock.advance(TIMEOUT_MS - 2)
    assert bench.reports == []
    bench.clock.advance(1)
    await asyncio.sleep(0)
    assert bench.reports == [(token, ErrorCode.REQUEST_TIMED_OUT) for token in (1, 2)]
    bench.clock.advance(1)
    assert bench.reports[2:] == [(3, ErrorCode.REQUEST_TIMED_OUT)]
    assert not bench.clock.waiting()


async def test_unwritten_appends_to_a_partition_fail_when_its_leadership_ends(
    bench: Bench,
) -> None:
    for token, partition in ((1, 7), (2, 8), (3, 7)):
        bench.add(token, partition)
    bench.appends.drop(7)
    bench.log.end_turn()
    assert bench.reports == [(token, ErrorCode.NOT_LEADER_OR_FOLLOWER) for token in (1, 3)]
    assert bench.log.keys() == [(8, [b"2"])]
