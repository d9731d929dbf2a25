"""One client connection: a handler with a defect, and a client that receives no responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.controller_bench import until
from support.memory_cluster import MemoryCluster
from support.memory_transport import MemoryLink

from minikafka.base.ports import Buffer, Link
from minikafka.broker import listener
from minikafka.broker.apis.fetch import UNSENT_MAX
from minikafka.client import NewTopic, Record
from minikafka.wire.codec import encode_request, request
from minikafka.wire.versions import DELETE_TOPICS, FETCH


async def test_defect_in_a_handler_closes_the_connection_of_that_client_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    met = 0

    async def defect(*_: Any) -> Any:
        nonlocal met
        met += 1
        raise KeyError("of a defect")

    async with MemoryCluster(1) as cluster, cluster.client() as other, cluster.client() as unlucky:
        assert await other.list_topics() == []
        monkeypatch.setitem(listener.HANDLERS, DELETE_TOPICS, defect)
        trying = asyncio.ensure_future(unlucky.delete_topics("t"))
        await until(lambda: met > 1)  # it connected again
        trying.cancel()
        assert "of a defect" in caplog.text
        assert await other.list_topics() == []
        assert cluster.crashes == []


class Silent:
    """A client that sends requests and receives no responses."""

    link: MemoryLink

    def connected(self, link: Link) -> None:
        assert isinstance(link, MemoryLink)
        self.link = link
        link.pause_reading()

    def disconnected(self, error: Exception | None) -> None:
        pass

    def get_buffer(self, hint: int) -> Buffer:
        return bytearray(64 << 10)

    def buffer_updated(self, count: int) -> None:
        pass

    def drained(self) -> None:
        pass


def fetch_request(correlation: int, max_bytes: int) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
    body = request(
        FETCH,
        4,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[{"topic": "t", "partitions": [partition]}],
    )
    return encode_request(FETCH, 4, correlation, "silent", body)


async def test_records_are_not_read_for_a_client_that_receives_no_responses() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        for _ in range(5):
            await client.produce("t", [Record(value=bytes(900_000))], partition=0)
        silent = Silent()
        await cluster.transport.connect(lambda: silent, "127.0.0.1", 9092)
        silent.link.send([fetch_request(number, 1 << 30) for number in range(40)])
        owing = silent.link.other
        await until(lambda: owing.queued_bytes() > 0)
        assert owing.queued_bytes() < UNSENT_MAX + (8 << 20)
        assert len(await client.list_topics()) == 1


async def test_fetch_of_zero_bytes_returns_one_batch() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        await client.produce("t", [Record(value=bytes(100_000))], partition=0)
        silent = Silent()
        await cluster.transport.connect(lambda: silent, "127.0.0.1", 9092)
        silent.link.send([fetch_request(1, 0)])
        await until(lambda: len(silent.link._inbox) > 0)
        assert len(silent.link._inbox) > 100_000
