"""Floods of client connections: file descriptors stay free for everything else, and clients are still served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import signature
from typing import Any

import pytest
from support.kafka.silent_client import Silent
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.broker.network.connection_room import ConnectionRoom, reserve_of
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.wire.codec import encode_request, request
from minikafka.kafka.wire.versions import API_VERSIONS, FETCH
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.descriptors import ManyDescriptors
from minikafka.simulation.loop import run_seeded

MANY = 2**31 - 1
ROOM = 40
"""Number of client connections that the broker of these tests may accept."""
LIMIT = 200


class Files(ManyDescriptors):
    """The descriptors of a broker: `others` and its client connections."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__()
        self.most = LIMIT
        self.others = LIMIT - reserve_of(LIMIT) - ROOM
        self._cluster = cluster

    def used(self) -> int:
        """Return the number of open descriptors."""
        return self.others + len(self._cluster.brokers[0].listener._connections)


def simulated(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a test that runs the scenario on a cluster of one broker, in virtual time."""

    @wraps(scenario)
    def test(**fixtures: Any) -> None:
        async def scene() -> None:
            cluster = MemoryCluster(1)
            cluster.descriptors = Files(cluster)
            async with cluster:
                await scenario(cluster, **fixtures)

        run_seeded(1, scene())

    _, *others = signature(scenario).parameters.values()
    test.__signature__ = signature(scenario).replace(parameters=others)  # type: ignore[attr-defined]
    return test


async def connect(cluster: MemoryCluster, data: bytes = b"") -> Silent:
    handler = await cluster.transport.connect(Silent, "127.0.0.1", 9092)
    assert isinstance(handler, Silent)
    handler.link.send((data,))
    await asyncio.sleep(0)
    return handler


async def flood(cluster: MemoryCluster, count: int, data: bytes = b"") -> list[Silent]:
    silent = [await connect(cluster, data) for _ in range(count)]
    await asyncio.sleep(0.01)
    return silent


def open_ones(silent: list[Silent]) -> int:
    return sum(not one.link.has_ended() for one in silent)


def api_versions() -> bytes:
    return encode_request(API_VERSIONS, 0, 1, "flood", request(API_VERSIONS, 0))


def room(cluster: MemoryCluster) -> ConnectionRoom:
    return cluster.brokers[0].listener._room


async def put(client: Client, value: bytes) -> None:
    await client.produce("t", [Record(value=value)])


@simulated
async def test_flood_leaves_the_reserve_free_and_connected_clients_served(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        await put(client, b"before")
        with caplog.at_level(logging.INFO):
            silent = await flood(cluster, 3 * ROOM, api_versions())
        assert cluster.descriptors.used() <= LIMIT - reserve_of(LIMIT)
        assert 0 < open_ones(silent) <= ROOM
        assert room(cluster).refused == 3 * ROOM - open_ones(silent)
        assert len([row for row in caplog.records if "ulimit -n" in row.getMessage()]) == 1
        assert len(caplog.records) == 1
        await put(client, b"during")
        for one in silent:
            one.link.close()
        await until(lambda: not open_ones(silent))
        await asyncio.sleep(0.06)
        async with cluster.client() as other:
            await put(other, b"after")
            found = [row.value async for row in other.consume("t", until_end=True)]
        assert found == [b"before", b"during", b"after"]


@pytest.mark.parametrize("sent", [b"", b"\0\0\0\x20\0\x12"], ids=["idle", "dribbling"])
@simulated
async def test_client_replaces_a_connection_that_has_sent_no_whole_request(
    cluster: MemoryCluster, sent: bytes
) -> None:
    silent = await flood(cluster, ROOM, sent)
    await asyncio.sleep(0.3)
    async with cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        await put(client, b"v")
    assert room(cluster).refused == 0
    assert silent[0].link.has_ended()
    assert not silent[-1].link.has_ended()


@simulated
async def test_new_connection_does_not_replace_one_that_was_opened_just_before(
    cluster: MemoryCluster,
) -> None:
    silent = await flood(cluster, ROOM)
    late = await flood(cluster, 1)
    assert (open_ones(silent), open_ones(late)) == (ROOM, 0)


@simulated
async def test_connection_that_has_sent_requests_is_replaced_only_after_a_long_idle_time(
    cluster: MemoryCluster,
) -> None:
    asked = await flood(cluster, ROOM, api_versions())
    await asyncio.sleep(29.9)
    assert open_ones(await flood(cluster, 1)) == 0
    assert open_ones(asked) == ROOM
    for one in asked[:-2]:
        one.link.send((api_versions(),))
    await asyncio.sleep(0.2)
    late = await flood(cluster, 3, api_versions())
    assert open_ones(late) == 2
    assert [number for number, one in enumerate(asked) if one.link.has_ended()] == [38, 39]


@simulated
async def test_connections_give_way_when_files_take_the_reserve(cluster: MemoryCluster) -> None:
    files = cluster.descriptors
    assert isinstance(files, Files)
    asked = await flood(cluster, ROOM // 2, api_versions())
    silent = await flood(cluster, ROOM // 4)
    await asyncio.sleep(0.3)
    files.others = LIMIT - reserve_of(LIMIT) // 2 - ROOM // 2
    cluster.brokers[0].replicas.on_shortage()
    await until(lambda: not open_ones(silent))
    assert open_ones(asked) == ROOM // 2
    files.others += 5
    await until(lambda: open_ones(asked) == ROOM // 2 - 5)
    assert [one.link.has_ended() for one in asked[:5]] == [True] * 5


@simulated
async def test_connection_that_waits_for_records_does_not_give_way(cluster: MemoryCluster) -> None:
    files = cluster.descriptors
    assert isinstance(files, Files)
    async with cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    fields = {"replica_id": -1, "min_bytes": 1, "max_bytes": 1_000, "max_wait_ms": 60_000}
    topics = [{"topic": "t", "partitions": [wanted]}]
    fetch = encode_request(FETCH, 4, 1, "waits", request(FETCH, 4, **fields, topics=topics))
    waiting = await flood(cluster, 1, fetch)
    asked = await flood(cluster, 5, api_versions())
    await asyncio.sleep(10)
    files.others = LIMIT - 1
    cluster.brokers[0].replicas.on_shortage()
    await asyncio.sleep(0.01)
    assert (open_ones(waiting), open_ones(asked)) == (1, 0)


@pytest.mark.key("max.connections")
async def test_connections_above_max_connections_are_refused() -> None:
    async with MemoryCluster(1, max_connections=3) as cluster:
        silent = await flood(cluster, 8, api_versions())
        assert open_ones(silent) == 3


def test_reserve_is_a_quarter_of_the_limit_within_bounds() -> None:
    assert [reserve_of(limit) for limit in (64, 200, 1_024, 20_000)] == [32, 50, 256, 1_024]


def test_every_connection_with_room_is_accepted_between_two_counts() -> None:
    descriptors = ManyDescriptors()
    descriptors.most = 200
    clock = ManualClock()
    room = ConnectionRoom(descriptors, clock, MANY)
    accepted = 0
    while room.has_place(accepted):
        accepted += 1
        descriptors.open += 1
    assert accepted == 150
    descriptors.open = 0
    assert not room.has_place(accepted)
    clock.advance(50)
    assert room.has_place(accepted)


def test_each_flood_writes_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    descriptors = ManyDescriptors()
    descriptors.most = descriptors.open = 200
    clock = ManualClock()
    room = ConnectionRoom(descriptors, clock, MANY)
    for _ in range(100):
        clock.advance(1_000)
        assert not room.has_place(7)
    assert len(caplog.records) == 1
    clock.advance(60_000)
    assert not room.has_place(7)
    assert len(caplog.records) == 2


def test_most_connections_do_not_concern_a_protected_listener() -> None:
    room = ConnectionRoom(ManyDescriptors(), ManualClock(), 3)
    assert not room.has_place(3)
    assert room.has_place(3, is_protected=True)


@simulated
async def test_idle_connections_above_a_lower_limit_are_closed(cluster: MemoryCluster) -> None:
    listener = cluster.brokers[0].listener
    silent = await flood(cluster, 8, api_versions())
    listener.limit_connections(BrokerConfig.from_mapping({"broker.id": 1, "max.connections": 3}))
    await until(lambda: open_ones(silent) == 3)
    await asyncio.sleep(1.5)  # more than one look at the connections
    assert open_ones(silent) == 3
