"""The persistent parent nodes that every broker creates first when it starts."""

from __future__ import annotations

from minikafka.base.ports import ZooKeeper
from minikafka.zk import layout


async def ensure(zookeeper: ZooKeeper) -> None:
    """Create Kafka's persistent nodes that do not exist yet. Raises CoordinationError."""
    for path in layout.PERSISTENT:
        await zookeeper.ensure(path)
