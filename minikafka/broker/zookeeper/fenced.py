"""Writes that carry the check of the controller epoch: each one is a single multi, and one line of the ledger.

Invariant: a write is carried out before the election of the next controller or not at all, and always as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.errors import (
    ControllerMoved,
    CoordinationError,
    MultiFailed,
    OutcomeUnknown,
)
from minikafka.base.ports import Check, Coordination, Ledger, MultiOp
from minikafka.broker.zk_controller import ZooKeeperController
from minikafka.broker.zk_controller.lines import write_line
from minikafka.ledger.record import WRITE
from minikafka.zk.nodes.reader import get_one

CHECK_INDEX = 0
"""Index of the check in the multi; the given operations follow from 1."""


async def fenced_multi(
    coordination: Coordination,
    ledger: Ledger,
    check: Check,
    operations: Sequence[MultiOp],
    generation: int | None = None,
) -> None:
    """Send one multi that begins with the check. Raises ControllerMoved when the check fails, CoordinationError."""
    try:
        stats = await coordination.multi([check, *operations], generation=generation)
    except CoordinationError as error:
        ledger.record(WRITE, "", write_line(check, operations, error=error))
        if isinstance(error, MultiFailed) and error.index == CHECK_INDEX:
            raise ControllerMoved("another controller was elected") from error
        raise
    ledger.record(WRITE, "", write_line(check, operations, stats=stats[1:]))


async def read_back(coordination: Coordination, path: str) -> bytes | None:
    """Return the data of a node after a write whose answer was lost; None if there is no node.

    Without the sync, the server of a new connection may not have the write yet. Raises OutcomeUnknown.
    """
    try:
        await coordination.sync(path)
        node = await get_one(coordination, path)
    except CoordinationError as error:
        raise OutcomeUnknown(f"{path} may or may not have been written") from error
    return None if node is None else node[0]


class FencedWrites:
    """Writes of the active controller; those of other brokers are refused before they are sent."""

    def __init__(
        self, coordination: Coordination, controller: ZooKeeperController, ledger: Ledger
    ) -> None:
        self._coordination = coordination
        self._controller = controller
        self._ledger = ledger

    async def write(self, *operations: MultiOp) -> None:
        """Write all operations or none. Raises KafkaError NOT_CONTROLLER, CoordinationError.

        After OutcomeUnknown the operations may have been carried out.
        """
        check, generation = self._controller.fence(), self._controller.generation
        await fenced_multi(self._coordination, self._ledger, check, operations, generation)
