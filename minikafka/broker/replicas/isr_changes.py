"""The ISR changes of the partitions that this broker leads: proposals, and their writes to the `IsrStore` (R26, S29).

Invariant: a proposal stays pending, and the high watermark waits for the maximal ISR, until it is certain
whether the proposal was written. After a conflict, the proposal stays pending until the mode gives the partition its
next role.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from minikafka.base.errors import CoordinationError
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Clock, Ledger, Tasks
from minikafka.broker.capabilities import IsrOutcome, IsrStore, IsrWrite
from minikafka.broker.ledger.record import ISR
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.side_by_side import all_of
from minikafka.storage.replication.isr import Committed, IsrState, PendingExpand
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.progress import FollowerProgress
from minikafka.storage.replication.purgatory import Purgatory
from minikafka.storage.replication.replica_selector import forget_former_readers

logger = logging.getLogger(__name__)
state_change_logger = logging.getLogger("state-change")


class IsrChanges:
    """The proposals for the ISRs of `partitions`, all partitions of this broker, and their writer to `store`."""

    def __init__(
        self,
        store: IsrStore,
        partitions: Mapping[TopicPartition, Partition],
        metadata: MetadataCache,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
        ledger: Ledger,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._metadata = metadata
        self._purgatory = purgatory
        self._clock = clock
        self._tasks = tasks
        self._ledger = ledger
        self.shrinks = self.expands = self.failures = 0
        """Counts for Kafka's IsrShrinksPerSec, IsrExpandsPerSec and FailedIsrUpdatesPerSec."""
        self._queue: dict[Partition, None] = {}
        self._queued = asyncio.Event()

    def start(self) -> None:
        """Start the task that writes proposals."""
        self._tasks.spawn(self._write_all(), "isr-changes")

    # ---- proposals

    def check(self, now: int) -> None:
        """Propose ISRs without the followers that lag or have probably died, and advance high watermarks."""
        for partition in self._partitions.values():
            self.maybe_shrink(partition, now)
            forget_former_readers(partition, now)
        self._advance_high_watermarks(now)

    def _advance_high_watermarks(self, now: int) -> None:
        """Advance the high watermarks that no longer wait for a follower, because it died or fell behind.

        Also wake requests that wait for a low watermark, which depends on live followers only.
        """
        for partition in self._partitions.values():
            self._purgatory.waiting.update(partition.waiting)
            if partition.maybe_advance_high_watermark(now):
                self._purgatory.high_watermark_moved(partition)
        self._purgatory.finish_soon()

    def maybe_shrink(
        self, partition: Partition, now: int, behind: AbstractSet[BrokerId] = frozenset()
    ) -> None:
        """Propose the ISR without followers that lag or are suspects, if there are any.

        `behind`: followers that lag in any case.
        """
        if partition.maybe_shrink_isr(now, self._metadata.suspects, behind):
            self.propose(partition)

    def expand_all(self, now: int) -> None:
        """Propose ISRs with the followers that have become known to be alive."""
        for partition in self._partitions.values():
            if partition.is_leader:
                self.maybe_expand(partition, now)

    def maybe_expand(self, partition: Partition, now: int) -> None:
        """Propose the ISR with one more follower, if one may join without a further fetch."""
        progress = partition.next_to_join(now)
        if progress is not None:
            self.expand(partition, progress)

    def expand(self, partition: Partition, progress: FollowerProgress) -> None:
        """Propose the ISR with this follower, which has caught up."""
        partition.expand_isr(progress.broker_id)
        self.propose(partition)

    # ---- writes

    def propose(self, partition: Partition) -> None:
        """Queue the partition, so that the task of `start` writes the partition's pending ISR to the store."""
        self._queue[partition] = None
        self._queued.set()

    async def _write_all(self) -> None:
        while True:
            await self._queued.wait()
            self._queued.clear()
            queue, self._queue = self._queue, {}
            await all_of(self._write(partition) for partition in queue)

    async def _write(self, partition: Partition) -> None:
        proposal = partition.isr_state
        if type(proposal) is Committed or not partition.is_leader:
            return
        state = partition.proposed_state()
        try:
            written = await self._store.write(
                partition.tp, state, lambda: partition.isr_state is proposal
            )
        except CoordinationError as error:
            self.failures += 1
            reason = f"{type(error).__name__} {error}"
            logger.warning("ISR of %s not written: %s", partition.tp, reason)
            self._note(partition, proposal, partition.state_version, "failed", error=reason)
        else:
            self._apply(partition, proposal, state.state_version, written)

    def _apply(
        self, partition: Partition, proposal: IsrState, expected: int, written: IsrWrite
    ) -> None:
        """Act on the outcome of a conditional write. `expected` is the stored version that the write required."""
        outcome, version, zxid = written
        if outcome is IsrOutcome.WRITTEN:
            self._note(partition, proposal, expected, "ok", actual=version, zxid=zxid)
            self._commit(partition, proposal, version)
        elif outcome is IsrOutcome.CONFLICT:
            self.failures += 1
            logger.info(
                "ISR of %s: another write came first, waiting for LeaderAndIsr", partition.tp
            )
            self._note(partition, proposal, expected, "conflict")
        elif outcome is IsrOutcome.NOT_SENT and partition.isr_state is proposal:
            partition.isr_not_written()

    def _commit(self, partition: Partition, proposal: IsrState, version: int) -> None:
        if partition.isr_state is not proposal:
            return
        if type(proposal) is PendingExpand:
            self.expands += 1
        else:
            self.shrinks += 1
        before = proposal.isr
        moved = partition.isr_committed(version, self._clock.now())
        self._committed(partition, moved)
        state_change_logger.info(
            "partition %s ISR %s -> %s epoch=%d state_version=%d",
            partition.tp,
            list(before),
            list(partition.isr),
            partition.leader_epoch,
            version,
        )

    def _committed(self, partition: Partition, moved: bool) -> None:
        """Propose the next change of the ISR; answer what waits for the high watermark if it has `moved`."""
        self.maybe_shrink(partition, self._clock.now())
        self.maybe_expand(partition, self._clock.now())
        if moved:
            self._purgatory.high_watermark_moved(partition)
        self._purgatory.finish_soon()

    def _note(
        self,
        partition: Partition,
        proposal: IsrState,
        expected: int,
        outcome: str,
        *,
        actual: int | None = None,
        zxid: int | None = None,
        error: str = "",
    ) -> None:
        """Write one ledger line about the outcome of a proposal.

        `zxid` is None for a written proposal if the response was lost and the state was read again.
        """
        fields = {
            "topic": partition.tp.topic,
            "partition": partition.tp.partition,
            "change": "expand" if type(proposal) is PendingExpand else "shrink",
            "leader_epoch": partition.leader_epoch,
            "before": proposal.isr,
            "isr": proposal.proposed,
            "expected": expected,
            "actual": actual,
            "zxid": zxid,
            "outcome": outcome,
            "error": error,
        }
        self._ledger.record(ISR, "", fields)
