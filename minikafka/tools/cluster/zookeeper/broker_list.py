"""The brokers of a cluster without a controller: each has a queue of requests in ZooKeeper.

A broker creates its own queue at its first start. With a queue that was added before, it can get replicas before it
has ever started.
"""

from __future__ import annotations

from minikafka.base.model import BrokerId
from minikafka.base.ports import ZooKeeper
from minikafka.tools.cluster.directory import ClusterError
from minikafka.zookeeper.nodes import coordination
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import brokers, queues


async def add(zookeeper: ZooKeeper, broker_id: BrokerId) -> bool:
    """Create the queue of a broker; return False if it exists. Raises ClusterError and CoordinationError."""
    await _check_mode(zookeeper)
    return await brokers.add_broker(zookeeper, broker_id)


async def remove(zookeeper: ZooKeeper, broker_id: BrokerId) -> None:
    """Remove the queue of a broker with its requests.

    Raises ClusterError if there is no such broker, ConfigError if it runs or hosts replicas, and CoordinationError.
    """
    await _check_mode(zookeeper)
    if not await brokers.remove_broker(zookeeper, broker_id):
        names, _ = await zookeeper.children(queues.DIRECTORY)
        known = ", ".join(map(str, sorted(queues.brokers(names, Faults())))) or "none"
        raise ClusterError(f"there is no broker {broker_id}; the cluster has {known}")


async def _check_mode(zookeeper: ZooKeeper) -> None:
    """Raise ClusterError unless the cluster has the mode leaders."""
    mode = await coordination.read(zookeeper)
    if mode is None:
        raise ClusterError("no broker has been started with this ZooKeeper and chroot")
    if mode != coordination.LEADERS:
        raise ClusterError(
            f"the cluster has the coordination mode {mode}, in which brokers are neither added nor removed: the "
            "controller knows the brokers that are running"
        )
