"""How a broker carries out the commands of its machine that write to ZooKeeper or change its replicas.

Nobody acts on the answer to a write: the partition is read afterwards, and shows the outcome. Orders to the replicas
are fenced by the lease: after its end, nobody becomes leader by a command that was decided before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from minikafka.base.errors import (
    Closed,
    CoordinationError,
    ErrorCode,
    FollowerStateChangeQueueFull,
    KafkaError,
    OutcomeUnknown,
)
from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    BrokerId,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.base.ports import MultiOp
from minikafka.broker.capabilities import Orders
from minikafka.broker.modes.leaders.lease import Lease
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata, role_of
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.modes.leaders.reads import PartitionReads
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.deciders.leaders.commands import (
    BecomeFollower,
    BecomeLeader,
    CloseReplica,
    CompleteReassignment,
    GiveUpLeadership,
    PartitionWrite,
    RaiseEpoch,
    TryToLead,
)
from minikafka.deciders.leaders.machine import LeadersMachine
from minikafka.deciders.leaders.model import Replicas, StateChange
from minikafka.zookeeper.nodes.leaders import partitions, topics

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 200


class PartitionWrites:
    """The writes to the nodes of partitions, each in one multi, and the requests to other brokers."""

    def __init__(self, ports: Ports, queue: StateChangeQueue) -> None:
        self._broker_id = ports.broker_id
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._queue = queue

    async def write(self, lease: Lease, command: PartitionWrite) -> bool:
        """Send the multi of a command; return False if a queue has no room for its close requests (C13).

        The caller reads the partition afterwards, whatever the outcome is. Raises CoordinationError.
        """
        if isinstance(command, CompleteReassignment | RaiseEpoch):
            closes = await self._closes(command)
            if closes is None:
                return False
            command = replace(command, closes=closes)
        await self._send(lease, command)
        return True

    async def _closes(
        self, command: CompleteReassignment | RaiseEpoch
    ) -> tuple[tuple[BrokerId, StateChange], ...] | None:
        """Make room for the close requests of a multi, and return them; None if a queue is full of closes.

        A broker without a queue has no replicas to close: it has never started, or was removed.
        """
        closes = []
        for broker_id, request in command.closes:
            try:
                await self._queue.make_room(broker_id)
            except KafkaError as error:
                logger.warning("%s is not sent: %s", request, error)
            except FollowerStateChangeQueueFull as error:
                logger.error("the reassignment of %s ends later: %s", command.tp, error)
                return None
            else:
                closes.append((broker_id, request))
        return tuple(closes)

    async def _send(self, lease: Lease, command: PartitionWrite) -> None:
        try:
            await self._zookeeper.multi(self._multi(command), generation=lease.generation)
        except OutcomeUnknown as error:
            logger.info("%s of %s: %s", type(command).__name__, command.tp, error)
            await self._sync(lease)
        except CoordinationError as error:
            logger.info(
                "%s of %s: %s %s", type(command).__name__, command.tp, type(error).__name__, error
            )

    def _multi(self, command: PartitionWrite) -> Sequence[MultiOp]:
        tp, view = command.tp, command.view
        match command:
            case TryToLead():
                return partitions.lead(tp, view, self._broker_id, command.epoch, command.isr)
            case RaiseEpoch():
                return partitions.raise_epoch(tp, view, command.epoch, command.isr, command.closes)
            case CompleteReassignment():
                return partitions.complete_reassignment(tp, view, command.epoch, command.closes)
            case GiveUpLeadership():
                return partitions.give_up(tp, view)

    async def _sync(self, lease: Lease) -> None:
        """Wait until reads see all writes so far, or the lease is over.

        Without this, the next read may miss a write that was applied.
        """
        while not lease.is_over:
            try:
                await self._zookeeper.connected()
                await self._zookeeper.sync(topics.DIRECTORY)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("sync after a lost answer: %s %s", type(error).__name__, error)
            else:
                return

    async def enqueue(self, lease: Lease, receiver: BrokerId, request: StateChange) -> None:
        """Add a request to the queue of a broker, and repeat this until it succeeds or the lease is over."""
        while not lease.is_over:
            try:
                await self._queue.enqueue(receiver, request)
            except KafkaError as error:
                logger.warning("%s is not sent: %s", request, error)
            except Closed:
                return
            except CoordinationError as error:
                logger.warning("%s is sent later: %s %s", request, type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
                continue
            return


class OwnReplicas:
    """The replicas of this broker, which take the roles that the machine decides."""

    def __init__(
        self,
        ports: Ports,
        machine: LeadersMachine,
        reads: PartitionReads,
        metadata: LeadersMetadata,
    ) -> None:
        self.orders: Orders
        self._broker_id = ports.broker_id
        self._machine = machine
        self._reads = reads
        self._metadata = metadata

    async def take_role(
        self, lease: Lease, command: BecomeLeader | BecomeFollower, *, opens_later: bool
    ) -> int:
        """Give a replica its role; return the error code, 0 on success. Raises KafkaError if the lease is over."""
        view = command.view
        assert view.topic_id is not None, command
        role = role_of(command.tp, view, is_new=command.is_new)
        [(_, code)] = await self.orders.change_roles(
            [role],
            {command.tp.topic: view.topic_id},
            self._metadata.brokers.values(),
            lease.fence,
            opens_later=opens_later,
        )
        if code and code != ErrorCode.KAFKA_STORAGE_ERROR:
            logger.warning("partition %s: %s", command.tp, _refusal_of(role, code))
        return code

    def open(self, lease: Lease, tp: TopicPartition, in_sync: Replicas) -> bool:
        """Open a leader to clients, with the ISR of the replicas that have caught up; return False if it is gone.

        Raises KafkaError if the lease is over.
        """
        lease.fence()
        replica = self._machine.replicas.get(tp)
        if replica is None:
            return False
        self.orders.open(tp, replica.epoch, in_sync)
        return True

    async def close(self, lease: Lease, command: CloseReplica) -> bool:
        """Stop the replica, and delete its files. Return True if the partition belongs to this broker again (C15).

        Raises CoordinationError.
        """
        tp, topic_id = command.tp, command.topic_id
        # The fetcher stops before the last look at the partition: nothing is written to the files after it.
        self.orders.end_roles([tp])
        view, _ = await self._reads.one(tp)
        on_disk = self.orders.replicas_on_disk()
        if lease.is_over or tp not in on_disk or on_disk[tp] != topic_id or not view.is_readable:
            return False
        isr = () if view.isr is None else view.isr.ids
        has_place = self._broker_id in {*view.hosts, *isr} and not view.is_being_deleted
        if has_place and view.topic_id == topic_id:
            return True
        if command.is_stray:
            self.orders.set_aside(tp)
        else:
            stop = StopReplicaPartition(tp, EPOCH_DURING_DELETE, delete=True)
            await self.orders.stop_replicas([stop])
        return False


def _refusal_of(role: PartitionState, code: int) -> str:
    """Return which role the broker's replica does not take, and why."""
    reason = ErrorCode(code).name
    if code == ErrorCode.STALE_CONTROLLER_EPOCH:
        reason = "the epoch is not above that of its last role"
    return f"it does not take the role under leader {role.leader} in epoch {role.leader_epoch}: {reason}"
