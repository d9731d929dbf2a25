"""Fixtures: the servers under test, and a proxy that drops frames of a real server.

A test with the fixture `server` runs on Apache ZooKeeper and on minikafka's server, each in a process of its own. A
test with `zookeeper` also runs on an ensemble of Apache ZooKeeper and on minikafka's server in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.zookeeper.proxy import Proxy, proxy_to
from support.zookeeper.servers import InMemory, InProcess, Zookeeper
from support.zookeeper.zookeepers import Connect, heal_servers

from minikafka.zookeeper.processes.child import ServerProcess

MEMORY = "memory"
FIXTURES = {
    "apache": "shared_server",
    "embedded": "shared_embedded",
    "ensemble": "shared_ensemble",
}


@pytest.fixture(params=["apache", "embedded"])
def shared(request: pytest.FixtureRequest) -> ServerProcess:
    """The server that the tests share."""
    found: ServerProcess = request.getfixturevalue(FIXTURES[request.param])
    return found


@pytest.fixture
async def server(shared: ServerProcess) -> AsyncIterator[ServerProcess]:
    """A standalone server. If the test has stopped it, it starts again after the test."""
    yield shared
    await heal_servers([shared])


@pytest.fixture
async def proxy(server: ServerProcess) -> AsyncIterator[Proxy]:
    """A proxy between the standalone server and its clients."""
    async with proxy_to(server.port) as running:
        yield running


@pytest.fixture(params=[*FIXTURES, MEMORY])
def shared_or_none(request: pytest.FixtureRequest) -> ServerProcess | None:
    """The process of the server under test; of an ensemble, one member. None if the server is in memory."""
    if request.param == MEMORY:
        return None
    found = request.getfixturevalue(FIXTURES[request.param])
    return found[0] if request.param == "ensemble" else found


@pytest.fixture
async def zookeeper(
    shared_or_none: ServerProcess | None, connect: Connect
) -> AsyncIterator[Zookeeper]:
    """The server under test."""
    if shared_or_none is None:
        yield InMemory()
        return
    async with proxy_to(shared_or_none.port) as proxy:
        yield InProcess(shared_or_none, proxy, connect)
