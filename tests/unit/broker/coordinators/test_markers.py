"""The sender of markers with scripted leaders and scripted metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

import pytest
from support.brokers.endpoints import endpoints

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    NO_LEADER,
    Broker,
    ClusterMetadata,
    PartitionState,
    TopicPartition,
)
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.broker.coordinators.markers import RETRY_MS, MarkerSender
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.rpc.coordinator_calls import MarkerRow, decode_markers, encode_errors
from minikafka.broker.step_gate import StepGate
from minikafka.deciders.transactions.commands import DropMarkers, EndedTransaction, SendMarkers
from minikafka.deciders.transactions.events import MarkersFenced, MarkersWritten
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded

A, B = (TopicPartition("t", number) for number in range(2))
HOME = TopicPartition(TRANSACTION_TOPIC, 0)
ENDED = EndedTransaction("x", 7, 1, 3, True, 42)
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Source:
    """Metadata in ZooKeeper, which a test can make unreachable."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.is_reachable = True
        self.stored: Mapping[TopicPartition, int] = {}
        self.reads = 0

    def asked(self, topics: Collection[str] | None, *, is_missing: bool) -> asyncio.Future[bool]:
        self.reads += 1
        read: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.is_reachable:
            self.scene.show(self.stored)
        read.set_result(self.is_reachable)
        return read


class Scene:
    """Broker 0 sends markers; brokers 1 and 2 answer with `errors`, or not at all if they are `silent`."""

    def __init__(self, *, has_source: bool = False) -> None:
        self.clock = LoopClock()
        self.metadata = MetadataCache(self.clock)
        self.source = Source(self) if has_source else None
        self.epoch = 5
        self.errors: dict[TopicPartition, int] = {}
        self.silent: set[int] = set()
        self.sent: list[tuple[int, tuple[MarkerRow, ...]]] = []
        self.reports: list[Any] = []
        self.sender = MarkerSender(
            0,
            self,  # type: ignore[arg-type]
            self.metadata,
            self.source,
            self,  # type: ignore[arg-type]
            StepGate(),
            self.clock,
            TaskRegistry(),
        )
        self.sender.report = self.report

    def report(self, event: MarkersWritten | MarkersFenced) -> None:
        what = sorted(event.partitions) if isinstance(event, MarkersWritten) else "fenced"
        self.reports.append((event.ended, what))

    def show(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Update the metadata: these partitions exist, with these leaders."""
        states = tuple(
            PartitionState(tp, leader, self.epoch, (leader,), 1, 1, (leader,))
            for tp, leader in {HOME: 0, **leaders}.items()
        )
        brokers = tuple(Broker(number, endpoints()) for number in range(3))
        self.metadata.update(ClusterMetadata(0, states, brokers, ()), is_whole=True)

    async def call(self, broker_id: int, method: str, body: Any, timeout_ms: int) -> dict[str, Any]:
        """Answer as a leader."""
        rows = decode_markers(body)
        self.sent.append((broker_id, rows))
        if broker_id in self.silent:
            await self.clock.sleep(timeout_ms)
            raise TimeoutError
        return encode_errors([[self.errors.get(tp, 0) for tp, _ in row.partitions] for row in rows])

    def append(self, row: MarkerRow, written: Callable[[TopicPartition, int], None]) -> None:
        """Append markers as the own leader."""
        self.sent.append((0, (row._replace(partitions=tuple(row.partitions)),)))
        for tp, _ in row.partitions:
            asyncio.get_running_loop().call_soon(written, tp, self.errors.get(tp, 0))

    def send(self, *partitions: TopicPartition, ended: EndedTransaction = ENDED) -> None:
        self.sender.send(SendMarkers(0, ended, partitions))

    async def pass_ms(self, ms: float) -> None:
        await self.clock.sleep(ms)


def run(
    scenario: Callable[[Scene], Coroutine[Any, Any, None]], *, has_source: bool = False
) -> None:
    async def scene() -> None:
        await scenario(Scene(has_source=has_source))

    run_seeded(1, scene())


def row(*partitions: TopicPartition, epoch: int = 5) -> MarkerRow:
    return MarkerRow(7, 1, 3, True, tuple((tp, epoch) for tp in partitions))


def test_partitions_of_one_leader_are_in_one_row_with_their_leader_epoch() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1, B: 1})
        scene.send(A, B)
        await scene.pass_ms(10)
        assert scene.sent == [(1, (row(A, B),))]
        assert scene.reports == [(ENDED, [A, B])]

    run(scenario)


def test_markers_of_several_transactions_go_to_a_broker_in_one_call() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1, B: 1})
        other = ENDED._replace(transactional_id="y", producer_id=8)
        scene.send(A)
        scene.send(B, ended=other)
        await scene.pass_ms(10)
        assert scene.sent == [(1, (row(A), row(B)._replace(producer_id=8)))]
        assert scene.reports == [(ENDED, [A]), (other, [B])]

    run(scenario)


def test_own_partition_needs_no_call() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 0, B: 1})
        scene.send(A, B)
        await scene.pass_ms(10)
        assert scene.sent == [(0, (row(A),)), (1, (row(B),))]

    run(scenario)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_marker_that_was_not_written_is_sent_again_alone(error: ErrorCode) -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1, B: 1})
        scene.errors[B] = error
        scene.send(A, B)
        await scene.pass_ms(3_000)
        scene.errors.clear()
        await scene.pass_ms(3_000)
        assert scene.reports == [(ENDED, [A]), (ENDED, [B])]
        assert 3 < len(scene.sent) < 20
        assert {sent for _, sent in scene.sent[1:]} == {(row(B),)}

    run(scenario)


@pytest.mark.parametrize(
    "error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_fenced_marker_ends_the_sending(error: ErrorCode) -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1, B: 2})
        scene.errors = {A: NOT_LEADER, B: error}
        scene.send(A, B)
        await scene.pass_ms(10_000)
        assert scene.reports == [(ENDED, "fenced")]
        assert len(scene.sent) == 2

    run(scenario)


def test_marker_goes_to_the_leader_of_the_time_when_it_is_sent_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1})
        scene.silent.add(1)
        scene.send(A)
        await scene.pass_ms(1_000)
        scene.epoch = 6
        scene.show({A: 2})
        await scene.pass_ms(10_000)
        assert scene.sent == [(1, (row(A),)), (2, (row(A, epoch=6),))]
        assert scene.reports == [(ENDED, [A])]

    run(scenario)


def test_silent_broker_delays_no_other_broker() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1, B: 2})
        scene.silent.add(1)
        scene.send(A, B)
        await scene.pass_ms(10)
        assert scene.reports == [(ENDED, [B])]

    run(scenario)


def test_partition_without_a_leader_waits() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: NO_LEADER})
        scene.send(A)
        await scene.pass_ms(60_000)
        assert (scene.sent, scene.reports) == ([], [])
        scene.show({A: 1})
        await scene.pass_ms(2_000)
        assert scene.reports == [(ENDED, [A])]

    run(scenario)


def test_s101_broker_without_metadata_takes_no_partition_for_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        scene.send(A)
        await scene.pass_ms(5_000)
        assert scene.reports == []
        scene.show({A: 1})
        await scene.pass_ms(2_000)
        assert scene.sent == [(1, (row(A),))]

    run(scenario)


def test_deleted_partition_is_reported_without_a_marker() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1})
        scene.send(A, B)
        await scene.pass_ms(10)
        assert sorted(tps for _, tps in scene.reports) == [[A], [B]]
        assert scene.sent == [(1, (row(A),))]

    run(scenario)


def test_s101_partition_that_old_metadata_lack_is_read_before_it_counts_as_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.source is not None
        scene.show({})
        scene.source.stored = {A: 1}
        scene.send(A)
        await scene.pass_ms(RETRY_MS + 50)
        assert scene.sent == [(1, (row(A),))]

    run(scenario, has_source=True)


def test_s101_partition_does_not_count_as_deleted_while_zookeeper_is_unreachable() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.source is not None
        scene.show({})
        scene.source.is_reachable = False
        scene.send(A)
        await scene.pass_ms(30_000)
        assert (scene.sent, scene.reports) == ([], [])
        assert scene.source.reads > 10
        scene.source.is_reachable = True
        await scene.pass_ms(1_000)
        assert scene.reports == [(ENDED, [A])]

    run(scenario, has_source=True)


def test_s102_nothing_is_sent_or_reported_after_the_coordinator_has_resigned() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1, B: NO_LEADER})
        scene.silent.add(1)
        scene.send(A, B)
        await scene.pass_ms(10)
        scene.sender.drop(DropMarkers(0))
        scene.silent.clear()
        scene.show({A: 1, B: 2})
        await scene.pass_ms(30_000)
        assert scene.reports == []
        assert len(scene.sent) == 1

    run(scenario)


def test_markers_of_other_partitions_go_on_when_one_is_dropped() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: NO_LEADER})
        scene.send(A)
        scene.sender.drop(DropMarkers(1))
        scene.show({A: 1})
        await scene.pass_ms(2_000)
        assert scene.reports == [(ENDED, [A])]

    run(scenario)


def test_answer_with_another_length_counts_as_no_answer() -> None:
    async def scenario(scene: Scene) -> None:
        scene.show({A: 1})
        answers: list[Sequence[Sequence[int]]] = [[[0, 0]], [[0]]]

        async def call(*_: object) -> dict[str, Any]:
            return encode_errors(answers.pop(0))

        scene.call = call  # type: ignore[method-assign]
        scene.send(A)
        await scene.pass_ms(10)
        assert scene.reports == []
        await scene.pass_ms(1_000)
        assert scene.reports == [(ENDED, [A])]

    run(scenario)
