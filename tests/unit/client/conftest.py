"""Scripted brokers for the client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.clients.stub_cluster import StubCluster

from minikafka.client import Client
from minikafka.simulation.transport import MemoryTransport


@pytest.fixture
async def cluster() -> AsyncIterator[StubCluster]:
    cluster = await StubCluster(MemoryTransport()).start()
    yield cluster
    await cluster.close()


@pytest.fixture
async def client(cluster: StubCluster) -> AsyncIterator[Client]:
    async with Client(cluster.bootstrap, transport=cluster.transport) as connected:
        yield connected
