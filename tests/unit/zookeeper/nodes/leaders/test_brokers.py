"""Adding brokers to a cluster and removing them, in the nodes."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes.leaders.brokers import add_broker, remove_broker

QUEUE = "/leaders/brokers/state/7"


@pytest.fixture
async def zookeeper() -> InMemoryClient:
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.start()
    return zookeeper


@pytest.mark.row("C26")
async def test_added_broker_has_a_queue_until_it_is_removed(zookeeper: InMemoryClient) -> None:
    assert await add_broker(zookeeper, 7)
    assert not await add_broker(zookeeper, 7)
    assert QUEUE in zookeeper.server.nodes
    for number in range(1_200):
        zookeeper.server.put(f"{QUEUE}/q-{number:010}", b"{}")
    zookeeper.server.put(f"{QUEUE}/odd", b"?")
    assert await remove_broker(zookeeper, 7)
    assert not any(path.startswith(QUEUE) for path in zookeeper.server.nodes)
    assert not await remove_broker(zookeeper, 7)


@pytest.mark.row("C26")
@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"/leaders/brokers/ids/7": b"{}"}, "is running"),
        ({"/leaders/brokers/topics/t/0/replicas": b"1,7"}, "replicas of t-0"),
        ({"/leaders/brokers/partitions_reassigned/t/3": b"7"}, "replicas of t-3"),
        (
            {f"/leaders/brokers/topics/t/{n}/replicas": b"7" for n in range(12)},
            "t-9 and 2 more",
        ),
    ],
)
async def test_broker_that_runs_or_hosts_replicas_is_not_removed(
    zookeeper: InMemoryClient, nodes: dict[str, bytes], reason: str
) -> None:
    await add_broker(zookeeper, 7)
    for path, data in nodes.items():
        zookeeper.server.put(path, data)
    with pytest.raises(ConfigError, match=reason):
        await remove_broker(zookeeper, 7)
    assert QUEUE in zookeeper.server.nodes


@pytest.mark.row("C26")
async def test_removal_is_repeated_when_a_request_arrives_meanwhile(
    zookeeper: InMemoryClient,
) -> None:
    await add_broker(zookeeper, 7)
    late = iter([f"{QUEUE}/q-0000000001"])

    def arrive(_: object) -> None:
        for path in late:
            zookeeper.server.put(path, b"{}")

    zookeeper.before_multi = arrive
    assert await remove_broker(zookeeper, 7)
    assert QUEUE not in zookeeper.server.nodes
