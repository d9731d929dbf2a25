"""How a leader's ISR proposals reach ZooKeeper: by compare-and-set, one write per change (R26, S29).

Invariant: a proposal stays pending, and the high watermark waits for the maximal ISR, until ZooKeeper is
known to hold it or known not to. After a conflict that is not our own write it stays pending until the
controller's next LeaderAndIsr.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from minikafka.base.errors import (
    BadVersion,
    Closed,
    CoordinationError,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Coordination, Ledger, Tasks
from minikafka.broker.side_by_side import all_of
from minikafka.ledger.record import ISR, NOTHING
from minikafka.replication.isr import Committed, IsrState, PendingExpand
from minikafka.replication.partition import Partition
from minikafka.zk import layout

logger = logging.getLogger(__name__)
state_change_logger = logging.getLogger("state-change")

_ANNOUNCE_AFTER_MS = 100
"""ISR changes of so long are announced to the controller in one notification."""


class IsrChanges:
    """Writes proposals; `committed(partition, moved)` is told of each that ZooKeeper holds, and whether the
    high watermark moved with it."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        tasks: Tasks,
        committed: Callable[[Partition, bool], None],
        ledger: Ledger = NOTHING,
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._tasks = tasks
        self._tell = committed
        self._ledger = ledger
        self._queue: dict[Partition, None] = {}
        self._queued = asyncio.Event()
        self._announce: set[TopicPartition] = set()
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Begin to write."""
        self._tasks.spawn(self._write_all(), "isr-changes")
        self._tasks.spawn(self._announce_all(), "isr-announcements")

    def propose(self, partition: Partition) -> None:
        """The partition has a pending ISR: write it."""
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
        try:
            await self._compare_and_set(partition, proposal)
        except CoordinationError as error:
            logger.warning(
                "ISR of %s not written: %s %s", partition.tp, type(error).__name__, error
            )
            told = f"{type(error).__name__} {error}"
            self._note(partition, proposal, partition.zk_version, "failed", error=told)

    async def _compare_and_set(self, partition: Partition, proposal: IsrState) -> None:
        state = partition.proposed_state()
        path = layout.state_path(partition.tp)
        data = layout.encode_state(state)
        while partition.isr_state is proposal:
            stat = None
            try:
                stat = await self._coordination.set(path, data, state.zk_version)
            except NotConnected:
                if partition.isr_state is proposal:
                    partition.isr_not_written()
                return
            except (OutcomeUnknown, BadVersion):
                version = await self._read_back(path, data, state.zk_version)
                if version is None:
                    continue
                if version < 0:
                    logger.info(
                        "ISR of %s: another write came first, waiting for LeaderAndIsr",
                        partition.tp,
                    )
                    self._note(partition, proposal, state.zk_version, "conflict")
                    return
            except NoNode:
                return
            else:
                version = stat.version
            zxid = stat.mzxid if stat else None
            self._note(partition, proposal, state.zk_version, "ok", actual=version, zxid=zxid)
            self._committed(partition, proposal, version)
            return

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
        """One line of the ledger; the zxid is not known when the answer was lost and the node read again."""
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

    async def _read_back(self, path: str, data: bytes, expected: int) -> int | None:
        """The version our write got; -1 if another write is there; None if the node is still as before.

        Asked until it is known: a connection lost while asking says nothing of the write.
        """
        while True:
            await self._coordination.connected()
            try:
                await self._coordination.sync(path)
                found, stat = await self._coordination.get(path)
                break
            except (NotConnected, OutcomeUnknown, StaleSession):
                continue
        if found == data:
            return stat.version
        return None if stat.version == expected else -1

    def _committed(self, partition: Partition, proposal: IsrState, version: int) -> None:
        if partition.isr_state is not proposal:
            return
        before = proposal.isr
        moved = partition.isr_committed(version, self._clock.now())
        self._tell(partition, moved)
        state_change_logger.info(
            "partition %s ISR %s -> %s epoch=%d zk_version=%d",
            partition.tp, list(before), list(partition.isr), partition.leader_epoch, version,
        )  # fmt: skip
        self._announce.add(partition.tp)
        self._changed.set()

    async def _announce_all(self) -> None:
        """Tell the controller through /isr_change_notification; a second copy does no harm."""
        with suppress(Closed):
            while True:
                await self._changed.wait()
                await self._clock.sleep(_ANNOUNCE_AFTER_MS)
                self._changed.clear()
                await self._announce_once()

    async def _announce_once(self) -> None:
        """One notification of all that changed; if it fails, it is due again with the next connection."""
        changed, self._announce = self._announce, set()
        try:
            await self._coordination.create(
                layout.ISR_CHANGE_PREFIX,
                layout.encode_isr_change(sorted(changed)),
                sequential=True,
            )
        except CoordinationError as error:
            logger.warning("ISR change not announced: %s %s", type(error).__name__, error)
            self._announce |= changed
            await self._coordination.connected()
            self._changed.set()
