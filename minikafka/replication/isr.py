"""The ISR of a partition as its leader holds it: committed, or on its way to ZooKeeper (R27, AsyncIsr).

Invariant: at most one change is pending, and while it is, `maximal` (what the high watermark must wait
for) is the union of what was and what may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minikafka.base.model import BrokerId


@dataclass(frozen=True, slots=True)
class Committed:
    """ZooKeeper holds exactly this ISR, at the partition's `zk_version`."""

    isr: tuple[BrokerId, ...]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The same."""
        return self.isr

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """The same."""
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """A write that adds one replica was sent and is not known to have happened."""

    isr: tuple[BrokerId, ...]
    joining: BrokerId

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The committed ISR and the joining replica."""
        return (*self.isr, self.joining)

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """What the write says."""
        return (*self.isr, self.joining)


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """A write that drops replicas was sent and is not known to have happened."""

    isr: tuple[BrokerId, ...]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """Still the committed ISR: a leaving replica may yet be in it."""
        return self.isr

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """What the write says."""
        return tuple(replica for replica in self.isr if replica not in self.leaving)


IsrState: TypeAlias = Committed | PendingExpand | PendingShrink
