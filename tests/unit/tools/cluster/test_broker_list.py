"""The queues of brokers that commands add and remove."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.zookeeper import broker_list
from minikafka.zookeeper.nodes.layout import COORDINATION
from minikafka.zookeeper.nodes.leaders import layout


def session(ensemble: ZooKeeperInMemory) -> InMemoryClient:
    return InMemoryClient(ensemble)


@pytest.fixture
def ensemble() -> ZooKeeperInMemory:
    made = ZooKeeperInMemory()
    made.put(COORDINATION, b"leaders")
    for path in layout.PERSISTENT:
        made.put(path, b"")
    return made


@pytest.mark.row("C26")
async def test_broker_is_added_once_and_removed_with_its_queue(ensemble: ZooKeeperInMemory) -> None:
    zookeeper = session(ensemble)
    assert await broker_list.add(zookeeper, 4)
    assert not await broker_list.add(zookeeper, 4)
    assert layout.queue_path(4) in ensemble.nodes
    await broker_list.remove(zookeeper, 4)
    assert layout.queue_path(4) not in ensemble.nodes


async def test_removal_of_an_unknown_or_running_broker_is_refused(
    ensemble: ZooKeeperInMemory,
) -> None:
    zookeeper = session(ensemble)
    await broker_list.add(zookeeper, 1)
    with pytest.raises(ClusterError, match="there is no broker 9; the cluster has 1"):
        await broker_list.remove(zookeeper, 9)
    ensemble.put(f"{layout.BROKER_IDS}/1", b"{}")
    with pytest.raises(ConfigError, match="broker 1 is running"):
        await broker_list.remove(zookeeper, 1)


async def test_brokers_of_a_cluster_with_a_controller_are_not_added(
    ensemble: ZooKeeperInMemory,
) -> None:
    ensemble.put(COORDINATION, b"controller")
    with pytest.raises(ClusterError, match="has the coordination mode controller"):
        await broker_list.add(session(ensemble), 4)
    with pytest.raises(ClusterError, match="no broker has been started"):
        await broker_list.add(session(ZooKeeperInMemory()), 4)
