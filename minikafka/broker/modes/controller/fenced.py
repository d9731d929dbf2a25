"""Writes to ZooKeeper that carry out administrators' requests.

Only the active controller sends these writes, each as a `fenced_multi`.
"""

from __future__ import annotations

from minikafka.base.ports import Ledger, MultiOp, ZooKeeper
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.controller.terms.fenced_multi import fenced_multi


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
