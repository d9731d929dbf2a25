"""The interface for reading the data of ZooKeeper nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikafka.base.ports import Znode


class NodeReader(Protocol):
    """A reader of the data of many nodes: the ZooKeeper port, or a reader that also sets watches."""

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return data and Stat of each node, in order; None for a missing node. Raises CoordinationError."""


async def get_one(nodes: NodeReader, path: str) -> Znode | None:
    """Return the data and Stat of one node, None if the node does not exist. Raises CoordinationError."""
    (node,) = await nodes.get_many([path])
    return node
