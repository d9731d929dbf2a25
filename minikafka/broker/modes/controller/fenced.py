"""Writes to ZooKeeper that carry out administrators' requests.

Only the active controller sends these writes, each as a `fenced_multi`. After a lost answer, `read_back` shows
whether the write succeeded.
"""

from __future__ import annotations

from minikafka.base.errors import CoordinationError, OutcomeUnknown
from minikafka.base.ports import Ledger, MultiOp, ZooKeeper
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.controller.terms.fenced_multi import fenced_multi
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


class FencedWrites:
    """Writes that only the active controller may send. A write of any other broker is refused before sending."""

    def __init__(
        self, zookeeper: ZooKeeper, controller: ZooKeeperController, ledger: Ledger
    ) -> None:
        self._zookeeper = zookeeper
        self._controller = controller
        self._ledger = ledger

    async def write(self, *operations: MultiOp) -> None:
        """Write all operations or none. Raises KafkaError NOT_CONTROLLER, CoordinationError.

        If this method raises OutcomeUnknown, ZooKeeper may have carried out the operations.
        """
        await fenced_multi(
            self._zookeeper,
            self._ledger,
            self._controller.fence(),
            operations,
            generation=self._controller.generation,
        )
