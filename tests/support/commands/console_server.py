"""A console of a running cluster, in the process of the test, and a session with its API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.console.context import Console
from minikafka.tools.console.live_site import LiveSite
from minikafka.tools.console.observation.local_brokers import LocalBrokers
from minikafka.tools.console.opening import listen
from minikafka.tools.console.server import ConsoleServer

TOKEN = {"X-Minikafka-Token": "t"}


@asynccontextmanager
async def console_of(cluster: LocalCluster) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve the console of a cluster; yield a session whose requests have its token."""
    clock = SystemClock()
    access = BrokerAccess(cluster.bootstrap, None)
    console = Console(LocalBrokers(cluster, access, None, clock, SystemRng()), clock)
    with listen(0) as listening:
        server = ConsoleServer(LiveSite(console, "run"), "t", clock)
        await server.start(listening)
        url = f"http://127.0.0.1:{server.port}"
        async with aiohttp.ClientSession(url, headers=TOKEN) as client:
            yield client
        await server.close()


async def get(page: aiohttp.ClientSession, path: str) -> Any:
    """Return the answer to a request, which must succeed."""
    async with page.get(path) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def post(page: aiohttp.ClientSession, path: str, body: object) -> Any:
    """Return the answer to a request with a JSON body, which must succeed."""
    async with page.post(path, json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """Yield the server-sent events of a response, with their names."""
    name = ""
    async for line in response.content:
        field, _, value = line.decode().strip().partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)
