"""Partition states written in multis of limited size, each at the node version that the decision used.

Invariants: versions are those that ZooKeeper returned, never predicted (X23); a state that conflicts or fails
does not keep the others of its multi from being written (R3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from minikafka.base.errors import (
    CoordinationError,
    NodeExists,
    NoNode,
    OutcomeUnknown,
    TooLarge,
)
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.ports import Create, MultiOp, Stat
from minikafka.broker.side_by_side import all_of
from minikafka.broker.zk_controller.term_session import OPERATIONS_MAX, TermSession, batches
from minikafka.controller.events import LeaderAndIsrWritten
from minikafka.zk.nodes import partition_states
from minikafka.zk.nodes.partition_states import ABSENT

_OPERATIONS_PER_CREATION: Final = 3
_MULTIS_IN_FLIGHT: Final = 4


@dataclass(slots=True)
class _Tally:
    """The outcomes so far: by partition the written version, the conflicts, and the reasons of failures."""

    ok: dict[TopicPartition, int] = field(default_factory=dict)
    conflicts: list[TopicPartition] = field(default_factory=list)
    failed: dict[TopicPartition, str] = field(default_factory=dict)


async def write_states(
    session: TermSession, states: Mapping[TopicPartition, LeaderAndIsr]
) -> LeaderAndIsrWritten:
    """Create or replace state nodes, each at its version. Raises ControllerMoved, StaleSession."""
    tally = _Tally()
    creates = any(state.zk_version == ABSENT for state in states.values())
    size = OPERATIONS_MAX // (_OPERATIONS_PER_CREATION if creates else 1)
    waiting = batches(states.items(), size)
    parents = await _absent_parents(session, states)

    async def write() -> None:
        for batch in waiting:
            await _Batch(session, dict(batch), tally, parents).write()

    await all_of(write() for _ in range(_MULTIS_IN_FLIGHT))
    return LeaderAndIsrWritten(tally.ok, tuple(tally.conflicts), tally.failed)


class _Batch:
    """States that one multi writes; those without an outcome yet are `pending`.

    `parents`: parent nodes that are absent, one set shared by all batches. The first batch that needs a
    parent creates it, and ZooKeeper carries out the other batches afterwards.
    """

    def __init__(
        self,
        session: TermSession,
        pending: dict[TopicPartition, LeaderAndIsr],
        tally: _Tally,
        parents: set[str],
    ) -> None:
        self._session = session
        self._pending = pending
        self._tally = tally
        self._parents = parents
        self._attempt = 0
        self._written: list[tuple[TopicPartition, MultiOp]] = []
        """The operations of the current attempt, and the partition that each is for."""

    async def write(self) -> None:
        """Send the multi again until every state of the batch has an outcome."""
        try:
            stats = await self._session.compare_and_set(self._operations, self._before_retry)
        except TooLarge:
            await self._write_halves()
            return
        if stats:
            for (tp, _), stat in zip(self._written, stats, strict=True):
                if stat is not None:
                    # The last operation of a partition is its state.
                    self._tally.ok[tp] = stat.version

    async def _operations(self) -> list[MultiOp]:
        self._attempt += 1
        if self._attempt > 1:
            self._parents = await _absent_parents(self._session, self._pending)
        self._written = []
        for tp, state in self._pending.items():
            if state.zk_version == ABSENT:
                self._written += [(tp, Create(path, b"")) for path in self._claim_parents(tp)]
            self._written.append((tp, partition_states.write(tp, state)))
        return [operation for _, operation in self._written]

    def _claim_parents(self, tp: TopicPartition) -> list[str]:
        """Return the missing parents of a partition's node, and reserve their creation for this batch."""
        claimed = [path for path in partition_states.parents_of(tp) if path in self._parents]
        self._parents.difference_update(claimed)
        return claimed

    async def _before_retry(self, error: CoordinationError, refused: MultiOp | None) -> None:
        if isinstance(error, OutcomeUnknown):
            await self._read_back()
        elif refused is not None and not self._is_about_parent(refused, error):
            left = len(self._pending)
            await self._read_back()
            if len(self._pending) == left:  # nothing explains the refusal
                tp = next(tp for tp, operation in self._written if operation is refused)
                self._tally.failed[tp] = f"{type(error).__name__} {error}"
                del self._pending[tp]

    def _is_about_parent(self, refused: MultiOp, error: CoordinationError) -> bool:
        """True if the refusal concerns a parent that another batch has created, or should have created."""
        if not isinstance(refused, Create):
            return False
        if isinstance(error, NodeExists):
            return not refused.data
        return isinstance(error, NoNode) and self._attempt == 1

    async def _write_halves(self) -> None:
        if len(self._pending) == 1:
            (tp,) = self._pending
            self._tally.failed[tp] = "the state is too large for ZooKeeper"
            return
        parents = await _absent_parents(self._session, self._pending)
        for half in batches(self._pending.items(), (len(self._pending) + 1) // 2):
            await _Batch(self._session, dict(half), self._tally, parents).write()

    async def _read_back(self) -> None:
        """Move states that are written already, or can no longer be written, from `pending` to the tally."""
        partitions = list(self._pending)
        nodes = await self._session.get_many(list(map(partition_states.path_of, partitions)))
        found: list[tuple[MultiOp, Stat]] = []
        for tp, node in zip(partitions, nodes, strict=True):
            proposed = self._pending[tp]
            if node is None:
                if proposed.zk_version != ABSENT:
                    self._fail(tp, "the state node is gone")
                continue
            data, stat = node
            write = partition_states.write(tp, proposed)
            if stat.version == proposed.zk_version:
                continue
            if stat.version == proposed.zk_version + 1 and data == write.data:
                self._tally.ok[tp] = stat.version
                found.append((write, stat))
                del self._pending[tp]
            elif proposed.zk_version == ABSENT:
                self._fail(tp, "a state node exists already")
            else:
                self._tally.conflicts.append(tp)
                del self._pending[tp]
        self._session.note_found([write for write, _ in found], [stat for _, stat in found])

    def _fail(self, tp: TopicPartition, reason: str) -> None:
        self._tally.failed[tp] = reason
        del self._pending[tp]


async def _absent_parents(
    session: TermSession, states: Mapping[TopicPartition, LeaderAndIsr]
) -> set[str]:
    """Return the missing parents of the state nodes that are to be created."""
    created = [tp for tp, state in states.items() if state.zk_version == ABSENT]
    paths = list(dict.fromkeys(path for tp in created for path in partition_states.parents_of(tp)))
    if not paths:
        return set()
    nodes = await session.get_many(paths)
    return {path for path, node in zip(paths, nodes, strict=True) if node is None}
