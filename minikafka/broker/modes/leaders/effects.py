"""Carries out the machine's effects, one after the other, in the lane of their partition.

An effect that ZooKeeper does not answer is repeated, as long as the era lasts. Orders to the replicas are fenced by the
era: after the end of the lease, nobody becomes leader by an effect that was decided before.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Protocol

from minikafka.base.errors import (
    Closed,
    CoordinationError,
    ErrorCode,
    FollowerStateChangeQueueFull,
    KafkaError,
)
from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    BrokerId,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.base.ports import Clock, Gate, Tasks
from minikafka.broker.capabilities import Orders
from minikafka.broker.modes.leaders.era import Era
from minikafka.broker.modes.leaders.lines import Lines
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.modes.leaders.reads import PartitionReads
from minikafka.broker.modes.leaders.role_states import role_of
from minikafka.broker.modes.leaders.watches import PartitionWatches, ReassignmentWatches
from minikafka.broker.modes.leaders.writes import PartitionWrites
from minikafka.leaders.commands import (
    BecomeFollower,
    BecomeLeader,
    CloseReplica,
    Command,
    CompleteReassignment,
    Consume,
    EndRole,
    Enqueue,
    GiveUpLeadership,
    Note,
    Open,
    RaiseEpoch,
    Scan,
    TryToLead,
    Unwatch,
    WaitToElect,
    WatchPartition,
    WatchReassignments,
)
from minikafka.leaders.machine import LeadersMachine
from minikafka.leaders.model import StateChange
from minikafka.leaders.steps import step_of

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 200


class FollowUps(Protocol):
    """The work that effects start and that ends later, with new events for the machine."""

    def poke(self, era: Era, tp: TopicPartition) -> None:
        """Let the lane of the partition read it again."""

    def look_at_reassignments(self, era: Era, changed: Iterable[TopicPartition]) -> None:
        """Read the partitions among these that this broker leads: their reassignments have changed."""

    def leads_any(self, topic: str) -> bool:
        """Return True if this broker leads a partition of a topic."""

    def wait_to_elect(self, era: Era, tp: TopicPartition, *, is_for_preferred: bool) -> None:
        """Wait for the turn of this broker, and read the partition then."""

    def wait_to_open(self, era: Era, effect: BecomeLeader) -> None:
        """Wait until every live in-sync replica has caught up with this new leader (C17)."""

    def scan(self, era: Era) -> None:
        """Scan all replicas, as at the start."""

    def host_again(self, era: Era, tp: TopicPartition) -> None:
        """Read one partition and its files: this broker is one of its replicas again."""

    def replicas_failed(self, era: Era) -> None:
        """Give up the leaderships of replicas whose log directory has failed (R67)."""


class Effects:
    """Carries out the effects of one broker's machine."""

    def __init__(
        self,
        broker_id: BrokerId,
        machine: LeadersMachine,
        clock: Clock,
        tasks: Tasks,
        gate: Gate,
        reads: PartitionReads,
        writes: PartitionWrites,
        queue: StateChangeQueue,
        watches: PartitionWatches,
        reassignments: ReassignmentWatches,
        metadata: LeadersMetadata,
        lines: Lines,
        follow_ups: FollowUps,
    ) -> None:
        self.orders: Orders
        self._broker_id = broker_id
        self._machine = machine
        self._clock = clock
        self._tasks = tasks
        self._gate = gate
        self._reads = reads
        self._writes = writes
        self._queue = queue
        self._watches = watches
        self._reassignments = reassignments
        self._metadata = metadata
        self._lines = lines
        self._follow_ups = follow_ups
        self._handlers: dict[type, Callable[[Era, Any], Awaitable[None]]] = {
            TryToLead: self._write,
            RaiseEpoch: self._write,
            CompleteReassignment: self._write,
            GiveUpLeadership: self._write,
            Enqueue: self._enqueue,
            Consume: self._consume,
            WatchPartition: self._watch,
            WatchReassignments: self._watch_reassignments,
            Unwatch: self._unwatch,
            WaitToElect: self._wait_to_elect,
            BecomeLeader: self._lead,
            Open: self._open,
            BecomeFollower: self._follow,
            EndRole: self._stop,
            CloseReplica: self._close,
            Scan: self._scan,
            Note: self._note,
        }

    async def carry_out(self, era: Era, effects: Iterable[Command]) -> None:
        """Carry out the effects in order, and repeat each one until ZooKeeper has answered or the era is over."""
        for effect in effects:
            step = step_of(effect)
            if step is not None:
                await self._gate.reached(*step)
            while not era.is_over and not await self._is_carried_out(era, effect):
                await self._clock.sleep(_RETRY_MS)

    async def _is_carried_out(self, era: Era, effect: Command) -> bool:
        try:
            await self._handlers[type(effect)](era, effect)
        except KafkaError as error:
            logger.info("%s is not carried out: %s", effect, error)
        except Closed:
            era.end()
        except CoordinationError as error:
            logger.info("%s is repeated: %s %s", effect, type(error).__name__, error)
            return False
        return True

    # ZooKeeper.

    async def _write(
        self,
        era: Era,
        effect: TryToLead | RaiseEpoch | CompleteReassignment | GiveUpLeadership,
    ) -> None:
        """Send the multi, and have the partition read: only a read shows the outcome."""
        if isinstance(effect, CompleteReassignment | RaiseEpoch):
            closes = await self._closes(effect)
            if closes is None:
                self._follow_ups.wait_to_elect(era, effect.tp, is_for_preferred=False)
                return
            effect = replace(effect, closes=closes)
        await self._writes.write(era, effect)
        self._follow_ups.poke(era, effect.tp)

    async def _closes(
        self, effect: CompleteReassignment | RaiseEpoch
    ) -> tuple[tuple[BrokerId, StateChange], ...] | None:
        """Return the close requests that belong to the multi, None if a queue has no room for one (C13).

        A broker without a queue has no replicas to close: it has never started, or was removed.
        """
        closes = []
        for broker_id, request in effect.closes:
            try:
                await self._queue.make_room(broker_id)
            except KafkaError as error:
                logger.warning("%s is not sent: %s", request, error)
            except FollowerStateChangeQueueFull as error:
                logger.error("the reassignment of %s ends later: %s", effect.tp, error)
                return None
            else:
                closes.append((broker_id, request))
        return tuple(closes)

    async def _enqueue(self, era: Era, effect: Enqueue) -> None:
        """Add a request to another broker's queue in the background: a full queue must not delay the partition."""
        self._tasks.spawn(self._keep_enqueuing(era, effect), f"enqueue-{effect.broker_id}")

    async def _keep_enqueuing(self, era: Era, effect: Enqueue) -> None:
        while not era.is_over:
            try:
                await self._queue.enqueue(effect.broker_id, effect.request)
            except KafkaError as error:
                logger.warning("%s is not sent: %s", effect.request, error)
            except Closed:
                return
            except CoordinationError as error:
                logger.warning(
                    "%s is sent later: %s %s", effect.request, type(error).__name__, error
                )
                await self._clock.sleep(_RETRY_MS)
                continue
            return

    async def _consume(self, era: Era, effect: Consume) -> None:
        await self._queue.consume(effect.entry)

    async def _watch(self, era: Era, effect: WatchPartition) -> None:
        self._watches.add(effect.tp)
        self._follow_ups.poke(era, effect.tp)

    async def _watch_reassignments(self, era: Era, effect: WatchReassignments) -> None:
        changed = await self._reassignments.arm(era, effect.topic)
        self._follow_ups.look_at_reassignments(era, changed)

    async def _unwatch(self, era: Era, effect: Unwatch) -> None:
        await self._watches.remove(effect.tp)

    async def _wait_to_elect(self, era: Era, effect: WaitToElect) -> None:
        self._follow_ups.wait_to_elect(era, effect.tp, is_for_preferred=effect.is_for_preferred)

    async def _scan(self, era: Era, effect: Scan) -> None:
        self._follow_ups.scan(era)

    async def _note(self, era: Era, effect: Note) -> None:
        self._lines.note(effect)

    # This broker's replicas.

    async def _lead(self, era: Era, effect: BecomeLeader) -> None:
        results = await self._change_role(era, effect, opens_later=not effect.is_renewal)
        if results and not effect.is_renewal:
            self._follow_ups.wait_to_open(era, effect)

    async def _follow(self, era: Era, effect: BecomeFollower) -> None:
        assert effect.view.leader is not None, effect
        self._metadata.find(effect.view.leader.broker_id)
        await self._change_role(era, effect, opens_later=False)

    async def _change_role(
        self, era: Era, effect: BecomeLeader | BecomeFollower, *, opens_later: bool
    ) -> bool:
        """Give the replica its role; return True on success."""
        view = effect.view
        assert view.topic_id is not None, effect
        role = role_of(effect.tp, view, is_new=effect.is_new)
        [(_, code)] = await self.orders.change_roles(
            [role],
            {effect.tp.topic: view.topic_id},
            self._metadata.brokers.values(),
            era.fence,
            opens_later=opens_later,
        )
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._follow_ups.replicas_failed(era)
        elif code:
            logger.warning("partition %s: %s", effect.tp, _refusal_of(role, code))
        return not code

    async def _open(self, era: Era, effect: Open) -> None:
        """Open to clients, with the ISR of the replicas that have caught up, and look at the reassignment again."""
        era.fence()
        replica = self._machine.replicas.get(effect.tp)
        if replica is not None:
            self.orders.open(effect.tp, replica.epoch, effect.in_sync)
            self._follow_ups.poke(era, effect.tp)

    async def _stop(self, era: Era, effect: EndRole) -> None:
        self.orders.end_roles([effect.tp])
        await self._watches.disarm_reassignment(effect.tp)
        await self._unwatch_reassignments(effect.tp.topic)

    async def _unwatch_reassignments(self, topic: str) -> None:
        """Remove the watch on the reassignments of a topic if this broker leads none of its partitions."""
        if not self._follow_ups.leads_any(topic):
            await self._reassignments.remove(topic)

    async def _close(self, era: Era, effect: CloseReplica) -> None:
        """Stop the replica, and delete its files unless the partition belongs to this broker again (C15)."""
        tp, topic_id = effect.tp, effect.topic_id
        self.orders.end_roles([tp])
        view, _ = await self._reads.one(tp)
        on_disk = self.orders.replicas_on_disk()
        if era.is_over or tp not in on_disk or on_disk[tp] != topic_id or not view.is_readable:
            return
        isr = () if view.isr is None else view.isr.ids
        has_place = self._broker_id in {*view.hosts, *isr} and not view.is_being_deleted
        if has_place and view.topic_id == topic_id:
            self._follow_ups.host_again(era, tp)
        elif effect.is_stray:
            self.orders.set_aside(tp)
        else:
            await self.orders.stop_replicas(
                [StopReplicaPartition(tp, EPOCH_DURING_DELETE, delete=True)]
            )


def _refusal_of(role: PartitionState, code: int) -> str:
    """Return which role the broker's replica does not take, and why."""
    reason = ErrorCode(code).name
    if code == ErrorCode.STALE_CONTROLLER_EPOCH:
        reason = "the epoch is not above that of its last role"
    return f"it does not take the role under leader {role.leader} in epoch {role.leader_epoch}: {reason}"
