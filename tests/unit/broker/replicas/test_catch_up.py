"""Brokers whose coordination mode opens a leader to clients after a wait for the in-sync replicas (C17, C18)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.brokers.hosted import batch
from support.brokers.memory_mode import MemoryMode, MemoryState
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.broker import BrokerServer
from minikafka.broker.capabilities import CoordinationMode, Orders
from minikafka.broker.ports import BrokerPorts
from minikafka.client import NewTopic
from minikafka.client.consumer import fetch_request
from minikafka.client.login import Connector
from minikafka.client.network import Address, Network, request
from minikafka.kafka.records.batch import Record
from minikafka.kafka.wire.versions import DELETE_RECORDS, FETCH, LIST_OFFSETS, PRODUCE
from minikafka.simulation.cluster import MemoryCluster

T0 = TopicPartition("t", 0)
WAIT_MS = 10_000
SHORT_MS = 100
LISTED = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
DELETED = [{"partition_index": 0, "offset": 0}]
DATA = [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"m")}]}]
REQUESTS: dict[int, Any] = {
    PRODUCE: request(PRODUCE, transactional_id=None, acks=-1, timeout_ms=WAIT_MS, topic_data=DATA),
    FETCH: fetch_request({T0: (-1, 0)}, 0, 1_000),
    LIST_OFFSETS: request(
        LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=[{"name": "t", "partitions": LISTED}]
    ),
    DELETE_RECORDS: request(
        DELETE_RECORDS, topics=[{"name": "t", "partitions": DELETED}], timeout_ms=WAIT_MS
    ),
}


class Opening(MemoryCluster):
    """Two brokers that replicate t-0. Its leader, broker 0, has one committed record."""

    def __init__(self) -> None:
        super().__init__(brokers=2)
        self.state = MemoryState()
        self.roles: list[tuple[str, int]] = []

    def new_mode(self, config: BrokerConfig, ports: BrokerPorts) -> CoordinationMode:
        return MemoryMode(config.broker_id, self.state)

    def created(self, broker: BrokerServer) -> None:
        if broker.info.id == 0:
            broker.replicas.roles.add(RoleNotes(self.roles))

    @property
    def orders(self) -> Orders:
        return self.state.orders[0]

    async def elect(self) -> int:
        """Elect the leader again, which opens later; return the new leader epoch."""
        self.state.opens_later = True
        await self.state.elect(new=[T0])
        return self.state.states[T0].leader_epoch

    async def elect_unnoticed(self) -> int:
        """Elect the leader again as `elect` does, but give no role to the follower, whose fetches are then fenced."""
        self.state.opens_later = True
        role = self.state.role(T0)
        later = role._replace(leader_epoch=role.leader_epoch + 1)
        await self.orders.change_roles([later], {}, (), opens_later=True)
        return later.leader_epoch

    async def errors(self) -> list[int]:
        """Return the error codes of the leader's answers to `REQUESTS`."""
        network, found = Network(Connector(self.transport), self.clock, "test"), []
        for api, body in REQUESTS.items():
            response = await network.call(Address("127.0.0.1", 9092), api, WAIT_MS, body)
            topic = (response.responses if api in (PRODUCE, FETCH) else response.topics)[0]
            row = (topic.partition_responses if api == PRODUCE else topic.partitions)[0]
            found.append(row.error_code)
        network.close()
        return found


class RoleNotes:
    """A RoleListener that notes each call with its leader epoch."""

    def __init__(self, notes: list[tuple[str, int]]) -> None:
        self.notes = notes

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.notes.append(("leader", leader_epoch))

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.notes.append(("follower", leader_epoch))

    def stopped(self, tp: TopicPartition, leader_epoch: int) -> None: ...


@pytest.fixture
async def cluster() -> AsyncIterator[Opening]:
    async with Opening() as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
            await client.produce("t", [Record(value=b"first")])
        yield cluster


@pytest.mark.row("C17", "C18")
async def test_opening_leader_serves_followers_and_refuses_every_client(cluster: Opening) -> None:
    epoch = await cluster.elect()
    assert await cluster.errors() == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        await cluster.brokers[0].replicas.appends.append(T0, batch(b"m"))
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        cluster.brokers[0].replicas.reader(T0)
    assert await cluster.orders.caught_up(T0, epoch, WAIT_MS) == (0, 1)
    assert cluster.orders.open(T0, epoch)
    assert await cluster.errors() == [0] * 4


@pytest.mark.row("C18")
async def test_client_that_retries_is_served_when_the_leader_opens(cluster: Opening) -> None:
    epoch = await cluster.elect()
    async with cluster.client() as client:
        produced = asyncio.ensure_future(client.produce("t", [Record(value=b"second")]))
        await cluster.orders.caught_up(T0, epoch, WAIT_MS)
        await cluster.clock.sleep(SHORT_MS)
        assert not produced.done()
        cluster.orders.open(T0, epoch)
        await produced
        assert [row.value async for row in client.consume("t", until_end=True)] == [
            b"first",
            b"second",
        ]


@pytest.mark.row("C17", "C18")
async def test_role_listeners_learn_of_a_leadership_when_it_opens(cluster: Opening) -> None:
    cluster.roles.clear()
    epoch = await cluster.elect()
    assert cluster.roles == [("follower", epoch)]
    assert cluster.orders.open(T0, epoch)
    assert cluster.orders.open(T0, epoch), "open is open"
    assert cluster.roles == [("follower", epoch), ("leader", epoch)]


@pytest.mark.row("C17")
async def test_reports_name_the_members_for_which_an_opening_leader_waits(cluster: Opening) -> None:
    epoch = await cluster.elect_unnoticed()
    broker = cluster.brokers[0]

    def reported() -> tuple[object, ...]:
        [row] = broker.describe()["replicas"]
        replica = broker.explain(T0)["replica"]
        count = broker.describe()["metrics"]["OpeningPartitionCount"]
        return row["role"], row["opening"], replica["opening"], count

    assert reported() == ("leader", [1], [1], 1)
    cluster.orders.open(T0, epoch)
    assert reported() == ("leader", None, None, 0)


async def test_leader_is_not_opened_in_an_epoch_that_is_over(cluster: Opening) -> None:
    epoch = await cluster.elect()
    assert not cluster.orders.open(T0, epoch - 1)
    assert not cluster.orders.open(TopicPartition("t", 1), epoch)
    assert not cluster.brokers[0].replicas.partitions[T0].is_open


@pytest.mark.row("C17")
async def test_wait_for_the_isr_ends_at_its_timeout_and_waits_for_no_dead_member(
    cluster: Opening,
) -> None:
    epoch = await cluster.elect_unnoticed()
    began, orders = cluster.clock.now(), cluster.orders
    assert await orders.caught_up(T0, epoch, WAIT_MS, lambda broker: broker == 0) == (0,)
    assert await orders.caught_up(T0, epoch, SHORT_MS, lambda broker: True) == (0,)
    assert began + SHORT_MS <= cluster.clock.now() < began + WAIT_MS


@pytest.mark.row("C17")
async def test_wait_for_the_isr_ends_when_the_member_that_is_missing_dies(cluster: Opening) -> None:
    epoch = await cluster.elect_unnoticed()
    began = cluster.clock.now()
    waiting = asyncio.ensure_future(cluster.orders.caught_up(T0, epoch, WAIT_MS))
    await cluster.clock.sleep(1)
    assert not waiting.done()
    dead = cluster.state.brokers.pop(1)
    cluster.state.publish()
    assert await waiting == (0,)
    cluster.state.brokers[1] = dead
    assert cluster.clock.now() < began + WAIT_MS


async def test_wait_for_the_isr_ends_when_another_replica_leads(cluster: Opening) -> None:
    epoch = await cluster.elect_unnoticed()
    waiting = asyncio.ensure_future(cluster.orders.caught_up(T0, epoch, WAIT_MS))
    await cluster.clock.sleep(1)
    follower = cluster.state.role(T0)._replace(leader=1, leader_epoch=epoch + 1)
    await cluster.orders.change_roles([follower], {}, ())
    await until(waiting.done, seconds=1)
    assert await waiting == ()
    assert await cluster.orders.caught_up(T0, epoch, WAIT_MS) == ()
