"""Reading of a node after a write whose answer was lost, to find out whether the write succeeded."""

from __future__ import annotations

from minikafka.base.errors import CoordinationError, OutcomeUnknown
from minikafka.base.ports import ZooKeeper
from minikafka.zk.nodes.reader import get_one


async def read_back(zookeeper: ZooKeeper, path: str) -> bytes | None:
    """Return the data of a node after a write whose answer was lost; None if there is no node.

    Sync first, because the server of a new connection possibly has not received the write yet. Raises OutcomeUnknown
    if the node cannot be read.
    """
    try:
        await zookeeper.sync(path)
        node = await get_one(zookeeper, path)
    except CoordinationError as error:
        raise OutcomeUnknown(f"{path} may or may not have been written") from error
    return None if node is None else node.data
