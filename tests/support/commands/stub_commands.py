"""Commands that run in the test's process, against scripted brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from support.clients.stub_cluster import StubCluster

from minikafka.client import Client

Cluster = TypeVar("Cluster", bound=StubCluster)


def serve_commands(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Let the brokers run during each command. Any value of `--bootstrap` leads to them."""

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
