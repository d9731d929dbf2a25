"""The leader-coordinated mode with a store of topics that does no more than tests of the brokers need."""

from __future__ import annotations

from collections.abc import Sequence

from support.memory_mode import MemoryAdministration, MemoryState, MemoryStores

from minikafka.base.model import TopicPartition
from minikafka.base.ports import ZooKeeper
from minikafka.broker.capabilities.administration import Administration
from minikafka.broker.capabilities.stores import TopicPlan, TopicStore
from minikafka.broker.modes.leaders import LeadersMode
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.leaders.model import FROM_ADMINISTRATOR, Operation, StateChange
from minikafka.zk.nodes.leaders import topics


class MinimalMode(LeadersMode):
    """The mode with a minimal store of topics."""

    def topics(self, metadata: LeadersMetadata, queue: StateChangeQueue) -> TopicStore:
        return MinimalTopics(self.zookeeper, queue, metadata)

    def administration(self) -> Administration:
        return MemoryAdministration(self._config.broker_id)


class MinimalTopics(MemoryStores):
    """Creates topics partition by partition."""

    def __init__(
        self, zookeeper: ZooKeeper, queue: StateChangeQueue, metadata: LeadersMetadata
    ) -> None:
        super().__init__(MemoryState())
        self.zookeeper, self.queue, self.metadata = zookeeper, queue, metadata

    async def names(self) -> list[str]:
        return await topics.names(self.zookeeper)

    async def existing(self, names: Sequence[str]) -> set[str]:
        return {*names}.intersection(await topics.names(self.zookeeper))

    async def create(self, plans: Sequence[TopicPlan]) -> dict[str, Exception]:
        for plan in plans:
            await self.zookeeper.multi([topics.creation(plan.name, plan.topic_id)])
            for number, replicas in plan.assignment.items():
                tp = TopicPartition(plan.name, number)
                await self.zookeeper.multi(topics.assignment(tp, replicas))
                for broker_id in replicas:
                    await self.queue.enqueue(broker_id, start_request(tp, plan.topic_id))
            await self.metadata.refresh_topics([plan.name])
        return {}


def start_request(tp: TopicPartition, topic_id: bytes) -> StateChange:
    """Return a start request of an administrator."""
    return StateChange(Operation.START, tp, topic_id, FROM_ADMINISTRATOR, FROM_ADMINISTRATOR)
