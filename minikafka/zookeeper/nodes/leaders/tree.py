"""The persistent parent nodes that every broker of the mode creates first when it starts."""

from __future__ import annotations

from typing import Final

from minikafka.base.ports import ZooKeeper
from minikafka.zookeeper.nodes.layout import SHARED
from minikafka.zookeeper.nodes.leaders import layout

REGISTRATIONS: Final = layout.BROKER_IDS
"""Parent of the registrations of this mode."""


async def ensure(zookeeper: ZooKeeper) -> None:
    """Create the nodes of the mode, and those that both modes use, if absent. Raises CoordinationError."""
    for path in (*SHARED, *layout.PERSISTENT):
        await zookeeper.ensure(path)
