"""The leader's side of markers on whole brokers in memory: what is appended, and when the answer is sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from support.brokers.marker_cluster import PRODUCER, MarkerCluster, markers

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.coordinators.markers import ANY_EPOCH, CALL_WAIT_MS
from minikafka.broker.rpc.coordinator_calls import (
    WRITE_MARKERS,
    MarkerRow,
    decode_errors,
    encode_markers,
)
from minikafka.client import NewTopic
from minikafka.simulation.loop import run_seeded
from minikafka.storage.replication.partition import Partition

A, B = TopicPartition("t", 0), TopicPartition("u", 0)
NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class Scene:
    """Two brokers; broker 0 leads both partitions, A with a follower and B alone."""

    def __init__(self, cluster: MarkerCluster, partition: Partition) -> None:
        self.cluster = cluster
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.appends = cluster.brokers[0].marker_appends

    async def write(self, *partitions: TopicPartition, epoch: int = ANY_EPOCH) -> Sequence[int]:
        """Append markers, and return the error of each partition."""
        row = MarkerRow(PRODUCER, 0, 1, True, [(tp, epoch) for tp in partitions])
        (errors,) = await self.appends.write([row], CALL_WAIT_MS)
        return errors


def run(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def scene() -> None:
        async with MarkerCluster(2) as cluster:
            topics = NewTopic("t", assignment={0: (0, 1)}), NewTopic("u", assignment={0: (0,)})
            await cluster.create(*topics)
            await cluster.produce(A, B)
            await scenario(Scene(cluster, await cluster.leading(A)))

    run_seeded(1, scene())


def test_answer_comes_when_the_markers_are_committed() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.write(A, B) == [NONE, NONE]
        assert scene.partition.high_watermark == scene.partition.log.log_end_offset == 2
        assert markers(scene.partition) == [(PRODUCER, True, 1)]

    run(scenario)


def test_s103_marker_that_is_not_committed_is_no_success_and_is_not_appended_twice() -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.pause(1)
        for _ in range(2):
            assert await scene.write(A, B) == [TIMED_OUT, NONE]
        assert scene.partition.log.log_end_offset == 2
        scene.cluster.resume(1)
        assert await scene.write(A) == [NONE]
        assert scene.partition.log.log_end_offset == 2
        assert markers(scene.partition) == [(PRODUCER, True, 1)]

    run(scenario)


def test_s100_marker_for_another_leader_epoch_is_refused() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.write(A, epoch=scene.epoch) == [NONE]
        for epoch in (scene.epoch + 1, 99):
            assert await scene.write(A, epoch=epoch) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert scene.partition.log.log_end_offset == 2

    run(scenario)


def test_broker_refuses_markers_for_partitions_that_it_does_not_lead() -> None:
    async def scenario(scene: Scene) -> None:
        other = scene.cluster.brokers[1].marker_appends
        missing = TopicPartition("missing", 0)
        row = MarkerRow(PRODUCER, 0, 1, True, [(tp, ANY_EPOCH) for tp in (A, B, missing)])
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await other.write([row], CALL_WAIT_MS) == [
            [ErrorCode.NOT_LEADER_OR_FOLLOWER, unknown, unknown]
        ]

    run(scenario)


def test_call_of_another_broker_is_served() -> None:
    async def scenario(scene: Scene) -> None:
        sender = scene.cluster.brokers[1]
        rows = [
            MarkerRow(producer, 0, 1, True, [(A, scene.epoch), (B, 0)]) for producer in range(200)
        ]
        endpoint = scene.cluster.brokers[0].info.endpoint("CONTROLLER")
        assert endpoint is not None
        body = await sender.control_plane.call(
            endpoint,
            WRITE_MARKERS,
            encode_markers(rows),
            target_id=0,
            timeout_ms=60_000,
        )
        assert decode_errors(body, [2] * 200) == [[NONE, NONE]] * 200
        assert len(markers(scene.partition)) == 200

    run(scenario)
