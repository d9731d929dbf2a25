"""Writing partition states in multis of limited size. Each write requires the node version that the controller knew.

Invariants: versions are taken from ZooKeeper's answers, never predicted (X23). If one state of a multi conflicts
or fails, the other states of the multi are still written (R3).
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
from minikafka.broker.modes.controller.terms.term_session import (
    OPERATIONS_MAX,
    TermSession,
    batches,
)
from minikafka.broker.side_by_side import all_of
from minikafka.deciders.controller.commands import WrittenStates
from minikafka.zookeeper.nodes import layout, partition_states
from minikafka.zookeeper.nodes.partition_states import ABSENT

_OPERATIONS_PER_CREATION: Final = 3
_MULTIS_IN_FLIGHT: Final = 4


@dataclass(slots=True)
class _Tally:
    """The outcomes so far of one call of `write_states`.

    `ok`: partition -> written version. `conflicts`: partitions whose node was changed by another write.
    `failed`: partition -> reason.
    """

    ok: dict[TopicPartition, int] = field(default_factory=dict)
    conflicts: list[TopicPartition] = field(default_factory=list)
    failed: dict[TopicPartition, str] = field(default_factory=dict)


async def write_states(
    session: TermSession, states: Mapping[TopicPartition, LeaderAndIsr]
) -> WrittenStates:
    """Create state nodes, or replace them by compare-and-set. Raises ControllerMoved, StaleSession."""
    tally = _Tally()
    creates = any(state.state_version == ABSENT for state in states.values())
    size = OPERATIONS_MAX // (_OPERATIONS_PER_CREATION if creates else 1)
    waiting = batches(states.items(), size)
    parents = await _absent_parents(session, states)

    async def write() -> None:
        for batch in waiting:
            await _Batch(session, dict(batch), tally, parents).write()

    await all_of(write() for _ in range(_MULTIS_IN_FLIGHT))
    return WrittenStates(tally.ok, tuple(tally.conflicts), tally.failed)


class _Batch:
    """The states that one multi writes. `pending`: the states that have no outcome yet.

    `parents`: the absent parent nodes, in one set that all batches share. The first batch that needs a parent
    creates it. ZooKeeper carries out later batches afterwards, so they need not create the parent.
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
        """The operations of the current attempt, each with its partition."""

    async def write(self) -> None:
        """Send the multi, with retries, until every state of the batch has an outcome."""
        try:
            stats = await self._session.compare_and_set(self._operations, self._before_retry)
        except TooLarge:
            await self._write_halves()
            return
        if stats:
            for (tp, _), stat in zip(self._written, stats, strict=True):
                if stat is not None:
                    # The operations on parents come first, so a partition's last operation writes its state.
                    self._tally.ok[tp] = stat.version

    async def _operations(self) -> list[MultiOp]:
        self._attempt += 1
        if self._attempt > 1:
            # Another batch may have failed to create the parents that it had claimed.
            self._parents = await _absent_parents(self._session, self._pending)
        self._written = []
        for tp, state in self._pending.items():
            if state.state_version == ABSENT:
                self._written += [(tp, Create(path, b"")) for path in self._claim_parents(tp)]
            self._written.append((tp, partition_states.write(tp, state)))
        return [operation for _, operation in self._written]

    def _claim_parents(self, tp: TopicPartition) -> list[str]:
        """Return the absent parents of a partition's node, which this batch must create.

        These parents are removed from the set that all batches share, so that no other batch creates them.
        """
        claimed = [path for path in partition_states.parents_of(tp) if path in self._parents]
        self._parents.difference_update(claimed)
        return claimed

    async def _before_retry(self, error: CoordinationError, refused: MultiOp | None) -> None:
        if isinstance(error, OutcomeUnknown):
            await self._read_back()
        elif refused is not None and not self._is_about_parent(refused, error):
            left = len(self._pending)
            await self._read_back()
            if len(self._pending) == left:  # no changed node explains the refusal
                tp = next(tp for tp, operation in self._written if operation is refused)
                self._tally.failed[tp] = f"{type(error).__name__} {error}"
                del self._pending[tp]

    def _is_about_parent(self, refused: MultiOp, error: CoordinationError) -> bool:
        """True if an operation was refused because of a parent node that another batch creates.

        There are two such refusals: the operation creates a parent that exists already; or, at the first attempt,
        the operation creates a node whose parent is absent.
        """
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
        """Read the nodes of the pending states, and record the outcomes that the nodes show.

        A pending state has an outcome if it has been written, or can no longer be written.
        """
        partitions = list(self._pending)
        nodes = await self._session.get_many(list(map(layout.state_path, partitions)))
        found: list[tuple[MultiOp, Stat]] = []
        for tp, node in zip(partitions, nodes, strict=True):
            proposed = self._pending[tp]
            if node is None:
                if proposed.state_version != ABSENT:
                    self._fail(tp, "the state node is gone")
                continue
            data, stat = node
            write = partition_states.write(tp, proposed)
            if stat.version == proposed.state_version:
                continue
            if stat.version == proposed.state_version + 1 and data == write.data:
                self._tally.ok[tp] = stat.version
                found.append((write, stat))
                del self._pending[tp]
            elif proposed.state_version == ABSENT:
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
    """Return the absent parents of the state nodes that must be created."""
    created = [tp for tp, state in states.items() if state.state_version == ABSENT]
    paths = list(dict.fromkeys(path for tp in created for path in partition_states.parents_of(tp)))
    if not paths:
        return set()
    nodes = await session.get_many(paths)
    return {path for path, node in zip(paths, nodes, strict=True) if node is None}
