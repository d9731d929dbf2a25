"""The write of an ISR: one compare-and-set on a node (R26, S29).

Invariant: after a lost answer, the node is read until it is certain whether the write succeeded.
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.errors import BadVersion, NoNode, NotConnected, OutcomeUnknown, StaleSession
from minikafka.base.ports import Node, Set, ZooKeeper
from minikafka.broker.capabilities import IsrOutcome, IsrWrite


async def compare_and_set(
    zookeeper: ZooKeeper, operation: Set, is_wanted: Callable[[], bool]
) -> IsrWrite:
    """Write a node at a version, and return when the outcome is certain.

    Before each attempt, `is_wanted()` is called; if it returns False, the outcome is ABANDONED. Raises
    CoordinationError.
    """
    while is_wanted():
        try:
            stat = await zookeeper.set(*operation)
            return IsrWrite(IsrOutcome.WRITTEN, stat.version, stat.mzxid)
        except NotConnected:
            return IsrWrite(IsrOutcome.NOT_SENT)
        except NoNode:
            return IsrWrite(IsrOutcome.ABANDONED)
        except (OutcomeUnknown, BadVersion):
            data, stat = await _read_back(zookeeper, operation.path)
        if data == operation.data:
            return IsrWrite(IsrOutcome.WRITTEN, stat.version)
        if stat.version != operation.version:
            return IsrWrite(IsrOutcome.CONFLICT)
    return IsrWrite(IsrOutcome.ABANDONED)


async def _read_back(zookeeper: ZooKeeper, path: str) -> Node:
    """Return data and Stat of the node, read after a sync, with retries. Raises NoNode, Closed."""
    while True:
        await zookeeper.connected()
        try:
            await zookeeper.sync(path)
            return await zookeeper.get(path)
        except (NotConnected, OutcomeUnknown, StaleSession):
            continue
