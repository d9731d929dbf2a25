"""A coordinator written from `docs/architecture.md` alone: the example of the page, on whole brokers in memory."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from support.memory_cluster import MemoryCluster
from support.seeded_loop import run_seeded

from minikafka.base.coordinators import Answer, partition_of
from minikafka.base.errors import ErrorCode
from minikafka.broker.broker import Broker

PAGE = Path(__file__).parents[4] / "docs" / "architecture.md"
EXAMPLE = next(
    b
    for b in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if "class Registry" in b
)
NAMES: dict[str, Any] = {}
exec(compile(EXAMPLE, "docs/architecture.md", "exec"), NAMES)
RETRY_MS = 50


class Cluster(MemoryCluster):
    """Three brokers, each with the example's coordinator and its host."""

    def __init__(self) -> None:
        super().__init__(3)
        self.registries: dict[int, Any] = {}

    def created(self, broker: Broker) -> None:
        self.registries[broker.config.broker_id] = NAMES["host_registry"](broker)

    async def coordinator(self, key: str) -> int:
        """Return the id of the broker that coordinates the key, as a live broker locates it."""
        while True:
            host, _ = self.registries[next(iter(self.brokers))]
            node, _ = host.topic.locate(key, "PLAINTEXT")
            if node is not None and node.id in self.brokers:
                return int(node.id)
            await self.clock.sleep(RETRY_MS)

    async def ask(self, method: str, key: str, *arguments: bytes) -> Any:
        """Send a request to the key's coordinator until the coordinator serves the key; return the response."""
        while True:
            host, core = self.registries[await self.coordinator(key)]
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            host.carry_out(getattr(core, method)(key, *arguments, answer.set_result))
            response = await answer
            if not isinstance(response, ErrorCode) or response is ErrorCode.NONE:
                return response
            await self.clock.sleep(RETRY_MS)

    def end(self, number: int) -> None:
        """Kill the broker, and end its session."""
        session_id = self.sessions[number].session_id
        self.kill(number)
        self.ensemble.end_session(session_id)


def test_example_coordinator_keeps_acknowledged_values_when_brokers_die() -> None:
    async def scene() -> None:
        async with Cluster() as cluster:
            values = {f"key {number}": b"%d" % number for number in range(12)}
            for key, value in values.items():
                assert await cluster.ask("put", key, b"old") is ErrorCode.NONE
                assert await cluster.ask("put", key, value) is ErrorCode.NONE
            assert {partition_of(key, 3) for key in values} == {0, 1, 2}
            first = await cluster.coordinator("key 0")
            cluster.end(first)
            assert {key: await cluster.ask("get", key) for key in values} == values
            assert await cluster.coordinator("key 0") != first
            assert await cluster.ask("put", "key 0", b"new") is ErrorCode.NONE
            await cluster.start(first)
            while len(cluster.brokers[first].metadata.brokers) < 3:
                await cluster.clock.sleep(RETRY_MS)
            assert await cluster.ask("get", "key 0") == b"new"

    run_seeded(1, scene())


def test_example_coordinator_refuses_keys_of_other_brokers() -> None:
    async def scene() -> None:
        async with Cluster() as cluster:
            assert await cluster.ask("put", "a", b"1") is ErrorCode.NONE
            home = await cluster.coordinator("a")
            for number, (_, core) in cluster.registries.items():
                expected = b"1" if number == home else ErrorCode.NOT_COORDINATOR
                assert core.get("a", None) == [Answer(None, expected)]

    run_seeded(1, scene())
