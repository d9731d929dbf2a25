"""Log lines about requests that a broker refuses for a long time, with the broker's view of the partition."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.refusals import AGAIN_MS, LASTS_MS, Refusals
from minikafka.client import NewTopic
from minikafka.client.connection import BrokerConnection
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.codec import Entity, request
from minikafka.kafka.wire.versions import FETCH, LIST_OFFSETS, PRODUCE
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

T0 = TopicPartition("t", 0)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Refused:
    """The `Refusals` under test; `note` adds a refused request at the time `now` (ms)."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        metadata = MetadataCache(self.clock)
        self.refusals = Refusals({}, metadata, self.clock, lambda: "connected")

    def note(self, api: str, tp: TopicPartition, error: ErrorCode, now: int) -> None:
        self.clock.advance(now - self.clock.now())
        self.refusals.note(api, tp, error)


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture) -> Refused:
    caplog.set_level(logging.WARNING, "minikafka.broker.replicas.refusals")
    return Refused()


def test_refused_requests_are_logged_after_five_seconds_of_refusals(
    refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(0, LASTS_MS, 500):
        refused.note("Produce", T0, NOT_LEADER, now)
    assert caplog.messages == []
    refused.note("Produce", T0, ErrorCode.NOT_ENOUGH_REPLICAS, LASTS_MS)
    assert caplog.messages == [
        "refused Produce for t-0 11 times in 5.0 s, last with NOT_ENOUGH_REPLICAS; this broker has no replica; "
        "metadata of controller -1: no such partition, live brokers []; ZooKeeper session: connected"
    ]


def test_continuing_refusals_are_logged_once_a_minute(
    refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(0, LASTS_MS + AGAIN_MS + 500, 500):
        refused.note("Fetch", T0, NOT_LEADER, now)
    assert len(caplog.messages) == 2


def test_refused_requests_more_than_five_seconds_apart_are_not_logged(
    refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(0, 10 * LASTS_MS, LASTS_MS + 1):
        refused.note("Produce", T0, NOT_LEADER, now)
        refused.note("Fetch", T0, NOT_LEADER, now)
        refused.note("Produce", TopicPartition("t", 1), NOT_LEADER, now)
    assert caplog.messages == []


def test_requests_refused_with_a_permanent_error_are_not_logged(
    refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(0, 3 * LASTS_MS, 500):
        refused.note("Produce", T0, ErrorCode.MESSAGE_TOO_LARGE, now)
    assert caplog.messages == []


FETCH_VERSION = 10
"""The latest version that a follower refuses: KIP-392 came with the next."""


def produce() -> Entity:
    rows = [{"index": 0, "records": build([Record(0, 1000, None, b"x")])}]
    return request(
        PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": "t", "partition_data": rows}],
    )


def list_offsets() -> Entity:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t", "partitions": [asked]}]
    return request(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)


def fetch() -> Entity:
    asked = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    return request(
        FETCH,
        FETCH_VERSION,
        replica_id=-1,
        max_wait_ms=10,
        min_bytes=0,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "t", "partitions": [asked]}],
        forgotten_topics_data=[],
        rack_id="",
    )


REQUESTS = {
    "Produce": (PRODUCE, 9, produce),
    "ListOffsets": (LIST_OFFSETS, 7, list_offsets),
    "Fetch": (FETCH, FETCH_VERSION, fetch),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_follower_logs_its_partition_state_when_it_keeps_refusing_a_client(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "minikafka.broker.replicas.refusals")
    api, version, body = REQUESTS[name]

    async def ask() -> None:
        async with MemoryCluster(2) as cluster:
            async with cluster.client() as client:
                await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
            connection = await cluster.transport.connect(
                partial(BrokerConnection, "client", cluster.clock), "127.0.0.1", 9093
            )
            assert isinstance(connection, BrokerConnection)
            for _ in range(12):
                await connection.request(api, version, body(), 1000)
                await asyncio.sleep(0.5)
            connection.close()

    run_seeded(0, ask())
    [line] = [record.message for record in caplog.records if record.name.endswith("refusals")]
    assert line.startswith(f"refused {name} for t-0 11 times in 5.")
    assert (
        "last with NOT_LEADER_OR_FOLLOWER; this broker has Partition(t-0, follower, epoch=0,"
        in line
    )
    assert "of leader 0;" in line
    assert "leader 0 in epoch 0, ISR [0, 1], live brokers [0, 1]; ZooKeeper session: " in line
