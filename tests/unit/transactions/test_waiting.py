"""AddPartitionsToTxn that comes before the producer's last transaction is complete."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minikafka.base.coordinators import Answer, Append
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.transactions.coordinator import TransactionCoordinator
from minikafka.transactions.messages.commands import AllocateProducerId, Command, SendMarkers
from minikafka.transactions.messages.requests import (
    AddPartitionsRequest,
    EndRequest,
    InitProducerIdRequest,
)
from minikafka.transactions.messages.responses import AddPartitionsResponse
from minikafka.transactions.settings import TransactionSettings
from minikafka.transactions.waiting import WAIT_MS

TP = TopicPartition("orders", 0)
ADD = AddPartitionsRequest("copy", 42, 0, [TP])


class Bench:
    """A coordinator whose producer has just committed, and whose markers are not written yet."""

    def __init__(self) -> None:
        self.core = core = TransactionCoordinator(TransactionSettings(), lambda: 1_000, 1)
        core.begin_load(0, 7)
        core.loaded(0, 7, 0)
        [allocate] = core.init_producer_id(InitProducerIdRequest("copy", 60_000), "init", 0)
        assert isinstance(allocate, AllocateProducerId)
        self.append(core.allocated(allocate.token, 42, 0, 0))
        self.append(core.add_partitions(ADD, "add", 0))
        _, markers = self.append(core.end(EndRequest("copy", 42, 0, True), "end", 0))
        assert isinstance(markers, SendMarkers)
        self.markers = markers

    def append(self, commands: Sequence[Command], error: int = 0, now: int = 0) -> list[Command]:
        """Report the result of the only append among the commands."""
        [append] = [command for command in commands if isinstance(command, Append)]
        return self.core.appended(append.token, error, now)

    def write_markers(self, now: int) -> list[Command]:
        """Report that the markers are written; return the append of the record that completes the transaction."""
        return self.core.markers_written(self.markers.ended, [TP], now)


def answer(error: int, caller: str = "next") -> Answer:
    return Answer(caller, AddPartitionsResponse({TP: error}))


def test_next_transaction_begins_when_the_last_one_is_complete() -> None:
    bench = Bench()
    assert bench.core.add_partitions(ADD, "next", 10) == []
    completes = bench.write_markers(20)
    added = bench.append(completes, now=30)
    assert bench.append(added, now=40) == [answer(0)]


def test_request_for_the_next_transaction_waits_for_a_limited_time() -> None:
    bench = Bench()
    assert bench.core.add_partitions(ADD, "next", 10) == []
    assert bench.core.next_deadline() == 10 + WAIT_MS
    assert bench.core.handle_timer(9 + WAIT_MS) == []
    refused = bench.core.handle_timer(10 + WAIT_MS)
    assert refused == [answer(ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert bench.append(bench.write_markers(300)) == [], "it was answered once"


def test_waiting_request_is_refused_when_a_later_one_comes_or_the_partition_is_unloaded() -> None:
    bench = Bench()
    assert bench.core.add_partitions(ADD, "first", 10) == []
    first = bench.core.add_partitions(ADD, "next", 20)
    assert first == [answer(ErrorCode.CONCURRENT_TRANSACTIONS, "first")]
    assert answer(ErrorCode.NOT_COORDINATOR) in bench.core.unload(0)
    assert bench.core.handle_timer(10 + WAIT_MS) == []


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [(42, 1, ErrorCode.PRODUCER_FENCED), (43, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)],
)
def test_request_of_another_producer_does_not_wait(
    producer_id: int, epoch: int, error: ErrorCode
) -> None:
    bench = Bench()
    other = AddPartitionsRequest("copy", producer_id, epoch, [TP])
    assert bench.core.add_partitions(other, "next", 10) == [answer(error)]


def test_request_waits_while_the_last_record_of_the_transaction_is_written_again() -> None:
    bench = Bench()
    assert bench.core.add_partitions(ADD, "next", 10) == []
    bench.append(bench.write_markers(20), ErrorCode.NOT_ENOUGH_REPLICAS, 30)
    again = bench.core.handle_timer(130)
    added = bench.append(again, now=140)
    assert bench.append(added, now=150) == [answer(0)]
