"""Several Kafka listeners on one broker: registration, Metadata per listener, replication between brokers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.kafka.silent_client import Silent
from support.until import until

from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode
from minikafka.broker.broker import BrokerServer
from minikafka.broker.services import RequestContext, Services
from minikafka.client import Client, NewTopic, Record
from minikafka.client.login import Connector
from minikafka.client.network import Address, Network
from minikafka.kafka.wire.codec import decode_response, encode_request, request, response
from minikafka.kafka.wire.versions import FIND_COORDINATOR, METADATA
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.zookeeper.nodes import layout

KEYS = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,ADMIN://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,ADMIN:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "control.plane.listener.name": "ADMIN",
}


def port(broker: BrokerServer, listener: str) -> int:
    endpoint = broker.info.endpoint(listener)
    assert endpoint is not None
    return endpoint.port


def client(cluster: MemoryCluster, broker: BrokerServer, listener: str) -> Client:
    return Client(f"127.0.0.1:{port(broker, listener)}", transport=cluster.transport)


async def test_metadata_returns_broker_addresses_of_the_listener_of_the_client() -> None:
    async with MemoryCluster(2, **KEYS) as cluster:
        brokers = cluster.brokers.values()
        await until(lambda: all(len(broker.metadata.brokers) == 2 for broker in brokers))
        for listener in ("INSIDE", "OUTSIDE"):
            async with client(cluster, cluster.brokers[0], listener) as user:
                found = await user.describe_cluster()
            expected = {broker.info.id: port(broker, listener) for broker in brokers}
            assert {id_: node.port for id_, node in found.brokers.items()} == expected


async def test_error_of_a_listener_that_cannot_be_opened_names_it() -> None:
    async with MemoryCluster(1, **KEYS) as cluster:
        [broker] = cluster.brokers.values()
        used = Endpoint("OUTSIDE", "127.0.0.1", port(broker, "OUTSIDE"))
        reason = f"listeners: {used} cannot be opened: port {used.port} is in use"
        with pytest.raises(OSError, match=reason):
            await broker.listener.start([used], {})


@pytest.mark.key("listeners", "listener.security.protocol.map", "control.plane.listener.name")
async def test_registration_holds_every_endpoint_of_the_broker() -> None:
    async with MemoryCluster(1, **KEYS) as cluster:
        [broker] = cluster.brokers.values()
        data, _ = await cluster.sessions[0].get(layout.broker_path(0))
        fields = json.loads(data)
        names = ("INSIDE", "OUTSIDE", "ADMIN")
        assert fields["endpoints"] == [f"{n}://127.0.0.1:{port(broker, n)}" for n in names]
        assert fields["listener_security_protocol_map"] == dict.fromkeys(names, "PLAINTEXT")
        assert (fields["host"], fields["port"]) == ("127.0.0.1", port(broker, "INSIDE"))


@pytest.mark.key("inter.broker.listener.name")
async def test_followers_fetch_from_the_inter_broker_listener() -> None:
    async with MemoryCluster(2, **KEYS) as cluster:
        async with client(cluster, cluster.brokers[0], "OUTSIDE") as user:
            await user.create_topics(NewTopic("t", partitions=1, replication_factor=2))
            await user.produce("t", [Record(value=b"v")])
        for broker in cluster.brokers.values():
            endpoints = broker.replicas.fetchers.endpoints.values()
            assert {endpoint.name for endpoint in endpoints} == {"INSIDE"}


async def test_broker_without_the_clients_listener_is_not_in_metadata_and_not_a_leader() -> None:
    async with MemoryCluster(2, **KEYS) as cluster:
        await cluster.stop(1, controlled=False)
        cluster.config |= {
            "listeners": "INSIDE://127.0.0.1:0,ADMIN://127.0.0.1:0",
            "inter.broker.listener.name": "INSIDE",
        }
        await cluster.start(1)
        first = cluster.brokers[0]
        await until(lambda: len(first.metadata.brokers) == 2)
        async with client(cluster, first, "INSIDE") as user:
            await user.create_topics(NewTopic("t", assignment={0: (1,)}))
        async with client(cluster, first, "OUTSIDE") as user:
            assert list((await user.describe_cluster()).brokers) == [0]
            [topic] = await user.describe_topics("t")
        assert topic.partitions[0].leader == -1
        assert topic.partitions[0].error == ErrorCode.LISTENER_NOT_FOUND


class Coordinator:
    """A component of one broker whose bound method handles FindCoordinator."""

    def __init__(self, broker: BrokerServer) -> None:
        self.node_id = broker.info.id
        broker.listener.handlers[FIND_COORDINATOR] = self.find

    def find(self, services: Services, request: Any, context: RequestContext) -> Any:
        return response(FIND_COORDINATOR, context.version, node_id=self.node_id, host="h", port=1)


class Coordinators(MemoryCluster):
    """A cluster in which each broker has its own `Coordinator`."""

    def created(self, broker: BrokerServer) -> None:
        Coordinator(broker)


async def test_handler_registered_on_one_broker_serves_only_that_broker() -> None:
    async with Coordinators(2) as cluster:
        for number in (0, 1):
            network = Network(Connector(cluster.transport), cluster.clock, "me")
            address = Address("127.0.0.1", 9092 + number)
            connection = await network.connection(address, 1_000)
            asked = request(FIND_COORDINATOR, 0, key="group")
            data = await connection.request(FIND_COORDINATOR, 0, asked, 1_000)
            assert decode_response(FIND_COORDINATOR, 0, data).node_id == number
            network.close()


@pytest.mark.parametrize("limit", [-1, -2, 2**63 - 1])
def test_idle_connection_stays_open_when_the_idle_limit_is_disabled(limit: int) -> None:
    assert run_seeded(1, connections_after_idling(limit, seconds=900)) == 1


@pytest.mark.parametrize("limit", [0, 1, 60_000])
def test_idle_connection_is_closed_at_the_idle_limit(limit: int) -> None:
    assert run_seeded(1, connections_after_idling(limit, seconds=70)) == 2


async def connections_after_idling(limit: int, *, seconds: int) -> int:
    """Send a request, wait `seconds`, send a second request; return the number of connections that were used.

    `limit`: the broker's connections.max.idle.ms.
    """
    async with MemoryCluster(1, connections_max_idle_ms=limit) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", 1, 1))
        listener = cluster.brokers[0].listener
        before = listener._last_id
        await user.produce("t", [Record(value=b"first")], partition=0)
        await asyncio.sleep(seconds)
        await user.produce("t", [Record(value=b"second")], partition=0)
        return 1 + listener._last_id - before


def test_client_that_reads_no_responses_is_disconnected_at_the_idle_limit() -> None:
    body = request(METADATA, 9, topics=None)
    asked = [encode_request(METADATA, 9, number, "silent", body) for number in range(3_000)]

    async def open_at(*seconds: int) -> list[int]:
        async with MemoryCluster(1, connections_max_idle_ms=60_000) as cluster:
            async with cluster.client() as user:
                await user.create_topics(NewTopic("t", 1_000, 1))
            silent = Silent()
            connections = cluster.brokers[0].listener._connections
            await asyncio.sleep(100)
            await cluster.transport.connect(lambda: silent, "127.0.0.1", 9092)
            silent.link.send(asked)
            found = []
            for count in seconds:
                await asyncio.sleep(count)
                found.append(len(connections))
            return found

    assert run_seeded(1, open_at(50, 20)) == [1, 0]
