"""Writes of brokers that check the controller epoch: those of administrators' requests, and those of settings.

Invariant: a write takes effect as a whole and before the next controller is elected, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Check, Ledger, MultiOp, Znode, ZooKeeper
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.controller.terms.term_session import fenced_multi
from minikafka.zookeeper.nodes import election, layout


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


class ControllerConfigWrites:
    """ConfigWrites of any broker, with the check of `/controller_epoch`. Only the active controller acts on changes."""

    fence_paths: Final = (layout.CONTROLLER_EPOCH,)

    def __init__(
        self, zookeeper: ZooKeeper, controller: ZooKeeperController, ledger: Ledger
    ) -> None:
        self._zookeeper = zookeeper
        self._controller = controller
        self._ledger = ledger
        self._own_writes = FencedWrites(zookeeper, controller, ledger)

    def fence(self, nodes: Sequence[Znode | None]) -> list[Check]:
        """Return the check of the epoch that was read. Raises KafkaError if there has been no controller."""
        (epoch,) = nodes
        if epoch is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller has been elected yet")
        return [election.fence(epoch.stat.version)]

    async def write(self, fence: list[Check], operations: Sequence[MultiOp]) -> None:
        """Write all operations or none. Raises ControllerMoved if another controller was elected."""
        (check,) = fence
        await fenced_multi(self._zookeeper, self._ledger, check, operations)

    def acts_on_changes(self) -> bool:
        """Return True if this broker is the active controller."""
        return self._controller.is_active

    def unclean_election_enabled(self, topics: Sequence[str]) -> None:
        """Pass the topics to the controller."""
        self._controller.unclean_election_enabled(topics)

    async def purge(self, operations: Sequence[MultiOp]) -> None:
        """Delete old notifications in a write that only the active controller may send."""
        await self._own_writes.write(*operations)
