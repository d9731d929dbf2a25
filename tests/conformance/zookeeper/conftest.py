"""Fixtures: the two servers under test, real and in memory, and a proxy that drops frames of the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.zookeeper_proxy import Proxy, proxy_to
from support.zookeeper_servers import Apache, InMemory, Zookeeper

from minikafka.zk.processes.apache import ApacheZooKeeper


@pytest.fixture
async def proxy(server: ApacheZooKeeper) -> AsyncIterator[Proxy]:
    """A proxy between the standalone server and its clients."""
    async with proxy_to(server.port) as running:
        yield running


@pytest.fixture(params=["apache", "memory"])
def zookeeper(request: pytest.FixtureRequest) -> Zookeeper:
    """The server under test: Apache ZooKeeper in one run, the server in memory in the next."""
    if request.param == "memory":
        return InMemory()
    return Apache(*(request.getfixturevalue(name) for name in ("server", "proxy", "connect")))
