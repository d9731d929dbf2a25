"""Writes whose answer may be lost: the node is read to find out whether the write succeeded."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.ports import Set, Znode, ZooKeeper
from minikafka.broker.capabilities import IsrOutcome, IsrWrite
from minikafka.zookeeper.nodes.reader import get_one


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


async def compare_and_set(
    zookeeper: ZooKeeper, operation: Set, is_wanted: Callable[[], bool]
) -> IsrWrite:
    """Write an ISR: a node at a version (R26, S29). Return when the outcome is certain.

    Before each attempt, `is_wanted()` is called; if it returns False, the outcome is ABANDONED. Raises
    CoordinationError.
    """
    while is_wanted():
        try:
            stat = await zookeeper.set(*operation)
            return IsrWrite(IsrOutcome.WRITTEN, stat.version, stat.mzxid)
        except NotConnected:
            # Certainly not written: the leader proposes the change again, with the ISR of that time.
            return IsrWrite(IsrOutcome.NOT_SENT)
        except NoNode:
            return IsrWrite(IsrOutcome.ABANDONED)
        except (OutcomeUnknown, BadVersion):
            data, stat = await _read_until_answered(zookeeper, operation.path)
        # The data contains this leader's epoch and the ISR that it proposes: no other client writes the same.
        if data == operation.data:
            return IsrWrite(IsrOutcome.WRITTEN, stat.version)
        if stat.version != operation.version:
            return IsrWrite(IsrOutcome.CONFLICT)
    return IsrWrite(IsrOutcome.ABANDONED)


async def _read_until_answered(zookeeper: ZooKeeper, path: str) -> Znode:
    """Return data and Stat of the node, read after a sync, with retries. Raises NoNode, Closed."""
    while True:
        await zookeeper.connected()
        try:
            await zookeeper.sync(path)
            return await zookeeper.get(path)
        except (NotConnected, OutcomeUnknown, StaleSession):
            continue
