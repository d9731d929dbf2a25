"""Whole brokers in one event loop with nothing real around them: memory for disk, network and ZooKeeper.

The same `Broker` that production runs, given other ports; what a deterministic simulator will do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from support.memory_coordination import Ensemble, MemoryCoordination
from support.memory_storage import MemoryStorage
from support.memory_transport import MemoryTransport

from minikafka.base.config import BrokerConfig
from minikafka.base.ports import Call, Listener
from minikafka.broker.broker import Broker
from minikafka.client import Client
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry

Handler = Callable[[Call], Awaitable[dict[str, Any]]]


class InlineExecutor:
    """Work that blocks, done in place."""

    async def run(self, function: Callable[[], Any]) -> Any:
        return function()


class MemoryListener:
    """A place in the table of control planes."""

    def __init__(self, handlers: dict[int, Handler], port: int) -> None:
        self.handlers = handlers
        self.port = port

    async def close(self) -> None:
        self.handlers.pop(self.port, None)


class MemoryControlPlane:
    """Controller RPC by a plain call; one table is the network."""

    def __init__(self, handlers: dict[int, Handler]) -> None:
        self.handlers = handlers
        self.mine: list[MemoryListener] = []

    async def serve(self, handler: Handler, host: str, port: int) -> Listener:
        port = port or 50_000 + len(self.handlers) + 1
        while port in self.handlers:
            port += 1
        self.handlers[port] = handler
        self.mine.append(MemoryListener(self.handlers, port))
        return self.mine[-1]

    async def call(
        self, host: str, port: int, method: str, body: dict[str, Any], *, timeout_ms: int
    ) -> dict[str, Any]:
        await asyncio.sleep(0)
        handler = self.handlers.get(port)
        if handler is None:
            raise ConnectionRefusedError(f"nobody serves on port {port}")
        return await handler(Call(method, body))

    async def close(self) -> None:
        for listener in self.mine:
            await listener.close()


class MemoryCluster:
    """`brokers` brokers; `async with MemoryCluster() as cluster`. Keys of `config` are Kafka's."""

    def __init__(self, brokers: int = 3, **config: object) -> None:
        self.ensemble = Ensemble()
        self.transport = MemoryTransport()
        self.handlers: dict[int, Handler] = {}
        self.config = {key.replace("_", "."): value for key, value in config.items()}
        self.storages = {number: MemoryStorage() for number in range(brokers)}
        self.brokers: dict[int, Broker] = {}
        self.crashes: list[tuple[str, Exception]] = []

    async def __aenter__(self) -> MemoryCluster:
        for number in self.storages:
            await self.start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in tuple(self.brokers):
            await self.stop(number, controlled=False)
        assert self.crashes == []

    async def start(self, number: int) -> Broker:
        """Start, or start again on the same storage."""
        port = 9092 + number
        config = BrokerConfig.from_mapping(
            {
                "broker.id": number,
                "log.dirs": "/data",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "zookeeper.connect": "memory:2181",
                "minikafka.cluster.secret": "a secret of tests",
                "controlled.shutdown.max.retries": 0,
                **self.config,
            }
        )
        broker = Broker(
            config,
            SystemClock(),
            SystemRng(),
            self.storages[number],
            self.transport,
            MemoryCoordination(self.ensemble),
            lambda cluster_id: MemoryControlPlane(self.handlers),
            TaskRegistry(lambda name, error: self.crashes.append((name, error))),
            InlineExecutor(),
            self._end_session,
        )
        self.brokers[number] = broker
        await broker.start()
        return broker

    async def _end_session(self, session_id: int, password: bytes) -> None:
        self.ensemble.end_session(session_id)

    async def stop(self, number: int, *, controlled: bool = True) -> None:
        """End one broker in good order."""
        await self.brokers.pop(number).shutdown(controlled=controlled)

    @property
    def bootstrap(self) -> str:
        """Of every broker that runs."""
        return ",".join(f"127.0.0.1:{9092 + number}" for number in self.brokers)

    def client(self) -> Client:
        """A native client on the same network."""
        return Client(self.bootstrap, transport=self.transport)
