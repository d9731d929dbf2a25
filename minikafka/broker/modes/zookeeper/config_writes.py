"""The part of the settings' store that differs between the modes: the fence of a write, and who acts on a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikafka.base.ports import Check, MultiOp, Node


class ConfigWrites(Protocol):
    """The writes of settings in one mode."""

    @property
    def fence_paths(self) -> Sequence[str]:
        """Nodes that are read together with the settings before a write."""

    def fence(self, nodes: Sequence[Node | None]) -> list[Check]:
        """Return the checks of a write. `nodes`: the nodes `fence_paths`, as they were read with the settings.

        Raises KafkaError if settings cannot be written yet.
        """

    async def write(self, fence: list[Check], operations: Sequence[MultiOp]) -> None:
        """Write all operations or none. Raises ControllerMoved if the fence has failed, and CoordinationError."""

    def acts_on_changes(self) -> bool:
        """Return True if this broker deletes old notifications and reacts to enabled unclean elections."""

    def unclean_election_enabled(self, topics: Sequence[str]) -> None:
        """Elect leaders for partitions of these topics, which now allow unclean elections (R63)."""

    async def purge(self, operations: Sequence[MultiOp]) -> None:
        """Delete old notifications. Raises KafkaError, CoordinationError."""
