"""The part of a ZooKeeper session that reading nodes needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikafka.base.ports import Node


class NodeReader(Protocol):
    """A reader of the data of many nodes: the Coordination port, or a reader that also sets watches."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return data and Stat of each path, in order; None where there is no node. Raises CoordinationError."""


async def get_one(nodes: NodeReader, path: str) -> Node | None:
    """Return data and Stat of one node, None if it does not exist. Raises CoordinationError."""
    (node,) = await nodes.get_many([path])
    return node
