"""A cluster of scripted brokers for commands that use the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.memory_transport import MemoryTransport
from support.stub_cluster import StubCluster

from minikafka.client import Client


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> StubCluster:
    """Return brokers that run during each command and keep their topics. Any value of `--bootstrap` leads to them."""
    cluster = StubCluster(MemoryTransport())

    @asynccontextmanager
    async def connected(servers: str, **options: Any) -> AsyncIterator[Client]:
        await cluster.start()
        try:
            async with Client(cluster.bootstrap, transport=cluster.transport) as client:
                yield client
        finally:
            await cluster.close()

    monkeypatch.setattr("minikafka.client.Client", connected)
    return cluster
