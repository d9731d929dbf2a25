"""The smallest coordinator in its host, on whole brokers in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from support.brokers.cold import Tasks
from support.deciders import smallest_coordinator

from minikafka.base.coordinators import TransactionEnded, partition_of
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.broker import BrokerServer
from minikafka.broker.coordinators.host import CoordinatorHost
from minikafka.broker.coordinators.internal_topic import TopicSettings
from minikafka.broker.replicas.roles import Roles
from minikafka.broker.turns import Scheduler
from minikafka.kafka.records.transactions import Marker
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

RETRY_MS = 50
SETTINGS = TopicSettings("c", 1, 1, "", {})
HOME = TopicPartition("c", 0)


class Cluster(MemoryCluster):
    """Three brokers, each with the example's coordinator and its host."""

    def __init__(self) -> None:
        super().__init__(3)
        self.registries: dict[int, Any] = {}

    def created(self, broker: BrokerServer) -> None:
        self.registries[broker.config.broker_id] = smallest_coordinator.host_registry(broker)

    async def coordinator(self, key: str) -> int:
        """Return the id of the broker that coordinates the key, as a live broker locates it."""
        while True:
            host, _ = self.registries[next(iter(self.brokers))]
            node, _ = host.topic.locate(key, "PLAINTEXT")
            if node is not None and node.id in self.brokers:
                return int(node.id)
            await self.clock.sleep(RETRY_MS)

    async def ask(self, request: str, key: str, *arguments: bytes) -> Any:
        """Send a request to the key's coordinator until the coordinator serves the key; return the response."""
        while True:
            host, _ = self.registries[await self.coordinator(key)]
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            host.handle(getattr(smallest_coordinator, request)(key, *arguments, answer.set_result))
            response = await answer
            if not isinstance(response, ErrorCode) or response is ErrorCode.NONE:
                return response
            await self.clock.sleep(RETRY_MS)

    def end(self, number: int) -> None:
        """Kill the broker, and end its session."""
        self.kill_with_session(number)


def test_example_coordinator_keeps_acknowledged_values_when_brokers_die() -> None:
    async def scene() -> None:
        async with Cluster() as cluster:
            values = {f"key {number}": b"%d" % number for number in range(12)}
            for key, value in values.items():
                assert await cluster.ask("Put", key, b"old") is ErrorCode.NONE
                assert await cluster.ask("Put", key, value) is ErrorCode.NONE
            assert {partition_of(key, 3) for key in values} == {0, 1, 2}
            first = await cluster.coordinator("key 0")
            cluster.end(first)
            assert {key: await cluster.ask("Get", key) for key in values} == values
            assert await cluster.coordinator("key 0") != first
            assert await cluster.ask("Put", "key 0", b"new") is ErrorCode.NONE
            await cluster.start(first)
            while len(cluster.brokers[first].metadata.brokers) < 3:
                await cluster.clock.sleep(RETRY_MS)
            assert await cluster.ask("Get", "key 0") == b"new"

    run_seeded(1, scene())


def test_example_coordinator_refuses_keys_of_other_brokers() -> None:
    async def scene() -> None:
        async with Cluster() as cluster:
            assert await cluster.ask("Put", "a", b"1") is ErrorCode.NONE
            home = await cluster.coordinator("a")
            for number, (_, registry) in cluster.registries.items():
                expected = b"1" if number == home else ErrorCode.NOT_COORDINATOR
                assert found(registry, "a") == expected

    run_seeded(1, scene())


class Replicas:
    """Replicas whose one log never ends while `ends` is False. `mark` reports a marker as committed."""

    def __init__(self) -> None:
        self.appends = SimpleNamespace(on_marker=[])
        self.roles = Roles()
        self.turns = Scheduler(LoopClock(), lambda now: None)
        self.ends = False

    def mark(self, tp: TopicPartition, marker: Marker) -> None:
        for callback in self.appends.on_marker:
            callback(tp, marker)

    def reader(self, tp: TopicPartition) -> Any:
        return self

    def read(self, max_bytes: int) -> bytes:
        return b""

    def at_end(self) -> bool:
        return self.ends


class Registry(smallest_coordinator.Registry):
    """The example's coordinator, which notes the ends of transactions."""

    def __init__(self) -> None:
        super().__init__(1)
        self.ended: list[TransactionEnded] = []

    def handle(self, event: Any, now: int) -> Any:
        if isinstance(event, TransactionEnded):
            self.ended.append(event)
        return super().handle(event, now)


def found(registry: Any, key: str) -> Any:
    """Return the answer to a `Get`."""
    (answer,) = registry.handle(smallest_coordinator.Get(key, None), 0)
    return answer.response


def hosted(replicas: Any) -> tuple[Registry, Tasks]:
    """Return the coordinator of a host over these replicas, and the host's tasks."""
    registry, tasks = Registry(), Tasks()
    topic: Any = SimpleNamespace(settings=SETTINGS, exists=True, partition_count=1)
    CoordinatorHost(registry, topic, replicas, LoopClock(), tasks, own={})
    return registry, tasks


async def test_marker_committed_during_a_load_is_only_read_from_the_log() -> None:
    """The load may not have read an earlier transaction of the producer to its end."""
    replicas = Replicas()
    registry, tasks = hosted(replicas)
    replicas.roles.leads(HOME, 1)
    replicas.mark(HOME, Marker(7, committed=True))
    assert registry.ended == []
    replicas.ends = True
    await tasks.settle()
    replicas.mark(TopicPartition("other", 0), Marker(7, committed=True))
    replicas.mark(HOME, Marker(7, committed=False))
    assert registry.ended == [(0, 7, False)]


async def test_partition_is_dropped_in_the_call_that_ends_the_leadership() -> None:
    replicas = Replicas()
    registry, tasks = hosted(replicas)
    replicas.roles.leads(HOME, 1)
    assert found(registry, "a") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    replicas.roles.follows(HOME, 2)
    assert found(registry, "a") == ErrorCode.NOT_COORDINATOR
    replicas.ends = True
    replicas.roles.leads(HOME, 3)
    await tasks.settle()
    assert found(registry, "a") is None
    replicas.roles.follows(HOME, 4)
    assert found(registry, "a") == ErrorCode.NOT_COORDINATOR
