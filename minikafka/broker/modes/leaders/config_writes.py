"""The writes of settings in the leader-coordinated mode, without a fence: every broker acts, and none decides alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from minikafka.base.ports import Check, MultiOp, Node, ZooKeeper


class LeadersConfigWrites:
    """ConfigWrites of the mode. `on_unclean_election(topics)` reads the leaderless partitions of these topics again.

    Every broker deletes old notifications. Of the brokers that do so at once, one succeeds with all its deletions, and
    the others with none.
    """

    fence_paths: Final = ()

    def __init__(
        self, zookeeper: ZooKeeper, on_unclean_election: Callable[[Sequence[str]], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._on_unclean_election = on_unclean_election

    def fence(self, nodes: Sequence[Node | None]) -> list[Check]:
        """Return no check: the version of the settings node is enough."""
        return []

    async def write(self, fence: list[Check], operations: Sequence[MultiOp]) -> None:
        """Write all operations or none. Raises CoordinationError."""
        await self._zookeeper.multi([*fence, *operations])

    def acts_on_changes(self) -> bool:
        """Return True: an election concerns every broker that hosts a replica."""
        return True

    def unclean_election_enabled(self, topics: Sequence[str]) -> None:
        """Pass the topics on."""
        self._on_unclean_election(topics)

    async def purge(self, operations: Sequence[MultiOp]) -> None:
        """Delete old notifications. Raises CoordinationError, for example if another broker has deleted them."""
        await self._zookeeper.multi(operations)
