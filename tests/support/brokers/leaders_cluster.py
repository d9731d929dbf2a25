"""Three brokers of the leader-coordinated mode in memory, and a topic with one partition on all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from minikafka.base.config import BrokerConfig
from minikafka.base.coordination import LEADERS
from minikafka.base.model import PartitionState, TopicPartition
from minikafka.broker.capabilities import CoordinationMode
from minikafka.broker.ports import BrokerPorts
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

T0 = TopicPartition("t", 0)
_LATEST_S = 120


class LeadersCluster(MemoryCluster):
    """A cluster with topic t, whose partition 0 has a replica on each broker."""

    def __init__(
        self, brokers: int = 3, *, topic_replicas: Sequence[int] | None = None, **config: object
    ) -> None:
        super().__init__(brokers, coordination=LEADERS, **config)
        self.topic_replicas = topic_replicas
        """The replicas of partition 0; None: all brokers, in any order."""
        self.notes: list[tuple[str, str]] = []
        """Each call of a broker at ZooKeeper: the method, and its path, or the first of its paths."""

    def new_mode(self, config: BrokerConfig, ports: BrokerPorts) -> CoordinationMode:
        mode = super().new_mode(config, ports)
        session = self.sessions[config.broker_id]
        for method in ("children", "children_many", "get_many", "exists", "create", "delete"):
            setattr(session, method, self._noted(method, getattr(session, method)))
        return mode

    def _noted(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(path: Any, *arguments: Any, **keywords: Any) -> Any:
            self.notes.append((method, path if isinstance(path, str) else next(iter(path), "")))
            return call(path, *arguments, **keywords)

        return noted

    async def create(self) -> None:
        """Create topic t; return when all its replicas are in the ISR."""
        topic = NewTopic("t", 1, len(self.brokers))
        if self.topic_replicas is not None:
            topic = NewTopic("t", assignment={0: tuple(self.topic_replicas)})
        async with self.client() as client:
            await client.create_topics(topic)
        wanted = {*self.brokers} if self.topic_replicas is None else {*self.topic_replicas}
        await self.until(lambda: self.isr == wanted)

    async def produce(self, *values: bytes) -> None:
        async with self.client() as client:
            await client.produce("t", [Record(value=value) for value in values])

    async def consumed(self) -> list[bytes | None]:
        async with self.client() as client:
            return [row.value async for row in client.consume("t", until_end=True)]

    @property
    def state(self) -> PartitionState:
        """Partition 0 as the running broker with the smallest id shows it."""
        return self.brokers[min(self.brokers)].metadata.topics["t"][0]

    def node(self, path: str) -> bytes | None:
        """Return the data of a node below the root of the mode, None if it does not exist."""
        node = self.ensemble.nodes.get(f"/leaders/brokers/{path}")
        return None if node is None else node.data

    @property
    def leader(self) -> tuple[int, int] | None:
        """Id and epoch in the node `leader` of partition 0, None if the partition has no leader."""
        data = self.node("topics/t/0/leader")
        if data is None:
            return None
        leader, epoch = data.split(b";")
        return int(leader), int(epoch)

    async def until(self, is_true: Callable[[], object]) -> None:
        async with asyncio.timeout(_LATEST_S):
            while not is_true():  # noqa: ASYNC110  what is watched has no event
                await asyncio.sleep(0.02)

    @property
    def isr(self) -> set[int]:
        """The members of the node `ISR` of partition 0."""
        data = self.node("topics/t/0/ISR") or b";"
        return {int(id_) for id_ in data.split(b";")[0].split(b",") if id_}

    async def until_in_sync(self) -> None:
        """Wait until every running broker is in the ISR, and the broker with the smallest id shows it."""
        await self.until(lambda: self.leader is not None and self.isr == self.brokers.keys())
        shown = self.brokers[min(self.brokers)].metadata
        await self.until(lambda: "t" in shown.topics and {*self.state.isr} == self.isr)


def run_leaders(
    seed: int, scenario: Callable[[LeadersCluster], Awaitable[None]], **config: Any
) -> None:
    """Run a scenario with a new cluster in a seeded loop."""

    async def whole() -> None:
        async with LeadersCluster(**config) as cluster:
            await cluster.create()
            await scenario(cluster)

    run_seeded(seed, whole())
