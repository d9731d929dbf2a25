"""The ISR of a partition in its leader's memory: committed, or with a change being written (R27, AsyncIsr).

Invariants: at most one change is pending; `maximal`, the replicas that the high watermark waits for, is the
union of the committed and the proposed ISR.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from minikafka.base.model import BrokerId


@dataclass(frozen=True, slots=True)
class Committed:
    """The ISR without a pending change: the stored ISR, at the partition's `state_version`."""

    isr: tuple[BrokerId, ...]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The committed ISR."""
        return self.isr

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """The committed ISR, because no change is proposed."""
        return self.isr

    def without(
        self, lagging: AbstractSet[BrokerId], suspects: AbstractSet[BrokerId], required: int
    ) -> PendingShrink | None:
        """Return the ISR while the leader removes members that lag or have probably died; None if all stay.

        The suspects are removed only if at least `required` members (`min.insync.replicas`) stay. A suspect may be
        alive, and writes must not be refused because of it.
        """
        leaving = lagging | {member for member in self.isr if member in suspects}
        if len(self.isr) - len(leaving) < required:
            leaving = lagging
        return PendingShrink(self.isr, frozenset(leaving)) if leaving else None


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """The ISR while the leader adds one replica. The write of the new ISR to the store may still fail."""

    isr: tuple[BrokerId, ...]
    joining: BrokerId

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The committed ISR and the joining replica."""
        return (*self.isr, self.joining)

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """The ISR that the write proposes: the committed ISR and the joining replica."""
        return (*self.isr, self.joining)


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """The ISR while the leader removes replicas. The write of the new ISR to the store may still fail."""

    isr: tuple[BrokerId, ...]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The committed ISR. The leaving replicas are included, because they remain in the ISR if the write fails."""
        return self.isr

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """The ISR that the write proposes: the committed ISR without the leaving replicas."""
        return tuple(replica for replica in self.isr if replica not in self.leaving)


IsrState: TypeAlias = Committed | PendingExpand | PendingShrink
