"""Scripted brokers for the client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.memory_transport import MemoryTransport
from support.stub_cluster import StubCluster


@pytest.fixture
async def cluster() -> AsyncIterator[StubCluster]:
    cluster = await StubCluster(MemoryTransport()).start()
    yield cluster
    await cluster.close()
