"""Replicas that a replaced controller wants to stop or delete, before this broker knows its successor.

`Hosted` sends the requests of epoch 100. A later epoch in ZooKeeper means that a successor was elected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.brokers.hosted import EPOCH, T0, T1, Hosted, state

from minikafka.base.errors import CoordinationError, ErrorCode, NotConnected
from minikafka.base.model import (
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.simulation.cluster import MemoryCluster
from minikafka.zookeeper.nodes import layout

TOPIC_ID = b"0123456789abcdef"
IDS = (("t", TOPIC_ID),)


@pytest.fixture
async def hosted() -> AsyncIterator[Hosted]:
    """Broker 0 with two replicas that broker 9 leads."""
    async with MemoryCluster(1) as cluster:
        hosted = Hosted(cluster)
        here = (state(leader=9, replicas=(0, 9)), state(T1, leader=9, replicas=(0, 9)))
        assert await hosted.tell(*here, topic_id=TOPIC_ID) == [0, 0]
        yield hosted


def elect(hosted: Hosted, epoch: bytes = str(EPOCH + 1).encode()) -> None:
    hosted.cluster.ensemble.put(layout.CONTROLLER_EPOCH, epoch)


def replicas(hosted: Hosted) -> set[TopicPartition]:
    return set(hosted.replicas.logs.logs)


def stop(hosted: Hosted, *, delete: bool = True) -> StopReplicaRequest:
    stops = (StopReplicaPartition(T0, 3, False), StopReplicaPartition(T1, 3, delete))
    return StopReplicaRequest(0, EPOCH, hosted.epoch, stops)


def moved_away(hosted: Hosted) -> UpdateMetadataRequest:
    """Return the first request of a controller, which says that both partitions have moved to broker 9."""
    moved = (state(leader=9, replicas=(9,)), state(T1, leader=9, replicas=(9,)))
    return UpdateMetadataRequest(0, EPOCH, hosted.epoch, moved, (), IDS)


@pytest.mark.parametrize("epoch", [b"101", b"9999", b"", b"x"])
async def test_replaced_controller_deletes_no_replica_with_stop_replica(
    hosted: Hosted, epoch: bytes
) -> None:
    elect(hosted, epoch)
    assert (await hosted.handle(stop(hosted))).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas(hosted) == {T0, T1}


async def test_request_without_a_controller_epoch_is_stale_for_a_new_broker() -> None:
    async with MemoryCluster(1) as cluster:
        hosted = Hosted(cluster)
        hosted.broker.capabilities.roles.epoch = -1
        request = UpdateMetadataRequest(0, -1, hosted.epoch, (), (), ())
        assert (await hosted.handle(request)).error == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_deletion_is_refused_if_the_node_of_the_epoch_is_gone(hosted: Hosted) -> None:
    hosted.cluster.ensemble.delete(layout.CONTROLLER_EPOCH)
    assert (await hosted.handle(stop(hosted))).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas(hosted) == {T0, T1}


async def test_deletion_reads_the_epoch_after_a_sync(hosted: Hosted) -> None:
    """Without the sync, a server that lags behind does not have the election of the successor yet."""
    session = hosted.cluster.sessions[0]
    session.faults = ["lagging"]
    with pytest.raises(CoordinationError):
        await session.set(layout.CONTROLLER_EPOCH, b"101", -1)
    assert (await session.get(layout.CONTROLLER_EPOCH)).data != b"101"
    assert (await hosted.handle(stop(hosted))).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas(hosted) == {T0, T1}


async def test_replaced_controller_stops_no_replica(hosted: Hosted) -> None:
    """The successor could not start the replica again: it sends the same leader epoch."""
    elect(hosted)
    assert (await hosted.handle(stop(hosted, delete=False))).error == (
        ErrorCode.STALE_CONTROLLER_EPOCH
    )
    assert all(partition.is_follower for partition in hosted.replicas.partitions.values())


async def test_controller_that_was_not_replaced_deletes_replicas(hosted: Hosted) -> None:
    assert (await hosted.handle(stop(hosted))).error == 0
    assert replicas(hosted) == {T0}


async def test_replaced_controller_removes_no_strays(hosted: Hosted) -> None:
    elect(hosted)
    assert (await hosted.handle(moved_away(hosted))).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas(hosted) == {T0, T1}


async def test_replaced_controller_sets_no_orphans_aside(hosted: Hosted) -> None:
    elect(hosted)
    without = UpdateMetadataRequest(0, EPOCH, hosted.epoch, (), (), ())
    assert (await hosted.handle(without)).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas(hosted) == {T0, T1}


async def test_strays_are_removed_when_the_request_is_repeated_after_a_lost_connection(
    hosted: Hosted,
) -> None:
    request, session = moved_away(hosted), hosted.cluster.sessions[0]
    session.failures = [NotConnected()]
    with pytest.raises(NotConnected):
        await hosted.handle(request)
    assert replicas(hosted) == {T0, T1}
    assert (await hosted.handle(request)).error == 0
    assert replicas(hosted) == set()


async def test_deletion_is_refused_if_the_successor_sends_a_request_while_the_epoch_is_read(
    hosted: Hosted,
) -> None:
    session = hosted.cluster.sessions[0]
    get = session.get

    async def read(path: str, *, watch: bool = False) -> object:
        node = await get(path, watch=watch)
        session.get = get  # type: ignore[method-assign]
        await hosted.handle(StopReplicaRequest(9, EPOCH + 1, hosted.epoch, ()))
        return node

    session.get = read  # type: ignore[assignment, method-assign]
    assert (await hosted.handle(stop(hosted))).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas(hosted) == {T0, T1}
