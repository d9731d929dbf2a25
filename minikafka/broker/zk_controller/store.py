"""One term's door to ZooKeeper: steady reads, and writes that carry the check of the controller epoch.

Invariants: every write is in a multi that begins with `Check(/controller_epoch, version)` and runs only in
the session of the term (R2, S15); versions are what ZooKeeper returned, never predicted (X23); after an
unknown outcome the nodes are read back before anything is written again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import (
    BadVersion,
    ControllerMoved,
    CoordinationError,
    MinikafkaError,
    MultiFailed,
    NodeExists,
    NoNode,
    NotConnected,
    NotEmpty,
    OutcomeUnknown,
    ServerVerdict,
    StaleSession,
    TooLarge,
)
from minikafka.base.keys import usable
from minikafka.base.model import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Check, Coordination, Create, Delete, Ledger, MultiOp, Set, Stat
from minikafka.broker.side_by_side import all_of
from minikafka.broker.zk_controller.lines import write_line
from minikafka.controller.events import (
    NO_NODE,
    AssignmentsWritten,
    LeaderAndIsrWritten,
    TopicIdsGiven,
    TopicNodesDeleted,
)
from minikafka.ledger.record import NOTHING, WRITE
from minikafka.zk import layout

logger = logging.getLogger(__name__)

_OPERATIONS_MAX: Final = 199
"""Operations of one multi beside the check; a state node is some 100 bytes, so 512 kB are far away."""
_OPERATIONS_PER_CREATE: Final = 3
_MULTIS_IN_FLIGHT: Final = 4
_TOPICS_IN_FLIGHT: Final = 16
"""Topics whose nodes are deleted side by side."""

TopicNode: TypeAlias = tuple[bytes | None, dict[int, ReplicaAssignment]]
"""The id of a topic and its assignment."""
Answer = TypeVar("Answer")
Item = TypeVar("Item")


@dataclass(slots=True)
class _Tally:
    """What became of each write so far."""

    ok: dict[TopicPartition, int] = field(default_factory=dict)
    conflicts: list[TopicPartition] = field(default_factory=list)
    failed: dict[TopicPartition, str] = field(default_factory=dict)


class ControllerStore:
    """Reads and fenced writes of the term that won `epoch_zk_version` in session `generation`."""

    def __init__(
        self,
        coordination: Coordination,
        config: BrokerConfig,
        generation: int,
        epoch_zk_version: int,
        ledger: Ledger = NOTHING,
    ) -> None:
        self._coordination = coordination
        self._config = config
        self.generation = generation
        self.cause = ""
        """Id of the event at hand, for the ledger."""
        self._fence = Check(layout.CONTROLLER_EPOCH, epoch_zk_version)
        self._ledger = ledger

    # Reads.

    async def steady(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of a call that may be repeated, across reconnects of this session.

        Raises StaleSession when the session is gone, ServerVerdict as the call does.
        """
        while True:
            try:
                return await call()
            except (NotConnected, OutcomeUnknown):
                await self.attached()

    async def attached(self) -> None:
        """Wait until the session is connected. Raises StaleSession when it is another one by then."""
        if await self._coordination.connected() != self.generation:
            raise StaleSession(f"the session of generation {self.generation} is gone")

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Data and Stat of each, None where there is no node."""
        return await self.steady(lambda: self._coordination.get_many(paths))

    async def read_states(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """The leadership of every partition that has a readable state node."""
        nodes = await self.get_many([layout.state_path(tp) for tp in partitions])
        states = {}
        for tp, node in zip(partitions, nodes, strict=True):
            if node is None:
                continue
            try:
                states[tp] = layout.decode_state(node[0], node[1].version)
            except ValueError as error:
                logger.error("state node of %s is not readable: %s", tp, error)
        return states

    async def read_unclean_settings(self, topics: Sequence[str]) -> dict[str, bool]:
        """`unclean.leader.election.enable` of each topic over the broker's default (H4)."""
        nodes = await self.get_many([layout.topic_config_path(topic) for topic in topics])
        settings = {}
        for topic, node in zip(topics, nodes, strict=True):
            try:
                stored = layout.decode_config(node[0]) if node else {}
                overrides, _ = usable(TopicConfig.keys(), stored)
                config = TopicConfig.from_broker(self._config, overrides)
                settings[topic] = config.unclean_leader_election_enable
            except (ValueError, MinikafkaError) as error:
                logger.error("configuration of topic %s is not readable: %s", topic, error)
                settings[topic] = False
        return settings

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        """Replace the broker settings that topics inherit."""
        self._config = config

    # Writes.

    async def write_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> LeaderAndIsrWritten:
        """Create or replace state nodes, each at its version. Raises ControllerMoved, StaleSession."""
        tally = _Tally()
        creates = any(state.zk_version == NO_NODE for state in states.values())
        size = _OPERATIONS_MAX // (_OPERATIONS_PER_CREATE if creates else 1)
        batches = _batches(states.items(), size)
        parents = await self._absent_parents(states)

        async def write() -> None:
            for batch in batches:
                try:
                    await self._write_batch(dict(batch), tally, parents)
                except BaseException:
                    batches.close()  # nobody begins another one
                    raise

        await all_of(write() for _ in range(_MULTIS_IN_FLIGHT))
        return LeaderAndIsrWritten(tally.ok, tuple(tally.conflicts), tally.failed)

    async def write_assignments(
        self, topics: Mapping[str, Mapping[int, ReplicaAssignment | None]]
    ) -> AssignmentsWritten:
        """Change partitions of topic nodes, others untouched. Raises ControllerMoved, StaleSession."""
        reasons = await all_of(
            self._write_assignment(topic, changes) for topic, changes in topics.items()
        )
        return AssignmentsWritten(
            {topic: why for topic, why in zip(topics, reasons, strict=True) if why}
        )

    async def _write_assignment(
        self, topic: str, changes: Mapping[int, ReplicaAssignment | None]
    ) -> str:
        """Why it cannot be, or nothing."""

        def changed(node: TopicNode, _: Stat) -> TopicNode:
            topic_id, assignment = node
            if all(assignment.get(number) == wanted for number, wanted in changes.items()):
                return node
            merged = {**assignment, **changes}
            return topic_id, {number: some for number, some in sorted(merged.items()) if some}

        written = await self._change_topic(topic, changed)
        return written if isinstance(written, str) else ""

    async def give_topic_ids(self, topics: Mapping[str, bytes | None]) -> TopicIdsGiven:
        """Put these ids into topic nodes without one; see the question. Raises as `write_assignments`."""
        parents = await self.get_many([layout.partitions_path(topic) for topic in topics])
        missing = {
            topic: topic_id
            for (topic, topic_id), created in zip(topics.items(), parents, strict=True)
            if topic_id is not None or created is None
        }
        found = await all_of(self._give_topic_id(*item) for item in missing.items())
        return TopicIdsGiven(
            {topic: given for topic, given in zip(missing, found, strict=True) if given is not None}
        )

    async def _give_topic_id(self, topic: str, topic_id: bytes | None) -> bytes | None:
        def changed(node: TopicNode, stat: Stat) -> TopicNode:
            return node[0] or topic_id or layout.topic_id_of_node(topic, stat.czxid), node[1]

        written = await self._change_topic(topic, changed)
        if isinstance(written, str):
            logger.error("topic %s gets no id: %s", topic, written)
            return None
        return written[0]

    async def _change_topic(
        self, topic: str, change: Callable[[TopicNode, Stat], TopicNode]
    ) -> TopicNode | str:
        """Read, change and replace at the version read, until it holds; what is there then, or why it cannot be."""
        path = layout.topic_path(topic)
        while True:
            (node,) = await self.get_many([path])
            if node is None:
                return "the topic is gone"
            try:
                before = layout.decode_topic(node[0])
            except ValueError as error:
                return f"the topic's node is not readable: {error}"
            after = change(before, node[1])
            if after == before:
                return after
            try:
                await self._fenced([Set(path, layout.encode_topic(*after), node[1].version)])
            except (NotConnected, OutcomeUnknown):
                await self.attached()
                await self.steady(lambda: self._coordination.sync(layout.CONTROLLER_EPOCH))
            except TooLarge:
                return "the assignment is too large for ZooKeeper"
            except MultiFailed as refused:
                if not isinstance(refused.error, BadVersion | NoNode):
                    return f"{type(refused.error).__name__} {refused.error}"
            else:
                return after

    async def trim_reassignments(
        self, finished: Mapping[TopicPartition, tuple[BrokerId, ...]]
    ) -> None:
        """Take out of `/admin/reassign_partitions` what asks for just these targets; empty, it goes (A11)."""
        path = layout.REASSIGN_PARTITIONS
        while True:
            (node,) = await self.get_many([path])
            if node is None:
                return
            try:
                wanted = layout.decode_reassignments(node[0])
            except ValueError:
                wanted = {}
            left = {tp: target for tp, target in wanted.items() if finished.get(tp) != target}
            if left == wanted and left:
                return
            version = node[1].version
            change: MultiOp = Delete(path, version)
            if left:
                change = Set(path, layout.encode_reassignments(left), version)
            try:
                await self._fenced([change])
            except (NotConnected, OutcomeUnknown):
                await self.attached()
            except MultiFailed as refused:
                if isinstance(refused.error, NotEmpty):
                    await self._delete_below([path])
                elif not isinstance(refused.error, BadVersion | NoNode):
                    logger.error("%s not trimmed: %s", path, refused.error)
                    return
            else:
                return

    async def delete_topics(self, topics: Iterable[str]) -> TopicNodesDeleted:
        """Remove the topics' nodes, their settings and their deletion marks (R64, A16)."""
        failed: dict[str, str] = {}
        for window in _batches(topics, _TOPICS_IN_FLIGHT):
            await all_of(self._delete_topic_or_say_why(topic, failed) for topic in window)
        return TopicNodesDeleted(failed)

    async def _delete_topic_or_say_why(self, topic: str, failed: dict[str, str]) -> None:
        try:
            await self._delete_topic(topic)
        except ServerVerdict as error:
            failed[topic] = f"{type(error).__name__} {error}"

    async def _delete_topic(self, topic: str) -> None:
        """What is below goes first. The topic's node, its settings and its mark go at once, so that whoever
        sees the topic gone can make it anew; after a lost answer the czxid tells that this was done.
        """
        last = [
            layout.topic_path(topic),
            layout.topic_config_path(topic),
            layout.delete_topic_path(topic),
        ]
        first = there = await self.get_many(last)
        while any(there) and not _is_another(there[0], first[0]):
            await self._delete_below(last)
            ops = [Delete(path, -1) for path, node in zip(last, there, strict=True) if node]
            try:
                await self._fenced(list(ops))
            except (NotConnected, OutcomeUnknown):
                await self.attached()
                await self.steady(lambda: self._coordination.sync(layout.CONTROLLER_EPOCH))
            except MultiFailed as refused:
                if not isinstance(refused.error, NoNode | NotEmpty):
                    raise refused.error from refused
            else:
                return
            there = await self.get_many(last)

    async def _delete_below(self, paths: Sequence[str]) -> None:
        """Delete what is below these nodes, whoever put it there, and not the nodes themselves."""
        await self.delete_nodes(reversed(await self._nodes_below(paths)))

    async def _nodes_below(self, paths: Sequence[str]) -> list[str]:
        """All nodes below these, parents before children."""
        found: list[str] = []
        level = list(paths)
        while level:
            names = await self.steady(partial(self._coordination.children_many, level))
            level = [
                f"{parent}/{name}"
                for parent, children in zip(level, names, strict=True)
                for name in children or ()
            ]
            found += level
        return found

    async def delete_nodes(self, paths: Iterable[str]) -> None:
        """Delete these nodes at any version, with what is below; one that is gone already is fine."""
        for batch in _batches(paths, _OPERATIONS_MAX):
            await self._delete_batch(list(batch))

    async def _delete_batch(self, paths: list[str]) -> None:
        while paths:
            try:
                await self._fenced([Delete(path, -1) for path in paths])
            except MultiFailed as refused:
                gone = paths[refused.index - 1]
                if isinstance(refused.error, NotEmpty):
                    await self._delete_below([gone])
                    continue
                paths.remove(gone)
                if not isinstance(refused.error, NoNode):
                    logger.error("%s not deleted: %s", gone, refused.error)
            except (NotConnected, OutcomeUnknown):
                await self.attached()
            else:
                return

    async def _fenced(self, operations: list[MultiOp]) -> list[Stat | None]:
        """The Stats of the operations, without that of the check. Raises ControllerMoved."""
        cause = self.cause
        try:
            stats = await self._coordination.multi(
                [self._fence, *operations], generation=self.generation
            )
        except CoordinationError as error:
            self._note(cause, write_line(self._fence, operations, error=error))
            if (
                isinstance(error, MultiFailed)
                and error.index == 0
                and isinstance(error.error, BadVersion | NoNode)
            ):
                raise ControllerMoved("the controller epoch is another one") from error
            raise
        self._note(cause, write_line(self._fence, operations, stats=stats[1:]))
        return stats[1:]

    def _note(self, cause: str, fields: dict[str, Any]) -> None:
        self._ledger.record(WRITE, cause, fields)

    async def _write_batch(
        self, pending: dict[TopicPartition, LeaderAndIsr], tally: _Tally, parents: set[str]
    ) -> None:
        """Write until every partition of the batch is in the tally.

        `parents`: absent ones; the first batch that needs one makes it, and the others, which ZooKeeper
        carries out after it, go by that. After a refusal a batch looks for itself.
        """
        attempt = 0
        while pending:
            attempt += 1
            if attempt > 1:
                parents = await self._absent_parents(pending)
            operations, owners = self._operations(pending, parents)
            try:
                stats = await self._fenced(operations)
            except NotConnected:
                await self.attached()
            except OutcomeUnknown:
                await self.attached()
                await self.steady(lambda: self._coordination.sync(layout.CONTROLLER_EPOCH))
                await self._read_back(pending, tally)
            except TooLarge:
                await self._write_halves(pending, tally, await self._absent_parents(pending))
                return
            except MultiFailed as refused:
                if _is_for_a_parent(operations[refused.index - 1], refused.error, attempt):
                    continue
                await self._take_refusal(pending, tally, owners[refused.index - 1], refused.error)
            else:
                for tp, stat in zip(owners, stats, strict=True):
                    if stat is not None:
                        tally.ok[tp] = stat.version
                return

    async def _take_refusal(
        self,
        pending: dict[TopicPartition, LeaderAndIsr],
        tally: _Tally,
        culprit: TopicPartition,
        error: ServerVerdict,
    ) -> None:
        """After a refusal at least one partition is in the tally: the culprit, if nothing else tells why."""
        before = len(pending)
        await self._read_back(pending, tally)
        if len(pending) == before:
            tally.failed[culprit] = f"{type(error).__name__} {error}"
            del pending[culprit]

    async def _write_halves(
        self, pending: dict[TopicPartition, LeaderAndIsr], tally: _Tally, parents: set[str]
    ) -> None:
        if len(pending) == 1:
            (tp,) = pending
            tally.failed[tp] = "the state is too large for ZooKeeper"
            return
        for half in _batches(pending.items(), (len(pending) + 1) // 2):
            await self._write_batch(dict(half), tally, parents)

    def _operations(
        self, states: Mapping[TopicPartition, LeaderAndIsr], parents: set[str]
    ) -> tuple[list[MultiOp], list[TopicPartition]]:
        """The operations, and the partition each is for; the last of a partition is its state node.

        Parents that are among them are taken out of `parents`.
        """
        operations: list[MultiOp] = []
        owners: list[TopicPartition] = []
        for tp, state in states.items():
            if state.zk_version == NO_NODE:
                for path in (layout.partitions_path(tp.topic), layout.partition_path(tp)):
                    if path in parents:
                        parents.discard(path)
                        operations.append(Create(path, b""))
            operations.append(_write_of(tp, state))
            owners += [tp] * (len(operations) - len(owners))
        return operations, owners

    async def _absent_parents(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> set[str]:
        """Of the partitions whose state node is to be created."""
        created = [tp for tp, state in states.items() if state.zk_version == NO_NODE]
        paths = dict.fromkeys(
            path
            for tp in created
            for path in (layout.partitions_path(tp.topic), layout.partition_path(tp))
        )
        if not paths:
            return set()
        nodes = await self.get_many(list(paths))
        return {path for path, node in zip(paths, nodes, strict=True) if node is None}

    async def _read_back(self, pending: dict[TopicPartition, LeaderAndIsr], tally: _Tally) -> None:
        """Move into the tally what is written already, or can no longer be; the rest stays pending."""
        partitions = list(pending)
        nodes = await self.get_many([layout.state_path(tp) for tp in partitions])
        found: list[tuple[MultiOp, Stat]] = []
        for tp, node in zip(partitions, nodes, strict=True):
            proposed = pending[tp]
            if node is None:
                if proposed.zk_version != NO_NODE:
                    tally.failed[tp] = "the state node is gone"
                    del pending[tp]
            elif node[1].version == proposed.zk_version:
                continue
            elif node[1].version == proposed.zk_version + 1 and node[0] == layout.encode_state(
                proposed
            ):
                tally.ok[tp] = node[1].version
                found.append((_write_of(tp, proposed), node[1]))
                del pending[tp]
            elif proposed.zk_version == NO_NODE:
                tally.failed[tp] = "a state node exists already"
                del pending[tp]
            else:
                tally.conflicts.append(tp)
                del pending[tp]
        self._note_found(found)

    def _note_found(self, found: Sequence[tuple[MultiOp, Stat]]) -> None:
        """A multi whose answer was lost had happened after all: this is its line."""
        if found:
            operations, stats = [operation for operation, _ in found], [stat for _, stat in found]
            fields = write_line(self._fence, operations, stats=stats)
            self._note(self.cause, fields | {"read_back": True})


def _write_of(tp: TopicPartition, state: LeaderAndIsr) -> MultiOp:
    """The operation that writes the state node itself."""
    path, data = layout.state_path(tp), layout.encode_state(state)
    return Create(path, data) if state.zk_version == NO_NODE else Set(path, data, state.zk_version)


def _is_another(now: tuple[bytes, Stat] | None, before: tuple[bytes, Stat] | None) -> bool:
    """Whether a node was made since, at the same path."""
    return now is not None and (before is None or now[1].czxid != before[1].czxid)


def _is_for_a_parent(operation: MultiOp, error: ServerVerdict, attempt: int) -> bool:
    """Batches of one topic run side by side: another one made the common parent, or was to and was refused."""
    if not isinstance(operation, Create):
        return False
    if isinstance(error, NodeExists):
        return not operation.data
    return isinstance(error, NoNode) and attempt == 1


def _batches(items: Iterable[Item], size: int) -> Generator[list[Item], None, None]:
    """The items in lists of at most that size."""
    batch: list[Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
