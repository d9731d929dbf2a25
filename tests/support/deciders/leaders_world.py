"""A small world of brokers in the leader-coordinated mode: their machines over a dictionary as ZooKeeper.

`World.step` makes one random step: one command of one broker is carried out, one event is handled, a timer fires, a
session ends, a broker dies or starts, an administrator changes a partition. Between two steps, every broker may be
anywhere in its work. After each step the invariants are checked; a violation is an AssertionError with the last steps.

A record is a number. A leader adds records, and a record is acknowledged when every member of the ISR that the leader
knows has it. A follower that fetches gets a copy of its leader's log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from random import Random
from typing import Final

from minikafka.base.model import BrokerId, Epoch, TopicPartition
from minikafka.deciders.leaders import commands as c
from minikafka.deciders.leaders import events as e
from minikafka.deciders.leaders.machine import LeadersMachine
from minikafka.deciders.leaders.model import (
    FROM_ADMINISTRATOR,
    IsrNode,
    LeaderNode,
    Operation,
    PartitionView,
    Reassignment,
    Replicas,
    StateChange,
)
from minikafka.deciders.leaders.states import HostedReplicaStatus

NOTHING: Final = PartitionView(None, None, -1, None, None, None)
RESCAN: Final = StateChange(
    Operation.RESCAN, TopicPartition("", -1), None, FROM_ADMINISTRATOR, FROM_ADMINISTRATOR
)
LEADERS: Final = (HostedReplicaStatus.OPENING, HostedReplicaStatus.LEADING)
ROLES: Final = (c.TryToLead, c.BecomeLeader, c.BecomeFollower)


@dataclass
class Log:
    """A replica's log on the disk of a broker."""

    topic_id: bytes
    records: set[int] = field(default_factory=set)


@dataclass
class Role:
    """A replica's role in the running broker. `isr`: what the leader knows."""

    leader: BrokerId
    epoch: Epoch
    topic_id: bytes
    isr: Replicas = ()
    isr_version: int = -1
    is_open: bool = False
    has_copy: bool = False
    """A follower has fetched everything from the leader of this epoch."""


@dataclass
class Lane:
    """The work of one broker on one partition: commands in order of emission first, then events."""

    commands: deque[c.Command] = field(default_factory=deque)
    events: deque[tuple[str, int]] = field(default_factory=deque)


class SimBroker:
    """One broker: its disk outlives its process, its process outlives its session."""

    def __init__(self, id_: BrokerId) -> None:
        self.id = id_
        self.disk: dict[TopicPartition, Log] = {}
        self.is_running = False
        self.session = 0
        self.start()

    def start(self) -> None:
        self.machine = LeadersMachine(self.id)
        self.roles: dict[TopicPartition, Role] = {}
        self.role_epochs: dict[tuple[TopicPartition, bytes | None], Epoch] = {}
        self.begin_session()

    def begin_session(self) -> None:
        """Drop the work of the last session. The next steps are: drain the queue, scan, register."""
        self.lanes: dict[TopicPartition, Lane] = {}
        self.timers: list[tuple[str, TopicPartition]] = []
        self.watched: set[TopicPartition] = set()
        self.watched_topics: set[str] = set()
        self.phase = "drain"

    def lane(self, tp: TopicPartition) -> Lane:
        return self.lanes.setdefault(tp, Lane())

    def read(self, tp: TopicPartition) -> None:
        """Have the partition read, unless a read is due already."""
        lane = self.lane(tp)
        if ("read", 0) not in lane.events:
            lane.events.append(("read", 0))


class World:
    """The brokers, ZooKeeper's nodes, and a source of chance."""

    def __init__(self, seed: int, brokers: int = 4, topics: tuple[str, ...] = ("t", "u")) -> None:
        self.random = Random(seed)
        self.queue_max = 1 if seed % 4 == 0 else 100
        self.tps = [TopicPartition(topic, 0) for topic in topics]
        self.nodes: dict[TopicPartition, PartitionView] = dict.fromkeys(self.tps, NOTHING)
        self.owners: dict[TopicPartition, int] = {}
        """Partition -> session that owns its node `leader`."""
        self.registered: dict[BrokerId, int] = {}
        self.sessions: set[int] = set()
        self.count = 0
        self.queues: dict[BrokerId, dict[int, StateChange]] = {i: {} for i in range(brokers)}
        self.brokers = [SimBroker(i) for i in range(brokers)]
        self.acknowledged: dict[bytes, set[int]] = {}
        self.leaders_of_epochs: dict[tuple[bytes, Epoch], BrokerId] = {}
        self.latest_epochs: dict[bytes, Epoch] = {}
        self.lines: deque[str] = deque(maxlen=60)
        self.seen: dict[str, int] = {}
        """How often each kind of event and command has occurred."""
        for broker in self.brokers:
            self._start(broker)

    # Chance.

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Make one random step."""
        choices: list[tuple[float, Callable[[], None]]] = []
        for broker in self.brokers:
            if not broker.is_running:
                choices.append((0.3, lambda b=broker: self._start(b)))  # type: ignore[misc]
                continue
            choices += [(4.0, work) for work in self._works(broker)]
            choices += [
                (0.03, lambda b=broker: self._kill(b)),  # type: ignore[misc]
                (0.02, lambda b=broker: self._end_lease(b)),  # type: ignore[misc]
                (0.1, lambda b=broker: self._balance(b)),  # type: ignore[misc]
            ]
        choices += [
            (0.5, lambda s=session: self._expire(s))  # type: ignore[misc]
            for session in self.sessions - {b.session for b in self.brokers if b.is_running}
        ]
        choices += [
            (0.01, lambda b=broker: self._expire(b.session))  # type: ignore[misc]
            for broker in self.brokers
            if broker.is_running
        ]
        for tp in self.tps:
            choices += [(1.0, lambda t=tp: self._append(t))]  # type: ignore[misc]
            choices += [(0.25, lambda t=tp: self._administer(t))]  # type: ignore[misc]
            choices += [(2.0, lambda t=tp: self._fetch(t)), (0.2, lambda t=tp: self._shrink(t))]  # type: ignore[misc]
        weights = [weight for weight, _ in choices]
        self.random.choices([act for _, act in choices], weights)[0]()

    def settle(self) -> None:
        """Let all brokers live, and carry everything out that is due, until nothing is left to do."""
        for broker in self.brokers:
            if broker.is_running and broker.session not in self.sessions:
                self._end_lease(broker)
            elif not broker.is_running:
                self._start(broker)
        for session in self.sessions - {b.session for b in self.brokers}:
            self._expire(session)
        for _ in range(200):
            is_busy = self._work_all()
            for tp in self.tps:
                for _ in self.brokers:
                    self._fetch(tp, loses=False)
                self._finish(tp)
            if not is_busy and all(self._is_settled(tp) for tp in self.tps):
                return
            if not is_busy:
                for broker in self.brokers:
                    self._balance(broker)
                    self._restart_with_leftovers(broker)
        raise AssertionError(self._report("the cluster does not settle"))

    def _restart_with_leftovers(self, broker: SimBroker) -> None:
        """A leader that dies may forget who hosted a cancelled reassignment: the scan of a start closes the replica."""
        if broker.phase == "ready" and any(
            broker.id not in self.nodes[tp].hosts for tp in broker.disk
        ):
            self._kill(broker)
            self._expire(broker.session)
            self._start(broker)

    def _work_all(self) -> bool:
        """Carry out everything that is due, the timers last. Return False if nothing was due."""
        is_busy = False
        while works := [w for broker in self.brokers for w in self._works(broker, timers=False)]:
            is_busy = True
            self.random.choice(works)()
        for broker in self.brokers:
            for timer in list(broker.timers):
                is_busy = True
                self._fire(broker, timer)
        return is_busy

    # Work of one broker.

    def _works(self, broker: SimBroker, *, timers: bool = True) -> list[Callable[[], None]]:
        """Return the steps that a running broker can make."""
        if broker.session not in self.sessions:
            return [lambda: self._end_lease(broker)]
        works: list[Callable[[], None]] = [
            lambda tp=tp: self._work(broker, tp)  # type: ignore[misc]
            for tp, lane in broker.lanes.items()
            if lane.commands or lane.events
        ]
        works += [
            lambda timer=timer: self._fire(broker, timer)  # type: ignore[misc]
            for timer in broker.timers
            if timers
        ]
        if broker.phase == "drain":
            works.append(lambda: self._drain(broker))
        elif broker.phase == "scan" and not any(
            lane.commands or lane.events for lane in broker.lanes.values()
        ):
            works.append(lambda: self._scan(broker))
        elif broker.phase == "register" and broker.id not in self.registered:
            works.append(lambda: self._register(broker))
        elif broker.phase == "ready" and self.queues[broker.id]:
            works.append(lambda: self._take_request(broker))
        return works

    def _work(self, broker: SimBroker, tp: TopicPartition) -> None:
        lane = broker.lanes[tp]
        if lane.commands:
            command = lane.commands.popleft()
            self._line(f"{broker.id} does {short(command)}")
            self._carry_out(broker, command)
        elif lane.events:
            kind, number = lane.events.popleft()
            if kind == "request":
                self._handle_request(broker, number)
            else:
                self._handle(broker, self._event(broker, kind, tp))

    def _event(self, broker: SimBroker, kind: str, tp: TopicPartition) -> e.Event:
        seen, live = self._view(broker, tp), frozenset(self.registered)
        if kind == "wait ended":
            return e.ElectionWaitEnded(tp, seen, live)
        if kind == "conflict":
            return e.IsrConflict(tp, seen, live)
        if kind == "caught up":
            role = broker.roles.get(tp)
            isr = () if role is None else role.isr
            members = (
                id_
                for id_ in isr
                if id_ == broker.id or self._follows(id_, tp, broker, copied=True)
            )
            return e.CaughtUp(tp, tuple(members))
        return e.PartitionRead(tp, seen, live)

    def _fire(self, broker: SimBroker, timer: tuple[str, TopicPartition]) -> None:
        broker.timers.remove(timer)
        broker.lane(timer[1]).events.append((timer[0], 0))

    def _drain(self, broker: SimBroker) -> None:
        for number in self.queues[broker.id]:
            self._push_request(broker, number)
        broker.phase = "scan"

    def _scan(self, broker: SimBroker) -> None:
        """Scan after the drained requests have been handled."""
        self._handle(broker, self._scanned(broker))
        broker.phase = "register" if broker.phase == "scan" else broker.phase

    def _scanned(self, broker: SimBroker) -> e.Scanned:
        views = {
            tp: self._view(broker, tp)
            for tp in self.tps
            if broker.id in self.nodes[tp].hosts or tp in broker.disk
        }
        on_disk = {tp: log.topic_id for tp, log in broker.disk.items()}
        return e.Scanned(views, on_disk, frozenset(self.registered))

    def _register(self, broker: SimBroker) -> None:
        self.registered[broker.id] = broker.session
        broker.phase = "ready"
        self._handle(broker, e.Registered())

    def _take_request(self, broker: SimBroker) -> None:
        """Begin with any request: the order of the queue is not relied on."""
        self._push_request(broker, self.random.choice(list(self.queues[broker.id])))

    def _push_request(self, broker: SimBroker, number: int) -> None:
        lane = broker.lane(self.queues[broker.id][number].tp)
        if ("request", number) not in lane.events:
            lane.events.append(("request", number))

    def _handle_request(self, broker: SimBroker, number: int) -> None:
        change = self.queues[broker.id].get(number)
        if change is None:
            return
        seen = NOTHING if change == RESCAN else self._view(broker, change.tp)
        live = frozenset(self.registered)
        self._handle(broker, e.RequestReceived(str(number), change, seen, live))

    def _balance(self, broker: SimBroker) -> None:
        if not broker.is_running or broker.session not in self.sessions:
            return
        led = {
            tp: self._view(broker, tp) for tp in self.tps if broker.machine.status(tp) in LEADERS
        }
        self._handle(broker, e.BalanceDue(led, frozenset(self.registered)))
        for tp, seen in led.items():
            role = broker.roles.get(tp)
            if role is not None and seen.isr is not None and seen.isr.version > role.isr_version:
                broker.lane(tp).events.append(("conflict", 0))

    def _handle(self, broker: SimBroker, event: e.Event) -> None:
        self._line(f"{broker.id} handles {short(event)}")
        self._count(event)
        before = {tp: broker.machine.status(tp) for tp in self.tps}
        commands = broker.machine.handle(event, 0)
        check_commands(broker, event, commands, before)
        for command in commands:
            if isinstance(command, c.WatchReassignments):
                broker.watched_topics.add(command.topic)
            elif isinstance(command, c.Enqueue):
                broker.lane(command.request.tp).commands.append(command)
            elif isinstance(command, c.Consume):
                assert isinstance(event, e.RequestReceived)
                broker.lane(event.request.tp).commands.append(command)
            elif isinstance(command, c.Scan):
                self._handle(broker, self._scanned(broker))
            elif not isinstance(command, c.Note):
                broker.lane(command.tp).commands.append(command)

    # Commands.

    def _carry_out(self, broker: SimBroker, command: c.Command) -> None:
        self._count(command)
        if isinstance(
            command, c.TryToLead | c.RaiseEpoch | c.CompleteReassignment | c.GiveUpLeadership
        ):
            if self.random.random() < 0.9:
                self._write(broker, command)
            broker.lane(command.tp).events.appendleft(("read", 0))
        elif isinstance(command, c.Enqueue):
            self._enqueue(command.broker_id, command.request)
        elif isinstance(command, c.Consume):
            self.queues[broker.id].pop(int(command.entry), None)
        elif isinstance(command, c.WatchPartition):
            broker.watched.add(command.tp)
            broker.read(command.tp)
        elif isinstance(command, c.Unwatch):
            broker.watched.discard(command.tp)
        elif isinstance(command, c.WaitToElect):
            broker.timers.append(("wait ended", command.tp))
        else:
            self._change_role(broker, command)

    def _write(
        self,
        broker: SimBroker,
        command: c.TryToLead | c.RaiseEpoch | c.CompleteReassignment | c.GiveUpLeadership,
    ) -> None:
        """Write one multi at the versions of the command's view, if they are still the same."""
        tp, seen, now = command.tp, command.view, self._view(broker, command.tp)
        if (now.topic_id, now.isr, now.leader) != (seen.topic_id, seen.isr, seen.leader):
            return
        if isinstance(command, c.GiveUpLeadership):
            assert seen.leader is not None
            self._set(tp, leader=None)
            return
        if now.replicas_version != seen.replicas_version:
            return
        closes: tuple[tuple[BrokerId, StateChange], ...] = ()
        changes: dict[str, object] = {}
        if isinstance(command, c.CompleteReassignment):
            if now.reassignment != seen.reassignment:
                return
            assert seen.reassignment is not None
            assert seen.isr is not None
            target, closes = seen.reassignment.replicas, command.closes
            isr = tuple(id_ for id_ in seen.isr.ids if id_ in target)
            assert set(isr) == set(target), self._report("RAR is not in the ISR")
            changes = {
                "replicas": target,
                "replicas_version": now.replicas_version + 1,
                "reassignment": None,
            }
        else:
            isr = command.isr
        self._check_leadership(broker, command, isr)
        self._write_leadership(broker, tp, command.epoch, isr, changes)
        for receiver, change in closes:
            self._enqueue(receiver, change)

    def _write_leadership(
        self,
        broker: SimBroker,
        tp: TopicPartition,
        epoch: Epoch,
        isr: Replicas,
        changes: dict[str, object],
    ) -> None:
        now = self.nodes[tp]
        version = -1 if now.isr is None else now.isr.version
        self.owners[tp] = broker.session
        node = LeaderNode(broker.id, epoch, epoch, is_ours=False)
        self._set(tp, leader=node, isr=IsrNode(isr, epoch, version + 1), **changes)

    def _check_leadership(
        self,
        broker: SimBroker,
        command: c.TryToLead | c.RaiseEpoch | c.CompleteReassignment,
        isr: Replicas,
    ) -> None:
        now = self.nodes[command.tp]
        assert now.topic_id is not None
        assert isr, self._report("an empty ISR is written")
        latest = self.latest_epochs.get(now.topic_id, 0)
        assert command.epoch == latest + 1, self._report(f"epoch {command.epoch} after {latest}")
        self.latest_epochs[now.topic_id] = command.epoch
        self.leaders_of_epochs[now.topic_id, command.epoch] = broker.id
        if isinstance(command, c.TryToLead):
            assert broker.id in (now.replicas or ()), self._report("elected outside AR")
            assert now.isr is None or broker.id in now.isr.ids, self._report("unclean election")
            assert now.isr is None or isr == now.isr.ids, self._report(
                "an election changed the ISR"
            )

    def _change_role(self, broker: SimBroker, command: c.Command) -> None:
        if isinstance(command, c.BecomeLeader | c.BecomeFollower):
            seen = command.view
            assert seen.leader is not None
            assert seen.isr is not None
            assert seen.topic_id is not None
            role = Role(seen.leader.broker_id, seen.leader.epoch, seen.topic_id)
            log = broker.disk.get(command.tp)
            if log is None or log.topic_id != seen.topic_id:
                broker.disk[command.tp] = Log(seen.topic_id)
            broker.roles[command.tp] = role
            if isinstance(command, c.BecomeLeader):
                role.isr, role.isr_version = seen.isr.ids, seen.isr.version
                role.is_open = command.is_renewal
                self._check_leader(broker, command.tp, role)
                if not command.is_renewal:
                    broker.timers.append(("caught up", command.tp))
        elif isinstance(command, c.Open):
            role = broker.roles[command.tp]
            role.is_open = True
            self._write_isr(broker, command.tp, role, command.in_sync)
        elif isinstance(command, c.EndRole):
            broker.roles.pop(command.tp, None)
        elif isinstance(command, c.CloseReplica):
            self._close(broker, command)

    def _close(self, broker: SimBroker, command: c.CloseReplica) -> None:
        broker.roles.pop(command.tp, None)
        now, log = self.nodes[command.tp], broker.disk.get(command.tp)
        is_host = broker.id in now.hosts and not now.is_being_deleted
        is_kept = is_host and now.topic_id == command.topic_id
        if log is not None and log.topic_id == command.topic_id and not is_kept:
            del broker.disk[command.tp]

    def _check_leader(self, broker: SimBroker, tp: TopicPartition, role: Role) -> None:
        """One leader per epoch, and it has every acknowledged record, if it still is the leader."""
        known = self.leaders_of_epochs[role.topic_id, role.epoch]
        assert known == broker.id, self._report(
            f"brokers {known} and {broker.id} lead in one epoch"
        )
        now = self.nodes[tp]
        is_current = (
            now.topic_id == role.topic_id and self.latest_epochs[role.topic_id] == role.epoch
        )
        if is_current and not now.is_being_deleted:
            lost = self.acknowledged.get(role.topic_id, set()) - broker.disk[tp].records
            assert not lost, self._report(f"broker {broker.id} leads without records {lost}")

    # Data.

    def _append(self, tp: TopicPartition) -> None:
        """Add one record at each open leader, however old its epoch is."""
        for broker in self.brokers:
            role = broker.roles.get(tp)
            if not broker.is_running or role is None or not role.is_open:
                continue
            self.count += 1
            broker.disk[tp].records.add(self.count)
            others = [id_ for id_ in role.isr if id_ != broker.id]
            if all(self._follows(id_, tp, broker, copied=True) for id_ in others):
                for id_ in others:
                    self.brokers[id_].disk[tp].records.add(self.count)
                self.acknowledged.setdefault(role.topic_id, set()).add(self.count)

    def _follows(
        self, id_: BrokerId, tp: TopicPartition, leader: SimBroker, *, copied: bool
    ) -> bool:
        """True if a running broker follows `leader` in the leader's epoch."""
        follower, own = self.brokers[id_], leader.roles.get(tp)
        role = follower.roles.get(tp)
        return (
            follower.is_running
            and own is not None
            and role is not None
            and (role.leader, role.epoch, role.topic_id) == (leader.id, own.epoch, own.topic_id)
            and (role.has_copy or not copied)
        )

    def _fetch(self, tp: TopicPartition, *, loses: bool = True) -> None:
        """One follower copies its leader's log; the leader then adds it to the ISR."""
        leaders = [b for b in self.brokers if b.is_running and tp in b.roles and b.roles[tp].isr]
        for leader in leaders:
            role = leader.roles[tp]
            followers = [
                b.id for b in self.brokers if self._follows(b.id, tp, leader, copied=False)
            ]
            outside = [id_ for id_ in followers if id_ not in role.isr]
            for id_ in [self.random.choice(followers)] if followers and loses else followers:
                self.brokers[id_].roles[tp].has_copy = True
                self.brokers[id_].disk[tp].records = set(leader.disk[tp].records)
            hosts = leader.machine.replicas[tp].hosts if tp in leader.machine.replicas else ()
            for id_ in outside:
                has_all = self.brokers[id_].disk[tp].records == leader.disk[tp].records
                if (
                    role.is_open
                    and has_all
                    and self.brokers[id_].roles[tp].has_copy
                    and id_ in hosts
                ):
                    self._write_isr(leader, tp, role, (*role.isr, id_))
                    break

    def _shrink(self, tp: TopicPartition) -> None:
        for broker in self.brokers:
            role = broker.roles.get(tp)
            others = [id_ for id_ in (() if role is None else role.isr) if id_ != broker.id]
            if broker.is_running and role is not None and role.is_open and others:
                gone = self.random.choice(others)
                isr = tuple(id_ for id_ in role.isr if id_ != gone)
                self._write_isr(broker, tp, role, isr)

    def _write_isr(self, broker: SimBroker, tp: TopicPartition, role: Role, isr: Replicas) -> None:
        """Compare-and-set the ISR. A conflict goes to the machine."""
        if broker.session not in self.sessions or isr == role.isr:
            return
        now = self.nodes[tp]
        assert isr, self._report("an empty ISR is written")
        if now.topic_id != role.topic_id or now.isr is None:
            return
        if now.isr.version != role.isr_version:
            broker.lane(tp).events.append(("conflict", 0))
            return
        role.isr, role.isr_version = isr, role.isr_version + 1
        self._set(tp, isr=IsrNode(isr, role.epoch, role.isr_version))
        broker.read(tp)

    # Failures.

    def _start(self, broker: SimBroker) -> None:
        self._line(f"{broker.id} starts")
        broker.start()
        broker.is_running = True
        self._new_session(broker)

    def _new_session(self, broker: SimBroker) -> None:
        self.count += 1
        broker.session = self.count
        self.sessions.add(broker.session)

    def _kill(self, broker: SimBroker) -> None:
        self._line(f"{broker.id} dies")
        broker.is_running = False
        broker.roles = {}
        broker.begin_session()

    def _end_lease(self, broker: SimBroker) -> None:
        """The broker knows that its session may be over: it stops, and starts again with another session."""
        broker.begin_session()
        self._handle(broker, e.LeaseEnded())
        for lane in broker.lanes.values():
            while lane.commands:
                self._carry_out(broker, lane.commands.popleft())
        self._new_session(broker)

    def _expire(self, session: int) -> None:
        self._line(f"session {session} ends")
        self.sessions.discard(session)
        self.registered = {i: owner for i, owner in self.registered.items() if owner != session}
        for tp in self.tps:
            if self.nodes[tp].leader is not None and self.owners[tp] == session:
                self._set(tp, leader=None)

    # Administrators.

    def _administer(self, tp: TopicPartition) -> None:
        """Make one random change: create, reassign, cancel, remove a replica, delete."""
        now = self.nodes[tp]
        chosen = tuple(self.random.sample(range(len(self.brokers)), self.random.randint(1, 3)))
        if now.topic_id is None or now.replicas is None or now.is_being_deleted:
            self._finish(tp)
        elif self.random.random() < 0.05:
            self._delete(tp)
        elif self.random.random() < 0.1 and now.isr is not None:
            self._leave(tp, self.random.choice(now.isr.ids))
        elif now.reassignment is None or self.random.random() < 0.2:
            self.count += 1
            self._set(tp, reassignment=Reassignment(chosen, self.count))
        elif self.random.random() < 0.2:
            self._set(tp, reassignment=None)

    def _finish(self, tp: TopicPartition) -> None:
        """Take the next step of a creation or deletion."""
        now = self.nodes[tp]
        if now.topic_id is None:
            self._create(tp)
        elif now.replicas is None:
            assert now.reassignment is not None
            self._set(tp, replicas=now.reassignment.replicas, replicas_version=0)
        elif not now.is_being_deleted:
            return
        elif not any(
            tp in broker.disk and broker.disk[tp].topic_id == now.topic_id
            for broker in self.brokers
        ):
            self._set(tp, **{name: getattr(NOTHING, name) for name in _FIELDS})
        elif now.leader is None:
            self._close_without_leader(tp)

    def _create(self, tp: TopicPartition) -> None:
        self.count += 1
        topic_id = self.count.to_bytes(16, "big")
        chosen = tuple(self.random.sample(range(len(self.brokers)), self.random.randint(1, 3)))
        self._set(tp, topic_id=topic_id, reassignment=Reassignment(chosen, self.count))
        for id_ in chosen:
            self._enqueue(id_, self._ordered(Operation.START, tp))

    def _delete(self, tp: TopicPartition) -> None:
        self.count += 1
        self._set(tp, reassignment=Reassignment((), self.count))
        if self.nodes[tp].leader is None:
            self._close_without_leader(tp)

    def _close_without_leader(self, tp: TopicPartition) -> None:
        for broker in self.brokers:
            if tp in broker.disk or broker.id in self.nodes[tp].hosts:
                change = self._ordered(Operation.CLOSE, tp)
                if change not in self.queues[broker.id].values():
                    self._enqueue(broker.id, change)

    def _leave(self, tp: TopicPartition, id_: BrokerId) -> None:
        """Take a broker that shuts down out of the ISR, and out of its leadership.

        An assigned replica must remain in the ISR: only assigned replicas are elected.
        """
        now = self.nodes[tp]
        assert now.isr is not None
        isr = tuple(member for member in now.isr.ids if member != id_)
        if not set(isr).isdisjoint(now.replicas or ()):
            led = now.leader is not None and now.leader.broker_id == id_
            leader = None if led else now.leader
            self._set(tp, leader=leader, isr=IsrNode(isr, now.isr.epoch, now.isr.version + 1))

    def _ordered(self, operation: Operation, tp: TopicPartition) -> StateChange:
        topic_id = self.nodes[tp].topic_id
        return StateChange(operation, tp, topic_id, FROM_ADMINISTRATOR, FROM_ADMINISTRATOR)

    def _enqueue(self, receiver: BrokerId, change: StateChange) -> None:
        """Add a request to a queue. A full queue loses its start requests, for one rescan."""
        queue = self.queues[receiver]
        if len(queue) >= self.queue_max:
            closes = {n: one for n, one in queue.items() if one.operation is Operation.CLOSE}
            self.count += 1
            self.queues[receiver] = queue = {**closes, self.count: RESCAN}
        self.count += 1
        queue[self.count] = change

    # ZooKeeper.

    def _view(self, broker: SimBroker, tp: TopicPartition) -> PartitionView:
        now = self.nodes[tp]
        if now.leader is None:
            return now
        is_ours = self.owners[tp] == broker.session
        return replace(now, leader=replace(now.leader, is_ours=is_ours))

    def _set(self, tp: TopicPartition, **changes: object) -> None:
        """Change nodes of a partition, and fire the watches."""
        before = self.nodes[tp]
        now = self.nodes[tp] = replace(before, **changes)  # type: ignore[arg-type]
        self._line(f"{tp} has {short(self.nodes[tp])}")
        is_led = before.leader != now.leader
        is_assigned = before.replicas is None and now.replicas is not None
        is_reassigned = before.reassignment != now.reassignment
        for broker in self.brokers:
            if (tp in broker.watched and (is_led or is_assigned)) or (
                tp.topic in broker.watched_topics
                and is_reassigned
                and broker.machine.status(tp) in LEADERS
            ):
                broker.read(tp)

    def _is_settled(self, tp: TopicPartition) -> bool:
        """True if the partition is led, in sync, not being reassigned, and only on the disks of its replicas."""
        now = self.nodes[tp]
        if now.leader is None or now.isr is None or now.replicas is None:
            return False
        leader = self.brokers[now.leader.broker_id]
        return (
            set(now.isr.ids) == set(now.replicas)
            and now.reassignment is None
            and now.leader.broker_id == now.replicas[0]
            and leader.machine.status(tp) is HostedReplicaStatus.LEADING
            and {b.id for b in self.brokers if tp in b.disk} == set(now.replicas)
        )

    # Reports.

    def _count(self, item: object) -> None:
        name = type(item).__name__
        self.seen[name] = self.seen.get(name, 0) + 1

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _report(self, fault: str) -> str:
        nodes = "\n".join(f"{tp}: {short(seen)}" for tp, seen in self.nodes.items())
        states = "\n".join(
            f"{b.id} {b.phase} running={b.is_running} session={b.session} roles={short(b.roles)} "
            f"disk={ {str(tp): log.topic_id[-2:] for tp, log in b.disk.items()} } "
            f"statuses={ {str(tp): b.machine.status(tp).value for tp in self.tps} } "
            f"queue={[short(change) for change in self.queues[b.id].values()]}"
            for b in self.brokers
        )
        return "\n".join((fault, *self.lines, nodes, states))


_FIELDS: Final = (
    "topic_id",
    "replicas",
    "replicas_version",
    "leader",
    "isr",
    "reassignment",
)


def short(item: object) -> str:
    """Return the parts of a value that matter in a list of steps."""
    if isinstance(item, PartitionView):
        lead = item.leader
        led = "-" if lead is None else f"{lead.broker_id};{lead.epoch}{'!' if lead.is_ours else ''}"
        isr = "-" if item.isr is None else f"{item.isr.ids};{item.isr.epoch}v{item.isr.version}"
        target = "-" if item.reassignment is None else item.reassignment.replicas
        topic = "-" if item.topic_id is None else int.from_bytes(item.topic_id, "big")
        return f"<{topic} AR={item.replicas} leader={led} ISR={isr} RAR={target}>"
    if isinstance(item, StateChange):
        return f"{item.operation.value} {item.tp} epoch={item.epoch} from {item.sender}"
    if isinstance(item, TopicPartition):
        return str(item)
    if isinstance(item, bytes):
        return str(int.from_bytes(item, "big"))
    if isinstance(item, dict):
        return str({short(key): short(value) for key, value in item.items()})
    if is_dataclass(item):
        parts = (short(getattr(item, part.name)) for part in fields(item))
        return f"{type(item).__name__}({', '.join(parts)})"
    return str(item)


def check_commands(
    broker: SimBroker,
    event: e.Event,
    commands: list[c.Command],
    before: dict[TopicPartition, HostedReplicaStatus],
) -> None:
    """Check what one broker does about one event."""
    facts = (broker.id, event, commands)
    seen = getattr(event, "view", None)
    about = {event.request.tp} if isinstance(event, e.RequestReceived) else None
    if seen is not None and about is None:
        about = {event.tp}  # type: ignore[union-attr]
    for command in commands:
        tp = getattr(command, "tp", None)
        assert about is None or tp is None or tp in about, facts
        if isinstance(command, c.BecomeLeader):
            leader, isr = command.view.leader, command.view.isr
            assert leader is not None, facts
            assert isr is not None, facts
            assert leader.is_ours, facts
            assert broker.id in isr.ids, facts
            assert leader.epoch == isr.epoch, facts
        if isinstance(command, c.BecomeLeader | c.BecomeFollower):
            key = (command.tp, command.view.topic_id)
            assert command.view.leader is not None
            assert command.view.leader.epoch >= broker.role_epochs.get(key, 0), facts
            broker.role_epochs[key] = command.view.leader.epoch
        if isinstance(command, ROLES) and isinstance(event, e.PartitionRead):
            assert before[command.tp] is not HostedReplicaStatus.ABSENT, facts
        if isinstance(command, c.Enqueue):
            assert before[command.request.tp] in (*LEADERS, HostedReplicaStatus.ELECTING), facts
            assert command.request.sender == broker.id, facts
        if isinstance(command, c.CloseReplica):
            check_close(broker, event, command)
    consumed = [command for command in commands if isinstance(command, c.Consume)]
    if isinstance(event, e.RequestReceived):
        assert [command.entry for command in consumed] == [event.entry], facts
        assert commands[-1] == consumed[0], facts
    else:
        assert not consumed, facts


def check_close(broker: SimBroker, event: e.Event, command: c.CloseReplica) -> None:
    """Check that a replica is closed only by a request or a scan, and never while it has a place."""
    assert isinstance(event, e.RequestReceived | e.Scanned | e.PartitionRead), (event, command)
    seen = event.views[command.tp] if isinstance(event, e.Scanned) else event.view
    if isinstance(event, e.RequestReceived) and event.request.operation is Operation.CLOSE:
        assert command.topic_id == event.request.topic_id, (event, command)
        assert not command.is_stray, (event, command)
    else:
        assert command.is_stray, (event, command)
    isr = () if seen.isr is None else seen.isr.ids
    if seen.topic_id is not None and seen.topic_id == command.topic_id:
        assert broker.id not in {*seen.hosts, *isr} or seen.is_being_deleted, (event, command)
