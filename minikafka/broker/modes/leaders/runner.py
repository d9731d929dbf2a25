"""Runs the machine of one broker: passes what was read as events, and has the effects carried out.

The machine compares what was read with its context, so that events may be lost or repeated. Invariants: an event about
one partition is handled in the lane of the partition, with nodes that were read in this lane after all earlier effects.
After a write, accepted or not, the partition is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import Closed, CoordinationError
from minikafka.base.model import Epoch, TopicPartition
from minikafka.base.ports import Clock, Gate, Ledger, Tasks, ZooKeeper
from minikafka.broker.capabilities import IsrOutcome, Orders
from minikafka.broker.modes.leaders.effects import Effects
from minikafka.broker.modes.leaders.era import Era
from minikafka.broker.modes.leaders.lines import Lines
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.modes.leaders.reads import PartitionReads, Read
from minikafka.broker.modes.leaders.watches import PartitionWatches, ReassignmentWatches
from minikafka.broker.modes.leaders.writes import PartitionWrites
from minikafka.leaders.commands import (
    BecomeLeader,
    Command,
    Consume,
    EndRole,
    Enqueue,
    Note,
    Scan,
    WatchReassignments,
)
from minikafka.leaders.events import (
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
from minikafka.leaders.machine import LeadersMachine
from minikafka.leaders.model import Operation, PartitionView, Replicas, StateChange
from minikafka.leaders.states import ReplicaStatus
from minikafka.rpc.coordination import Look
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import partitions

logger = logging.getLogger(__name__)

MakeEvent: TypeAlias = Callable[[Read], Event]
_LEADERS: Final = (ReplicaStatus.OPENING, ReplicaStatus.LEADING)
_NOTHING: Final = PartitionView(None, None, -1, None, None, None)
"""The view of no partition, for a request that names none."""
_NO_PARTITION: Final = TopicPartition("", -1)
_RETRY_MS: Final = 200


class Runner:
    """The coordination of one broker's replicas. Each start begins an `Era`."""

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeper,
        clock: Clock,
        tasks: Tasks,
        ledger: Ledger,
        gate: Gate,
        queue: StateChangeQueue,
        reads: PartitionReads,
        metadata: LeadersMetadata,
        faults: Faults,
    ) -> None:
        self.machine = LeadersMachine(config.broker_id)
        self._broker_id = config.broker_id
        self._wait_ms = config.minikafka_leaders_election_wait_ms
        self._preferred_wait_ms = config.minikafka_leaders_preferred_wait_ms
        self._catch_up_ms = config.replica_lag_time_max_ms
        self._zookeeper = zookeeper
        self._clock = clock
        self._tasks = tasks
        self._reads = reads
        self._metadata = metadata
        self._faults = faults
        self.lines = Lines(ledger)
        self._watches = PartitionWatches(zookeeper, self.poke)
        self._reassignments = ReassignmentWatches(zookeeper, faults, self._arm_reassignments)
        self._effects = Effects(
            config.broker_id,
            self.machine,
            clock,
            tasks,
            gate,
            reads,
            PartitionWrites(config.broker_id, zookeeper),
            queue,
            self._watches,
            self._reassignments,
            metadata,
            self.lines,
            self,
        )
        self._era: Era | None = None
        self._is_registered = False

    # Eras.

    def start(self, orders: Orders) -> None:
        """Give all later orders to `orders`."""
        self._effects.orders = self._orders = orders

    def begin(self, generation: int) -> Era:
        """Begin an era in the session with this generation. Effects of the last era may have been dropped."""
        self._end_leaderships()
        self._era = Era(generation, self._tasks)
        return self._era

    def is_latest(self, era: Era) -> bool:
        """Return True if no other era has begun, and the lease of its session has not ended."""
        return self._era is era

    def end(self) -> None:
        """End the era: stop leading, and let nothing that was begun have an effect any longer (C35)."""
        era, self._era = self._era, None
        if era is None:
            return
        era.end()
        self._end_leaderships()

    def _end_leaderships(self) -> None:
        self._is_registered = False
        self._watches.clear()
        self._reassignments.clear()
        effects = self.machine.handle(LeaseEnded())
        for effect in effects:
            if isinstance(effect, Note):
                self.lines.note(effect)
        self._orders.end_roles([effect.tp for effect in effects if isinstance(effect, EndRole)])

    def close(self) -> None:
        """Give no order any longer: this broker stops, and its replicas are closed by the broker."""
        if self._era is not None:
            self._era.end()
            self._era = None

    def registered(self) -> None:
        """Note that this broker is registered, so that it can tell which other brokers are dead."""
        self._is_registered = True
        self._pass_on(Registered())
        for tp in list(self.machine.replicas):
            if self._era is not None and self.machine.status(tp) is ReplicaStatus.WAITING:
                self.poke(self._era, tp)

    # Events about one partition.

    def poke(self, era: Era, tp: TopicPartition) -> None:
        """Read a partition in its lane, once for all pokes until then."""
        if era.is_over or tp in era.to_read:
            return
        era.to_read.add(tp)

        async def work() -> None:
            era.to_read.discard(tp)
            await self._decide(era, tp, lambda read: PartitionRead(tp, *read))

        era.lanes.add(tp, work)

    def poke_all(self, topics: Iterable[str] | None = None) -> None:
        """Read all partitions that this broker hosts, or those of some topics."""
        wanted = None if topics is None else frozenset(topics)
        if self._era is not None:
            for tp in list(self.machine.replicas):
                if wanted is None or tp.topic in wanted:
                    self.poke(self._era, tp)

    async def _decide(self, era: Era, tp: TopicPartition, make: MakeEvent) -> None:
        """Read a partition, pass an event with what was read to the machine, and carry out the effects."""
        read = await self._read(era, tp)
        if read is not None:
            await self._effects.carry_out(era, self.machine.handle(make(read)))

    async def _read(self, era: Era, tp: TopicPartition) -> Read | None:
        """Set the watches of a partition, then read it; None if the era is over."""
        while not era.is_over:
            try:
                await self._watches.arm(era, tp)
                read = await self._reads.one(tp)
                if read.view.replicas is None and await self._watches.arm_replicas(era, tp):
                    read = await self._reads.one(tp)
                elif _is_led_with_reassignment(read.view):
                    await self._watches.arm_reassignment(era, tp)
                    read = await self._reads.one(tp)
            except Closed:
                return None
            except CoordinationError as error:
                logger.info("%s cannot be read: %s %s", tp, type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
                continue
            if not era.is_over:
                self._metadata.show(tp, read.view)
                return read
        return None

    def _later(self, era: Era, tp: TopicPartition, make: MakeEvent) -> None:
        if not era.is_over:
            era.lanes.add(tp, partial(self._decide, era, tp, make))

    async def handle_request(self, era: Era, entry: str, request: StateChange) -> None:
        """Carry out a request of this broker's queue in the lane of its partition; return when that has ended."""
        has_ended = asyncio.Event()

        async def work() -> None:
            try:
                if request.operation is Operation.RESCAN:
                    event = RequestReceived(entry, request, _NOTHING, self._reads.live)
                    await self._effects.carry_out(era, self.machine.handle(event))
                else:
                    await self._decide(
                        era, request.tp, lambda read: RequestReceived(entry, request, *read)
                    )
            finally:
                has_ended.set()

        era.lanes.add(request.tp, work)
        await has_ended.wait()

    def wait_to_elect(self, era: Era, tp: TopicPartition, *, is_for_preferred: bool) -> None:
        """Read the partition again after one of the two waits of an election (C2)."""

        async def wait() -> None:
            await self._clock.sleep(self._preferred_wait_ms if is_for_preferred else self._wait_ms)
            self._later(era, tp, lambda read: ElectionWaitEnded(tp, *read))

        self._tasks.spawn(wait(), f"election-{tp}")

    def isr_written(self, tp: TopicPartition, outcome: IsrOutcome) -> None:
        """Read the partition after this leader's ISR write: a reassignment may be complete, or another has written."""
        if self._era is None:
            return
        if outcome is IsrOutcome.CONFLICT:
            self._later(self._era, tp, lambda read: IsrConflict(tp, *read))
        elif outcome is not IsrOutcome.NOT_SENT:
            self.poke(self._era, tp)

    # Opening.

    def wait_to_open(self, era: Era, effect: BecomeLeader) -> None:
        self._tasks.spawn(self._wait_to_open(era, effect), f"opening-{effect.tp}")

    async def _wait_to_open(self, era: Era, effect: BecomeLeader) -> None:
        tp, leader = effect.tp, effect.view.leader
        assert leader is not None, effect
        while not era.is_over and self._is_opening(tp, leader.epoch):
            in_sync = await self._orders.caught_up(
                tp, leader.epoch, self._catch_up_ms, self._may_be_alive
            )
            if in_sync:
                self._later(era, tp, partial(_caught_up, tp, in_sync))
                return
            # The broker creates the replica later if a file descriptor was missing.
            await self._clock.sleep(_RETRY_MS)

    def _is_opening(self, tp: TopicPartition, epoch: Epoch) -> bool:
        replica = self.machine.replicas.get(tp)
        return (
            replica is not None
            and replica.status is ReplicaStatus.OPENING
            and replica.epoch == epoch
        )

    def _may_be_alive(self, broker_id: int) -> bool:
        """True if a broker counts as alive: before this broker has registered, no broker is known to be dead."""
        return not self._is_registered or broker_id in self._reads.live

    # What administrators ask for.

    async def look_again(self, look: Look, tps: Sequence[TopicPartition]) -> None:
        """Read partitions again for a reason that ZooKeeper does not show; return when that has had its effects.

        Raises CoordinationError.
        """
        era = self._era
        if era is None:
            return
        hosted = [tp for tp in tps if tp in self.machine.replicas]
        if look is Look.PREFERRED:
            views = await self._reads.many(hosted)
            self._pass_on(BalanceDue(views, await self._reads.read_live()))
        for tp in hosted:
            if look is Look.ISR:
                self.isr_written(tp, IsrOutcome.CONFLICT)
            elif look is Look.UNCLEAN:
                self._reads.allow_unclean(tp)
                self.poke(era, tp)
        await era.lanes.until_done(hosted)

    # Events about many partitions.

    def _pass_on(self, event: Event) -> None:
        """Pass an event about many partitions to the machine, and its effects to the lanes of the partitions."""
        if self._era is not None:
            self._distribute(self._era, self.machine.handle(event))

    def _distribute(self, era: Era, effects: Iterable[Command]) -> None:
        by_partition: dict[TopicPartition, list[Command]] = {}
        for effect in effects:
            by_partition.setdefault(_partition_of(effect), []).append(effect)
        for tp, those in by_partition.items():
            era.lanes.add(tp, partial(self._effects.carry_out, era, those))

    async def scan_now(self, era: Era) -> None:
        """Read all replica lists, and start each replica of this broker in its lane (C1). Raises CoordinationError."""
        on_disk = self._orders.replicas_on_disk()
        tps = await partitions.list_partitions(self._zookeeper, self._faults)
        hosts = await partitions.read_hosts(self._zookeeper, tps, self._faults)
        wanted = {tp for tp, those in hosts.items() if self._broker_id in those}
        wanted.update(on_disk, self.machine.replicas)
        views = await self._reads.many(sorted(wanted))
        live = await self._reads.read_live()
        if not era.is_over:
            self._pass_on(Scanned(views, on_disk, live))

    def scan(self, era: Era) -> None:
        """Scan in the background, until it succeeds."""
        self._tasks.spawn(self._keep_scanning(era), "scan")

    async def _keep_scanning(self, era: Era) -> None:
        while not era.is_over:
            try:
                await self.scan_now(era)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("the scan is repeated: %s %s", type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
            else:
                return

    def host_again(self, era: Era, tp: TopicPartition) -> None:
        logs = self._orders.replicas_on_disk()
        on_disk = {tp: logs[tp]} if tp in logs else {}
        self._later(era, tp, lambda read: Scanned({tp: read.view}, on_disk, read.live))

    def replicas_failed(self, era: Era | None = None) -> None:
        self._pass_on(ReplicasOffline(self._orders.failed_replicas()))

    async def balance(self, *, may_move: bool) -> None:
        """Start late replicas again, and return leaderships to preferred replicas (C29). Raises CoordinationError."""
        led = [tp for tp in self.machine.replicas if self.machine.status(tp) in _LEADERS]
        views = await self._reads.many(led)
        live = await self._reads.read_live()
        self._pass_on(BalanceDue(views, live, may_move))

    # Reassignments.

    def _arm_reassignments(self, era: Era, topic: str) -> None:
        """Set a watch that has fired again, and look at the reassignments of the topic."""
        if not era.is_over:
            self._tasks.spawn(self._look_again(era, topic), f"reassignments-{topic}")

    async def _look_again(self, era: Era, topic: str) -> None:
        while not era.is_over and self.leads_any(topic):
            try:
                changed = await self._reassignments.arm(era, topic)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("reassignments of %s: %s %s", topic, type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
            else:
                self.look_at_reassignments(era, changed)
                return

    def look_at_reassignments(self, era: Era, changed: Iterable[TopicPartition]) -> None:
        for tp in sorted(changed):
            if self.machine.status(tp) in _LEADERS:
                self.poke(era, tp)

    def leads_any(self, topic: str) -> bool:
        return any(
            tp.topic == topic and self.machine.status(tp) in _LEADERS
            for tp in self.machine.replicas
        )


def _is_led_with_reassignment(view: PartitionView) -> bool:
    """True if this broker leads a partition in the view that has a reassignment."""
    return view.reassignment is not None and view.leader is not None and view.leader.is_ours


def _caught_up(tp: TopicPartition, in_sync: Replicas, _: Read) -> CaughtUp:
    return CaughtUp(tp, in_sync)


def _partition_of(effect: Command) -> TopicPartition:
    """Return the partition in whose lane an effect is carried out."""
    if isinstance(effect, Enqueue):
        return effect.request.tp
    if isinstance(effect, Consume | Scan | WatchReassignments):
        return _NO_PARTITION
    return effect.tp
