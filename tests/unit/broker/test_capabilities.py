"""Brokers in a coordination mode without ZooKeeper, without a controller and with orders in the process."""

from __future__ import annotations

from dataclasses import replace

from support.brokers.memory_mode import MemoryMode, MemoryState
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.model import TopicPartition
from minikafka.broker.broker import BrokerServer
from minikafka.broker.capabilities import CoordinationMode
from minikafka.broker.ports import BrokerPorts
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.storage.replication.isr import Committed

T0 = TopicPartition("t", 0)
RECORDS = {b"%d" % number for number in range(50)}


class ModeCluster(MemoryCluster):
    """Two brokers whose state is a `MemoryState`. `roles` has (broker, was it registered?) for each role."""

    def __init__(self) -> None:
        super().__init__(brokers=2)
        self.state = MemoryState()
        self.roles: list[tuple[int, bool]] = []

    def new_mode(self, config: BrokerConfig, ports: BrokerPorts) -> CoordinationMode:
        return MemoryMode(config.broker_id, self.state)

    def created(self, broker: BrokerServer) -> None:
        broker.replicas.roles.add(RoleNotes(broker, self.roles))

    async def produce(self) -> None:
        async with self.client() as client:
            await client.produce("t", [Record(value=value) for value in RECORDS])

    async def consumed(self) -> set[bytes | None]:
        async with self.client() as client:
            return {row.value async for row in client.consume("t", until_end=True)}


class RoleNotes:
    """A RoleListener that notes whether the broker was registered when a replica got its role."""

    def __init__(self, broker: BrokerServer, notes: list[tuple[int, bool]]) -> None:
        self.broker, self.notes = broker, notes

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.notes.append((self.broker.config.broker_id, self.broker.info.epoch >= 0))

    became_follower = became_leader

    def stopped(self, tp: TopicPartition, leader_epoch: int) -> None: ...


async def test_brokers_replicate_records_in_a_mode_without_controller() -> None:
    async with ModeCluster() as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 2, 2))
        await cluster.produce()
        assert await cluster.consumed() == RECORDS
        report = cluster.brokers[1].describe()
        assert (report["session_state"], report["controller_id"]) == ("none", 1)
        assert (report["is_controller"], report["controller_epoch"]) == (False, -1)


async def test_topic_is_deleted_by_orders_that_the_mode_gives_in_the_process() -> None:
    async with ModeCluster() as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 2, 2))
            await cluster.produce()
            await client.delete_topics("t")
        for broker in cluster.brokers.values():
            assert broker.replicas.partitions == broker.logs.logs == {}
            assert "t" not in broker.metadata.topics


async def test_leader_whose_isr_write_conflicts_gets_a_role_in_a_higher_epoch() -> None:
    async with ModeCluster() as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        state = cluster.state.states[T0]
        cluster.state.states[T0] = replace(state, state_version=state.state_version + 1)
        leader = cluster.brokers[0].replicas
        partition = leader.partitions[T0]
        assert partition.maybe_shrink_isr(0, behind={1})
        leader.isr_changes.propose(partition)
        await until(lambda: partition.leader_epoch == state.leader_epoch + 1)
        assert partition.isr_state == Committed((0, 1))
        await cluster.produce()
        assert await cluster.consumed() == RECORDS


async def test_broker_gets_its_roles_before_it_registers_in_a_mode_that_orders_them() -> None:
    async with ModeCluster() as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 2, 2))
        await cluster.produce()
        await cluster.stop(0)
        await cluster.stop(1)
        cluster.roles.clear()
        await cluster.start(1)
        assert cluster.roles == [(1, False), (1, False)]
        assert await cluster.consumed() == RECORDS
