"""Transactional batches on one connection: which are verified, what waits for that, and which errors clients get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from support.brokers.produce_connection import T0, T1, Connected
from support.storage.logs import end_marker, transactional_batch
from support.until import until

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.rpc.coordinator_calls import VerifyRow
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.simulation.cluster import MemoryCluster

Done = Callable[[Mapping[TopicPartition, int]], None]
PRODUCER = (7, 0)
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


class Coordinator:
    """A coordinator that answers when the test calls `answer`. Without `waits`, it answers at once."""

    def __init__(self) -> None:
        self.is_enabled = True
        self.waits = True
        self.asked: list[tuple[VerifyRow, Done]] = []
        self.rows: list[VerifyRow] = []

    def verify(self, row: VerifyRow, done: Done) -> None:
        self.rows.append(row)
        self.asked.append((row, done))
        if not self.waits:
            self.answer()

    def answer(self, errors: Mapping[TopicPartition, int] = {}) -> None:
        row, done = self.asked.pop(0)
        done({tp: errors.get(tp, 0) for tp in row.partitions})


class Producing(Connected):
    """A connection of a transactional producer that sends its next batches with `write`."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.coordinator = Coordinator()
        super().__init__(cluster, verifier=self.coordinator)
        self.transactional_id = "x"
        self.sequence = 0

    def write(self, *partitions: TopicPartition, acks: int = -1) -> None:
        self.produce(
            *partitions,
            acks=acks,
            producer=(*PRODUCER, self.sequence),
            attributes=TRANSACTIONAL,
        )
        self.sequence += 1

    async def results(self) -> list[int]:
        """Return the error codes of the next response, as soon as it is there."""
        await until(lambda: self.answered)
        return list(self.answered.pop(0).values())


@pytest.fixture
async def connected() -> AsyncIterator[Producing]:
    async with MemoryCluster(1) as cluster:
        connection = Producing(cluster)
        await connection.lead(T0, 0, 1, 0)
        await connection.lead(T1, 0, 1, 0)
        yield connection


async def test_first_batch_waits_for_the_coordinator_and_later_ones_do_not(
    connected: Producing,
) -> None:
    connected.write(T0)
    assert connected.coordinator.rows == [VerifyRow("x", *PRODUCER, (T0,))]
    assert (connected.answered, connected.end_of(T0)) == ([], 0)
    connected.coordinator.answer()
    assert await connected.results() == [0]
    await until(lambda: connected.resumed)
    connected.handle()
    for _ in range(3):
        connected.write(T0)
        assert await connected.results() == [0]
    assert len(connected.coordinator.rows) == 1
    assert connected.end_of(T0) == 4


async def test_later_batches_of_a_transaction_take_the_short_way(connected: Producing) -> None:
    connected.coordinator.waits = False
    connected.write(T0)
    connected.write(T0)
    connected.api.parts = 0
    connected.write(T0)
    assert connected.api.parts == 0
    assert connected.end_of(T0) == 3


async def test_batches_of_a_request_are_verified_with_one_question(connected: Producing) -> None:
    connected.coordinator.waits = False
    connected.write(T1)
    connected.sequence = 0
    connected.coordinator.waits = True
    connected.write(T0, T1)
    assert connected.coordinator.rows[1:] == [VerifyRow("x", *PRODUCER, (T0,))]
    connected.coordinator.answer()
    assert await connected.results() == [0]
    assert await connected.results() == [0, 0]


async def test_partition_outside_the_transaction_is_refused_alone(connected: Producing) -> None:
    connected.write(T0, T1)
    connected.coordinator.answer({T1: ABORTABLE})
    assert await connected.results() == [0, ErrorCode.INVALID_TXN_STATE]
    assert (connected.end_of(T0), connected.end_of(T1)) == (1, 0)


@pytest.mark.parametrize(
    ("version", "error", "expected"),
    [
        (11, ABORTABLE, ABORTABLE),
        (10, ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (11, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (11, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (7, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (7, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (3, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_error_of_the_coordinator_becomes_the_error_that_kafka_gives(
    connected: Producing, version: int, error: ErrorCode, expected: ErrorCode
) -> None:
    connected.version = version
    connected.write(T0)
    connected.coordinator.answer({T0: error})
    assert await connected.results() == [expected]
    assert connected.end_of(T0) == 0


async def test_batches_behind_a_batch_without_an_answer_are_refused_with_it(
    connected: Producing,
) -> None:
    """The client sends the refused batch again, so the next one must not be appended before it."""
    connected.write(T0)
    connected.coordinator.answer({T0: ErrorCode.NETWORK_EXCEPTION})
    await until(lambda: connected.resumed)
    connected.coordinator.waits = False
    connected.handle()
    connected.write(T0)
    assert await connected.results() == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await connected.results() == [ErrorCode.NOT_ENOUGH_REPLICAS]
    connected.sequence = 0
    connected.write(T0)
    assert await connected.results() == [0]


async def test_marker_between_verification_and_append_invalidates_the_verification(
    connected: Producing,
) -> None:
    connected.write(T0)
    await connected.replicas.appends.append(T0, bytes(end_marker()))
    connected.coordinator.answer()
    assert await connected.results() == [ErrorCode.INVALID_TXN_STATE]
    assert connected.end_of(T0) == 1


async def test_partition_that_moves_during_the_verification_refuses_the_batch(
    connected: Producing,
) -> None:
    connected.write(T0)
    await connected.lead(T0, 9, 2, 0, 9)
    connected.coordinator.answer()
    assert await connected.results() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_batches_are_appended_at_once_if_verification_is_disabled(
    connected: Producing,
) -> None:
    connected.coordinator.is_enabled = False
    connected.write(T0, T1)
    assert await connected.results() == [0, 0]
    assert connected.coordinator.rows == []


async def test_transactional_batch_needs_a_transactional_id(connected: Producing) -> None:
    connected.coordinator.waits = False
    connected.transactional_id = None
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    connected.write(T0, T1)
    assert await connected.results() == [refusal, refusal]
    connected.transactional_id, connected.sequence = "x", 0
    connected.write(T0)
    assert await connected.results() == [0]
    connected.transactional_id = None
    for _ in range(2):
        connected.write(T0)
        assert await connected.results() == [refusal]
    assert connected.end_of(T0) == 1


async def test_request_with_batches_of_two_producers_is_refused(connected: Producing) -> None:
    batches = {
        tp: bytes(transactional_batch(0, producer=producer)) for producer, tp in enumerate((T0, T1))
    }
    connected.send(batches)
    assert await connected.results() == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


async def test_plain_batches_of_a_transactional_client_are_not_verified(
    connected: Producing,
) -> None:
    connected.send({T0: build([Record(value=b"1")]), T1: b"garbage"})
    assert await connected.results() == [0, ErrorCode.INVALID_RECORD]
    assert connected.coordinator.rows == []


async def test_unverified_batch_with_acks_0_closes_the_connection(connected: Producing) -> None:
    connected.write(T0, acks=0)
    connected.coordinator.answer({T0: ABORTABLE})
    await until(lambda: connected.closed)
    assert connected.end_of(T0) == 0


async def test_connection_that_ends_during_a_verification_drops_its_request(
    connected: Producing,
) -> None:
    connected.write(T0)
    connected.api.end_connection()
    connected.coordinator.answer()
    assert not connected.api.large.steps
    assert (connected.answered, connected.end_of(T0)) == ([], 0)
