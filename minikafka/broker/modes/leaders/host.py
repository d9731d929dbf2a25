"""The host of one broker's machine: passes what was read as events, and has the commands carried out.

The machine compares what was read with its context, so that events may be lost or repeated. Invariants: an event about
one partition is handled in the lane of the partition, with nodes that were read in this lane after all earlier
commands. After a write, accepted or not, the partition is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from minikafka.base.errors import Closed, CoordinationError, ErrorCode, KafkaError
from minikafka.base.model import Epoch, LeaderAndIsr, TopicPartition
from minikafka.base.ports import ZooKeeper
from minikafka.broker.capabilities import IsrOutcome, IsrWrite, Orders
from minikafka.broker.ledger.record import STATE_CHANGE
from minikafka.broker.modes.leaders.commands import OwnReplicas, PartitionWrites
from minikafka.broker.modes.leaders.lease import Lease
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.modes.leaders.reads import (
    PartitionReads,
    PartitionSnapshot,
    PartitionWatches,
    ReassignmentWatches,
)
from minikafka.broker.modes.zookeeper.lost_answers import compare_and_set
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc.coordination import LookReason
from minikafka.deciders.leaders.commands import (
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
    PartitionWrite,
    RaiseEpoch,
    Scan,
    TryToLead,
    Unwatch,
    WaitToElect,
    WatchPartition,
    WatchReassignments,
)
from minikafka.deciders.leaders.events import (
    BalanceDue,
    CaughtUp,
    ElectionWaitEnded,
    Event,
    IsrConflict,
    LeaseEnded,
    PartitionRead,
    Registered,
    ReplicasOffline,
    RequestReceived,
    Scanned,
)
from minikafka.deciders.leaders.machine import LeadersMachine
from minikafka.deciders.leaders.model import Operation, PartitionView, Replicas, StateChange
from minikafka.deciders.leaders.states import LEADERS, HostedReplicaStatus
from minikafka.deciders.leaders.steps import step_of
from minikafka.zookeeper.nodes.leaders import partitions

logger = logging.getLogger(__name__)

MakeEvent: TypeAlias = Callable[[PartitionSnapshot], Event]
_NOTHING: Final = PartitionView(None, None, -1, None, None, None)
"""The view of no partition, for a request that names none."""
_NO_PARTITION: Final = TopicPartition("", -1)
_RETRY_MS: Final = 200


class LeadersHost:
    """The coordination of one broker's replicas. Each start begins a `Lease`."""

    def __init__(
        self,
        ports: Ports,
        queue: StateChangeQueue,
        reads: PartitionReads,
        metadata: LeadersMetadata,
    ) -> None:
        self.machine = LeadersMachine(ports.broker_id)
        self._broker_id = ports.broker_id
        self._config = ports.config
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._ledger = ports.ledger
        self._gate = ports.gate
        self._faults = ports.faults
        self._queue = queue
        self._reads = reads
        self._metadata = metadata
        self._writes = PartitionWrites(ports, queue)
        self._replicas = OwnReplicas(ports, self.machine, reads, metadata)
        self._watches = PartitionWatches(ports.zookeeper, self.schedule_read)
        self._reassignments = ReassignmentWatches(
            ports.zookeeper, ports.faults, self._arm_reassignments
        )
        self._orders: Orders
        self._lease: Lease | None = None
        self._is_registered = False

    # The lease.

    def start(self, orders: Orders) -> None:
        """Give all later orders to `orders`."""
        self._replicas.orders = self._orders = orders

    def begin(self, generation: int) -> Lease:
        """Begin a lease in the session with this generation. Commands of the last lease may have been dropped."""
        self._end_leaderships()
        self._lease = Lease(generation, self._tasks)
        return self._lease

    def is_latest(self, lease: Lease) -> bool:
        """Return True if no other lease has begun, and the lease of its session has not ended."""
        return self._lease is lease

    def end(self) -> None:
        """End the lease: stop leading, and let nothing that was begun have an effect any longer (C35)."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        # The lease ends before the roles: an order that is being carried out must not give one again.
        lease.end()
        self._end_leaderships()

    def _end_leaderships(self) -> None:
        """Pass `LeaseEnded`. Roles end at once, not in their lanes: another broker may lead by now."""
        self._is_registered = False
        self._watches.clear()
        self._reassignments.clear()
        commands = self._handle(LeaseEnded())
        for command in commands:
            if isinstance(command, Note):
                self.note(command)
        ended = [command.tp for command in commands if isinstance(command, EndRole)]
        self._orders.end_roles(ended)

    def close(self) -> None:
        """Give no order any longer: this broker stops, and its replicas are closed by the broker."""
        if self._lease is not None:
            self._lease.end()
            self._lease = None

    def registered(self) -> None:
        """Note that this broker is registered, so that it can tell which other brokers are dead."""
        self._is_registered = True
        self._pass_on(Registered())
        for tp in list(self.machine.replicas):
            if self._lease is not None and self.machine.status(tp) is HostedReplicaStatus.WAITING:
                self.schedule_read(self._lease, tp)

    def _handle(self, event: Event) -> list[Command]:
        return self.machine.handle(event, self._clock.now())

    # Events about one partition.

    def schedule_read(self, lease: Lease, tp: TopicPartition) -> None:
        """Read a partition in its lane, once for all calls until then."""
        if lease.is_over or tp in lease.to_read:
            return
        lease.to_read.add(tp)

        async def read_and_decide() -> None:
            # Before the read: a change during it must cause another read.
            lease.to_read.discard(tp)
            await self._decide(lease, tp, lambda read: PartitionRead(tp, *read))

        lease.lanes.add(tp, read_and_decide)

    def schedule_reads(self, topics: Iterable[str] | None = None) -> None:
        """Read all partitions that this broker hosts, or those of some topics."""
        wanted = None if topics is None else frozenset(topics)
        if self._lease is not None:
            for tp in list(self.machine.replicas):
                if wanted is None or tp.topic in wanted:
                    self.schedule_read(self._lease, tp)

    async def _decide(self, lease: Lease, tp: TopicPartition, make: MakeEvent) -> None:
        """Read a partition, pass an event with what was read to the machine, and carry out the commands."""
        read = await self._read(lease, tp)
        if read is not None:
            await self._carry_out(lease, self._handle(make(read)))

    def _schedule_decision(self, lease: Lease, tp: TopicPartition, make: MakeEvent) -> None:
        if not lease.is_over:
            lease.lanes.add(tp, partial(self._decide, lease, tp, make))

    async def _read(self, lease: Lease, tp: TopicPartition) -> PartitionSnapshot | None:
        """Set the watches of a partition, then read it; None if the lease is over.

        The watches come first: a change after the read fires them.
        """
        while not lease.is_over:
            try:
                await self._watches.arm(lease, tp)
                read = await self._reads.one(tp)
                if read.view.replicas is None and await self._watches.arm_replicas(lease, tp):
                    read = await self._reads.one(tp)
                elif _is_led_with_reassignment(read.view):
                    await self._watches.arm_reassignment(lease, tp)
                    read = await self._reads.one(tp)
            except Closed:
                return None
            except CoordinationError as error:
                logger.info("%s cannot be read: %s %s", tp, type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
                continue
            if not lease.is_over:
                self._metadata.show(tp, read.view)
                return read
        return None

    async def handle_request(self, lease: Lease, entry: str, request: StateChange) -> None:
        """Carry out a request of this broker's queue in the lane of its partition; return when that has ended."""
        has_ended = asyncio.Event()

        async def carry_out() -> None:
            try:
                if request.operation is Operation.RESCAN:
                    event = RequestReceived(entry, request, _NOTHING, self._reads.live)
                    await self._carry_out(lease, self._handle(event))
                else:
                    await self._decide(
                        lease, request.tp, lambda read: RequestReceived(entry, request, *read)
                    )
            finally:
                has_ended.set()

        lease.lanes.add(request.tp, carry_out)
        await has_ended.wait()

    def isr_written(self, tp: TopicPartition, outcome: IsrOutcome) -> None:
        """Read the partition after this leader's ISR write: a reassignment may be complete, or another has written."""
        if self._lease is None:
            return
        if outcome is IsrOutcome.CONFLICT:
            self._schedule_decision(self._lease, tp, lambda read: IsrConflict(tp, *read))
        elif outcome is not IsrOutcome.NOT_SENT:
            self.schedule_read(self._lease, tp)

    # Events about many partitions.

    def _pass_on(self, event: Event) -> None:
        """Pass an event about many partitions to the machine, and its commands to the lanes of the partitions."""
        if self._lease is None:
            return
        by_partition: dict[TopicPartition, list[Command]] = {}
        for command in self._handle(event):
            by_partition.setdefault(_partition_of(command), []).append(command)
        for tp, commands in by_partition.items():
            self._lease.lanes.add(tp, partial(self._carry_out, self._lease, commands))

    async def scan(self, lease: Lease) -> None:
        """Read all replica lists, and start each replica of this broker in its lane (C1). Raises CoordinationError."""
        on_disk = self._orders.replicas_on_disk()
        tps = await partitions.list_partitions(self._zookeeper, self._faults)
        hosts = await partitions.read_hosts(self._zookeeper, tps, self._faults)
        wanted = {tp for tp, those in hosts.items() if self._broker_id in those}
        wanted.update(on_disk, self.machine.replicas)
        views = await self._reads.many(sorted(wanted))
        live = await self._reads.read_live()
        if not lease.is_over:
            self._pass_on(Scanned(views, on_disk, live))

    async def _keep_scanning(self, lease: Lease) -> None:
        while not lease.is_over:
            try:
                await self.scan(lease)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("the scan is repeated: %s %s", type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
            else:
                return

    def set_unclean_default(self, is_allowed: bool) -> None:
        """Replace the broker's unclean.leader.election.enable, which decides about topics without the setting."""
        was_allowed, self._reads.unclean_default = self._reads.unclean_default, is_allowed
        if is_allowed and not was_allowed:
            self.schedule_reads()

    def replicas_failed(self) -> None:
        """Give up the leaderships of the replicas whose log directory has failed (R67)."""
        self._pass_on(ReplicasOffline(self._orders.failed_replicas()))

    async def balance(self, *, may_move: bool) -> None:
        """Start late replicas again, and return leaderships to preferred replicas (C29). Raises CoordinationError."""
        led = [tp for tp in self.machine.replicas if self.machine.status(tp) in LEADERS]
        views = await self._reads.many(led)
        live = await self._reads.read_live()
        self._pass_on(BalanceDue(views, live, may_move))

    async def look_again(self, look: LookReason, tps: Sequence[TopicPartition]) -> None:
        """Read partitions again for a reason that ZooKeeper does not show; return when that has had its effects.

        Raises CoordinationError.
        """
        lease = self._lease
        if lease is None:
            return
        hosted = [tp for tp in tps if tp in self.machine.replicas]
        if look is LookReason.PREFERRED:
            views = await self._reads.many(hosted)
            self._pass_on(BalanceDue(views, await self._reads.read_live()))
        for tp in hosted:
            if look is LookReason.ISR:
                self.isr_written(tp, IsrOutcome.CONFLICT)
            elif look is LookReason.UNCLEAN:
                self._reads.allow_unclean(tp)
                self.schedule_read(lease, tp)
        await lease.lanes.wait_for(hosted)

    # Commands.

    async def _carry_out(self, lease: Lease, commands: Iterable[Command]) -> None:
        """Carry out the commands in order, and repeat each one until ZooKeeper has answered or the lease is over."""
        for command in commands:
            step = step_of(command)
            if step is not None:
                await self._gate.reached(*step)
            while not lease.is_over and not await self._is_carried_out(lease, command):
                await self._clock.sleep(_RETRY_MS)

    async def _is_carried_out(self, lease: Lease, command: Command) -> bool:
        """Carry out a command; return False if it must be repeated."""
        try:
            await self._carry_out_once(lease, command)
        except KafkaError as error:
            logger.info("%s is not carried out: %s", command, error)
        except Closed:
            lease.end()
        except CoordinationError as error:
            logger.info("%s is repeated: %s %s", command, type(error).__name__, error)
            return False
        return True

    async def _carry_out_once(  # noqa: C901, PLR0912
        self, lease: Lease, command: Command
    ) -> None:
        """The table of commands, each with the method that carries it out. Raises KafkaError, CoordinationError."""
        match command:
            case TryToLead() | RaiseEpoch() | CompleteReassignment() | GiveUpLeadership():
                await self._write(lease, command)
            case Enqueue(broker_id, request):
                # In the background: a full queue of another broker must not delay the partition.
                sending = self._writes.enqueue(lease, broker_id, request)
                self._tasks.spawn(sending, f"enqueue-{broker_id}")
            case Consume(entry):
                await self._queue.consume(entry)
            case WatchPartition(tp):
                self._watches.add(tp)
                self.schedule_read(lease, tp)
            case WatchReassignments(topic):
                self._read_led(lease, await self._reassignments.arm(lease, topic))
            case Unwatch(tp):
                await self._watches.remove(tp)
            case WaitToElect(tp, is_for_preferred):
                self._wait_to_elect(lease, tp, is_for_preferred=is_for_preferred)
            case BecomeLeader():
                await self._lead(lease, command)
            case BecomeFollower():
                await self._follow(lease, command)
            case Open(tp, in_sync):
                # The ISR that a leader proposes when it opens may complete a reassignment.
                if self._replicas.open(lease, tp, in_sync):
                    self.schedule_read(lease, tp)
            case EndRole(tp):
                await self._end_role(tp)
            case CloseReplica(tp):
                if await self._replicas.close(lease, command):
                    self._scan_one(lease, tp)
            case Scan():
                self._tasks.spawn(self._keep_scanning(lease), "scan")
            case Note():
                self.note(command)

    async def _write(self, lease: Lease, command: PartitionWrite) -> None:
        """Write, then read the partition: only a read shows the outcome."""
        if await self._writes.write(lease, command):
            self.schedule_read(lease, command.tp)
        else:
            self._wait_to_elect(lease, command.tp, is_for_preferred=False)

    def _wait_to_elect(self, lease: Lease, tp: TopicPartition, *, is_for_preferred: bool) -> None:
        """Read the partition again after one of the two waits of an election (C2)."""
        preferred_ms = self._config.minikafka_leaders_preferred_wait_ms
        wait_ms = self._config.minikafka_leaders_election_wait_ms

        async def wait() -> None:
            await self._clock.sleep(preferred_ms if is_for_preferred else wait_ms)
            self._schedule_decision(lease, tp, lambda read: ElectionWaitEnded(tp, *read))

        self._tasks.spawn(wait(), f"election-{tp}")

    async def _lead(self, lease: Lease, command: BecomeLeader) -> None:
        opens_later = not command.is_renewal
        code = await self._replicas.take_role(lease, command, opens_later=opens_later)
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.replicas_failed()
        elif opens_later and not code:
            self._tasks.spawn(self._wait_to_open(lease, command), f"opening-{command.tp}")

    async def _follow(self, lease: Lease, command: BecomeFollower) -> None:
        assert command.view.leader is not None, command
        self._metadata.find(command.view.leader.broker_id)
        code = await self._replicas.take_role(lease, command, opens_later=False)
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.replicas_failed()

    async def _wait_to_open(self, lease: Lease, command: BecomeLeader) -> None:
        """Wait until every live in-sync replica has caught up with this new leader, then pass `CaughtUp` (C17)."""
        tp, leader = command.tp, command.view.leader
        assert leader is not None, command
        while not lease.is_over and self._is_opening(tp, leader.epoch):
            in_sync = await self._orders.caught_up(
                tp, leader.epoch, self._config.replica_lag_time_max_ms, self._may_be_alive
            )
            if in_sync:
                self._schedule_decision(lease, tp, partial(_caught_up, tp, in_sync))
                return
            # The broker creates the replica later if a file descriptor was missing.
            await self._clock.sleep(_RETRY_MS)

    def _is_opening(self, tp: TopicPartition, epoch: Epoch) -> bool:
        replica = self.machine.replicas.get(tp)
        return (
            replica is not None
            and replica.status is HostedReplicaStatus.OPENING
            and replica.epoch == epoch
        )

    def _may_be_alive(self, broker_id: int) -> bool:
        """True if a broker counts as alive: before this broker has registered, no broker is known to be dead."""
        return not self._is_registered or broker_id in self._reads.live

    async def _end_role(self, tp: TopicPartition) -> None:
        """End a role, and remove the watches that only a leader has."""
        self._orders.end_roles([tp])
        await self._watches.disarm_reassignment(tp)
        if not self._leads_any(tp.topic):
            await self._reassignments.remove(tp.topic)

    def _scan_one(self, lease: Lease, tp: TopicPartition) -> None:
        """Scan one partition: this broker has a place in it again."""
        logs = self._orders.replicas_on_disk()
        on_disk = {tp: logs[tp]} if tp in logs else {}
        self._schedule_decision(
            lease, tp, lambda read: Scanned({tp: read.view}, on_disk, read.live)
        )

    def note(self, note: Note) -> None:
        """Write a ledger line: `fact` is its kind, and `text` its sentence for people (C38)."""
        fields = {name: value for name, value in note.fields.items() if name != "kind"}
        self._ledger.record(
            STATE_CHANGE,
            "",
            {
                "fact": note.fields["kind"],
                "topic": note.tp.topic,
                "partition": note.tp.partition,
                **fields,
                "text": note.text,
            },
        )

    # Reassignments.

    def _arm_reassignments(self, lease: Lease, topic: str) -> None:
        """Set a watch that has fired again, and read the partitions whose reassignment has changed."""
        if not lease.is_over:
            self._tasks.spawn(self._keep_arming(lease, topic), f"reassignments-{topic}")

    async def _keep_arming(self, lease: Lease, topic: str) -> None:
        while not lease.is_over and self._leads_any(topic):
            try:
                changed = await self._reassignments.arm(lease, topic)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("reassignments of %s: %s %s", topic, type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
            else:
                self._read_led(lease, changed)
                return

    def _read_led(self, lease: Lease, changed: Iterable[TopicPartition]) -> None:
        """Read the partitions among these that this broker leads: their reassignments have changed."""
        for tp in sorted(changed):
            if self.machine.status(tp) in LEADERS:
                self.schedule_read(lease, tp)

    def _leads_any(self, topic: str) -> bool:
        """Return True if this broker leads a partition of a topic."""
        return any(
            tp.topic == topic and self.machine.status(tp) in LEADERS for tp in self.machine.replicas
        )


class LeadersIsrs:
    """IsrStore of the leader-coordinated mode. The `state_version` of a state is the version of the node `ISR`.

    `on_outcome(tp, outcome)` is called after each write, before the outcome is returned. After a written ISR, a
    reassignment may be complete. After a conflict, the leader must read the partition again, and then lead on in a
    higher epoch or follow.
    """

    def __init__(
        self, zookeeper: ZooKeeper, on_outcome: Callable[[TopicPartition, IsrOutcome], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._on_outcome = on_outcome

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        """Write the in-sync replicas of a partition that this broker leads.

        Returns when the outcome is certain. Before each attempt, `is_wanted()` is called; if it returns False, the
        outcome is ABANDONED.
        """
        operation = partitions.isr_write(tp, state.isr, state.leader_epoch, state.state_version)
        written = await compare_and_set(self._zookeeper, operation, is_wanted)
        self._on_outcome(tp, written.outcome)
        return written


def _is_led_with_reassignment(view: PartitionView) -> bool:
    """True if this broker leads a partition in the view that has a reassignment."""
    return view.reassignment is not None and view.leader is not None and view.leader.is_ours


def _caught_up(tp: TopicPartition, in_sync: Replicas, _: PartitionSnapshot) -> CaughtUp:
    return CaughtUp(tp, in_sync)


def _partition_of(command: Command) -> TopicPartition:
    """Return the partition in whose lane a command is carried out."""
    if isinstance(command, Enqueue):
        return command.request.tp
    if isinstance(command, Consume | Scan | WatchReassignments):
        return _NO_PARTITION
    return command.tp
