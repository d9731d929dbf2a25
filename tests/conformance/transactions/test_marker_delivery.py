"""Markers on their way from a coordinator to the leaders of partitions, while leaders die, move and lose partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from support.brokers.marker_cluster import PRODUCER, SCRIPTED, MarkerCluster, markers

from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.deciders.transactions.commands import DropMarkers
from minikafka.deciders.transactions.steps import COMPLETE, MARKERS, NEXT_MARKERS, TRANSACTION
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
A, B, C = (TopicPartition("t", number) for number in range(3))
COMMIT = [(PRODUCER, True, 1)]
TOPIC = NewTopic("t", assignment={0: (0, 1), 1: (1, 2), 2: (2, 0)})


def run(scenario: Callable[[MarkerCluster], Awaitable[None]], seeds: int = 3) -> None:
    async def scene() -> None:
        async with MarkerCluster() as cluster:
            await cluster.create(TOPIC)
            await cluster.produce(A, B, C)
            await scenario(cluster)

    for seed in range(seeds):
        run_seeded(seed, scene())


async def has_markers(cluster: MarkerCluster, *partitions: TopicPartition) -> None:
    """Assert that each partition has the marker, at least once, and no open transaction."""
    for tp in partitions:
        partition = await cluster.leading(tp)
        assert set(markers(partition)) == set(COMMIT), tp
        end = partition.high_watermark
        assert partition.log.producers.first_unstable_offset(end) is None


def test_markers_reach_partitions_of_every_leader_once() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        cluster.send(0, A, B, C)
        await cluster.all_written(A, B, C)
        assert len(cluster.written) == 3
        for tp in (A, B, C):
            assert markers(await cluster.leading(tp)) == COMMIT

    run(scenario)


def test_markers_reach_the_new_leader_when_a_leader_dies() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        cluster.kill_with_session(1)
        cluster.send(0, A, B, C)
        await cluster.all_written(A, B, C)
        await has_markers(cluster, A, B, C)

    run(scenario)


def test_marker_waits_while_a_partition_has_no_leader() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        cluster.kill_with_session(1)
        cluster.kill_with_session(2)
        cluster.send(0, A, B)
        await cluster.all_written(A)
        await cluster.clock.sleep(20_000)
        assert [tp for _, _, tp in cluster.written] == [A]
        await cluster.start(1)
        await cluster.start(2)
        await cluster.all_written(A, B)
        await has_markers(cluster, A, B)

    run(scenario, seeds=1)


def test_deleted_partition_counts_as_written() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        other = TopicPartition("other", 0)
        async with cluster.client() as user:
            await user.admin.create_topics([NewTopic("other", assignment={0: (1, 2)})])
            await cluster.produce(other)
            await user.admin.delete_topics(["other"])
            cluster.send(0, A, other)
            await cluster.all_written(A, other)
        await has_markers(cluster, A)

    run(scenario)


def test_topic_deleted_while_its_marker_waits_counts_as_written() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        other = TopicPartition("other", 0)
        async with cluster.client() as user:
            await user.admin.create_topics([NewTopic("other", assignment={0: (1,)})])
            await cluster.produce(other)
            cluster.kill_with_session(1)
            cluster.send(0, other)
            await cluster.clock.sleep(5_000)
            assert not cluster.written
            await user.admin.delete_topics(["other"])
            await cluster.start(1)
            await cluster.all_written(other)

    run(scenario, seeds=1)


def test_markers_are_sent_until_the_leader_that_moved_has_them() -> None:
    """The leader changes while the coordinator's broker cannot reach the others."""

    async def scenario(cluster: MarkerCluster) -> None:
        cluster.control_delay = lambda: 3
        cluster.send(0, A, B, C)
        await cluster.stop(1)
        cluster.control_delay = lambda: 0
        await cluster.all_written(A, B, C)
        await has_markers(cluster, A, B, C)

    run(scenario, seeds=1)


def test_new_coordinator_fences_the_markers_of_the_old_one() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        cluster.send(0, A, B, C, coordinator_epoch=2)
        await cluster.all_written(A, B, C)
        await cluster.produce(A, B, C)
        cluster.send(1, A, B, C, committed=False)
        await cluster.until(lambda: cluster.fenced)
        await cluster.clock.sleep(5_000)
        assert cluster.fenced == [(1, "a")]
        assert len(cluster.written) == 3
        for tp in (A, B, C):
            assert markers(await cluster.leading(tp)) == [(PRODUCER, True, 2)]

    run(scenario)


def test_marker_of_an_earlier_producer_epoch_is_fenced() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        cluster.send(0, B, producer_epoch=1)
        await cluster.all_written(B)
        cluster.send(0, B, producer_epoch=0, committed=False)
        await cluster.until(lambda: cluster.fenced)
        assert cluster.fenced == [(0, "a")]

    run(scenario)


def test_dropped_markers_are_neither_sent_nor_reported() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        cluster.kill_with_session(1)
        cluster.send(0, B)
        cluster.brokers[0].markers.drop(DropMarkers(SCRIPTED))
        await cluster.leading(B)
        await cluster.clock.sleep(20_000)
        assert not cluster.written
        assert not markers(await cluster.leading(B))

    run(scenario, seeds=1)


def test_markers_sent_again_replace_the_former_ones() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        cluster.kill_with_session(1)
        cluster.send(0, B)
        cluster.send(0, B)
        await cluster.all_written(B)
        await cluster.clock.sleep(5_000)
        assert [tp for _, _, tp in cluster.written] == [B]
        assert markers(await cluster.leading(B)) == COMMIT

    run(scenario, seeds=1)


def test_held_steps_stop_the_markers_one_after_the_other() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        gate = cluster.brokers[0].gate
        steps = [f"{TRANSACTION}.{step}" for step in (MARKERS, NEXT_MARKERS, COMPLETE)]
        for step in steps:
            gate.hold(step)
        cluster.send(0, B, A, C)
        seen = []
        for step in steps:
            await gate.wait_for_arrival(step, cluster.clock, 60_000)
            assert gate.waiting == step
            await cluster.clock.sleep(1_000)
            seen.append([len(markers(await cluster.leading(tp))) for tp in (B, A, C)])
            reported = len(cluster.written)
            gate.release(step)
        await cluster.all_written(A, B, C)
        assert seen == [[0, 0, 0], [1, 0, 0], [1, 1, 1]]
        assert reported == 2

    run(scenario)


def test_coordinator_killed_between_markers_leaves_the_rest_to_the_next_one() -> None:
    async def scenario(cluster: MarkerCluster) -> None:
        step = f"{TRANSACTION}.{NEXT_MARKERS}"
        cluster.brokers[0].gate.hold(step)
        cluster.send(0, B, A, C)
        await cluster.brokers[0].gate.wait_for_arrival(step, cluster.clock, 60_000)
        cluster.kill_with_session(0)
        cluster.written.clear()
        cluster.send(1, A, B, C, coordinator_epoch=2)
        await cluster.all_written(A, B, C)
        assert set(markers(await cluster.leading(B))) == {(PRODUCER, True, 1), (PRODUCER, True, 2)}
        for tp in (A, C):
            assert set(markers(await cluster.leading(tp))) == {(PRODUCER, True, 2)}

    run(scenario, seeds=1)
