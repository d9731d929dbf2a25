"""The connections that a client opens, reuses and closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.clients.stub_cluster import HOST, StubCluster
from support.until import until

from minikafka.base.errors import ConfigError
from minikafka.client.login import Connector
from minikafka.client.network import Address, Network, parse_bootstrap, request
from minikafka.kafka.wire.versions import METADATA
from minikafka.runtime.clock import SystemClock

TIMEOUT_MS = 5_000


@pytest.fixture
async def network(cluster: StubCluster) -> AsyncIterator[Network]:
    network = Network(Connector(cluster.transport), SystemClock(), "test")
    yield network
    network.close()


def address(cluster: StubCluster, broker: int) -> Address:
    return Address(HOST, cluster.ports[broker])


async def ask(network: Network, cluster: StubCluster, broker: int) -> object:
    body = request(METADATA, topics=[])
    return await network.call(address(cluster, broker), METADATA, TIMEOUT_MS, body)


async def test_all_requests_to_a_broker_share_one_connection(
    cluster: StubCluster, network: Network
) -> None:
    await asyncio.gather(*(ask(network, cluster, 1) for _ in range(10)))
    assert len(cluster.links[1]) == 1


async def test_lost_connection_is_replaced_by_the_next_request(
    cluster: StubCluster, network: Network
) -> None:
    await ask(network, cluster, 1)
    await cluster.kill(1)
    with pytest.raises(OSError, match=r"."):
        await ask(network, cluster, 1)
    await cluster.restart(1)
    assert await ask(network, cluster, 1)


async def test_least_loaded_lists_idle_brokers_before_busy_ones_and_failed_ones_last(
    cluster: StubCluster, network: Network
) -> None:
    one, two, three = (address(cluster, broker) for broker in (1, 2, 3))
    assert network.least_loaded([three, two, one]) == sorted([one, two, three])
    await ask(network, cluster, 3)
    cluster.silent.add(2)
    waiting = asyncio.ensure_future(ask(network, cluster, 2))
    await until(lambda: cluster.requests[-1][0] == 2)
    assert network.least_loaded([one, two, three]) == [three, one, two]
    await cluster.kill(2)
    with pytest.raises(OSError, match=r"."):
        await waiting
    assert network.least_loaded([one, two, three])[-1] == two


async def test_malformed_response_raises_oserror(cluster: StubCluster, network: Network) -> None:
    cluster.silent.add(1)
    connection = await network.connection(address(cluster, 1), TIMEOUT_MS)
    asked = asyncio.ensure_future(ask(network, cluster, 1))
    await until(lambda: connection.in_flight)
    connection._complete(b"\0\0\0\1\0\xff\xff")
    with pytest.raises(ConnectionError):
        await asked


def test_bootstrap_servers_are_parsed() -> None:
    assert parse_bootstrap("a:1, b.example:65535,[::1]:3") == [
        ("a", 1),
        ("b.example", 65535),
        ("::1", 3),
    ]


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9092", "host:port", "host:0", "host:70000", "a:1,,b:2"]
)
def test_invalid_bootstrap_servers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bootstrap(text)
