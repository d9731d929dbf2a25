"""Real servers, clients of them, and a proxy that loses things."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.zookeeper_proxy import Proxy, proxy_to
from support.zookeepers import connect, ensemble, server, shared_ensemble, shared_server

from minikafka.zk.managed import ManagedZooKeeper

__all__ = ["connect", "ensemble", "proxy", "server", "shared_ensemble", "shared_server"]


@pytest.fixture
async def proxy(server: ManagedZooKeeper) -> AsyncIterator[Proxy]:
    """Between the standalone server and its clients."""
    async with proxy_to(server.port) as running:
        yield running
