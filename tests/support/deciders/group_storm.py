"""Random schedules for group coordinators: clients join, commit, crash and return while the partition moves.

One seed always gives the same schedule. Requests and responses take random times. Appends are delayed, fail, or are
committed although they are reported as failed. The partition moves from one coordinator to the next, and the former
coordinator may serve for a while without noticing. `GroupStorm.run` raises AssertionError when an invariant of the
coordinator does not hold:

- every request is answered exactly once, even if its client has crashed;
- a member gets the bytes that its generation's leader sent for it, and a generation has one assignment;
- a fetch returns the last answered commit or a later one;
- generations do not fall;
- a group's counters agree with its members, and every waiting request has a timer or an append in progress.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, starmap
from typing import Any

from support.deciders.schedule import Schedule

from minikafka.base.config import BrokerConfig
from minikafka.base.coordinators import (
    Append,
    KeyValue,
    LeadershipBegun,
    LeadershipEnded,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
)
from minikafka.base.errors import ErrorCode
from minikafka.broker.coordinators.group_host import settings_of
from minikafka.deciders.decider import Answer, Outcome
from minikafka.deciders.groups import commands
from minikafka.deciders.groups.commands import Command, JoinResponse, Note, SyncResponse
from minikafka.deciders.groups.coordinator import GroupCoordinator
from minikafka.deciders.groups.events import (
    CommitRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.records import GroupKey, GroupMetadataValue, read_group, read_key
from minikafka.deciders.groups.states import COMPLETING, PREPARING, STABLE

GROUP = "g"
FAILURES = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
)
APPENDED = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
"""Errors after which the records are in the log nevertheless."""
PROTOCOLS = tuple(
    tuple((name, name.encode()) for name in names)
    for names in (("range",), ("range", "sticky"), ("sticky", "range"), ("range", "x", "sticky"))
)


class Host:
    """One broker's coordinator. `leads`: its appends are committed. `serves`: it still answers requests."""

    def __init__(self, storm: GroupStorm, epoch: int) -> None:
        config = BrokerConfig(
            group_initial_rebalance_delay_ms=storm.rng.choice((0, 50, 3_000)),
            group_max_size=storm.rng.choice((3, 100, 100)),
            group_min_session_timeout_ms=1,
        )
        self.epoch = epoch
        self.coordinator = GroupCoordinator(
            settings_of(config), lambda: f"{epoch}.{next(storm.ids)}", lambda: storm.now, 1
        )
        self.leads = self.serves = True
        self.held: list[Append] = []
        self.failed: set[int] = set()
        """Offsets whose commits were answered with an error."""
        self.generation = 0
        self.has_written = True
        """True if the last group record that this coordinator wrote is in the log."""
        self.alarm: int | None = None


class Client:
    """A consumer, reduced to its requests to the coordinator."""

    def __init__(self, storm: GroupStorm, name: str) -> None:
        self.storm = storm
        self.name = name
        self.instance = name if storm.rng.random() < 0.4 else None
        self.version = storm.rng.choice((3, 5, 9))
        self.life = 0
        """Number of restarts. Responses to requests from before a restart are ignored."""
        self.turn = 0
        """Rises with each request and each handled response, so that responses to earlier requests are ignored."""
        self.member, self.generation = "", -1
        self.protocols = storm.rng.choice(PROTOCOLS)
        self.session = storm.rng.choice((300, 1_000, 4_000))
        self.rebalance = storm.rng.choice((500, 2_000, 6_000))

    def restart(self) -> None:
        """Crash, and join again as a new process after a random time."""
        storm = self.storm
        self.life += 1
        self.turn += 1
        self.member, self.generation = "", -1
        if storm.rng.random() < 0.3:
            self.protocols = storm.rng.choice(PROTOCOLS)
        storm.later(storm.rng.choice((1, 200, 5_000)), self.join, self.life)

    def join(self, life: int) -> None:
        if life != self.life or self.storm.is_over:
            return
        request = JoinRequest(
            GROUP,
            self.member,
            self.instance,
            self.name,
            "/127.0.0.1",
            self.session,
            self.rebalance,
            "test",
            self.protocols,
            caller=None,
            requires_member_id=self.version >= 4 and self.instance is None,
            can_skip_assignment=self.version >= 9,
        )
        self.storm.send(self, lambda: request, self.joined)
        self.retry(self.join)

    def retry(self, request: Callable[..., None], *values: Any) -> None:
        """Sometimes, send the request again after a timeout; the response to the first request is then ignored."""
        if self.storm.rng.random() < 0.15:
            self.storm.later(
                self.storm.rng.choice((1, 100, 1_500)), self.again, request, self.turn, values
            )

    def again(self, request: Callable[..., None], turn: int, values: tuple[Any, ...]) -> None:
        if turn == self.turn:
            self.turn += 1
            request(self.life, *values)

    def joined(self, response: JoinResponse) -> None:
        rng = self.storm.rng
        if response.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = response.member_id
        if response.error:
            if response.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member = ""
            pause = 0 if response.error == ErrorCode.MEMBER_ID_REQUIRED else 100
            self.storm.later(rng.randrange(pause + 1), self.join, self.life)
            return
        self.member, self.generation = response.member_id, response.generation
        assignments: list[tuple[str, bytes]] = []
        if response.leader == self.member and not response.skip_assignment:
            nonce = next(self.storm.nonces)
            assignments = [
                (other.member_id, f"{nonce} {self.generation} {_owner(other)}".encode())
                for other in response.members
            ]
        self.storm.later(rng.choice((0, 5, 400)), self.sync, self.life, assignments)

    def sync(self, life: int, assignments: list[tuple[str, bytes]]) -> None:
        if life != self.life or self.storm.is_over:
            return
        request = SyncRequest(
            GROUP, self.generation, self.member, None, self.instance, "test", None, assignments
        )
        self.storm.send(self, lambda: request, self.synced)
        if assignments:
            nonce = next(self.storm.nonces)
            assignments = [
                (member, b"%d %s" % (nonce, data.split(b" ", 1)[1])) for member, data in assignments
            ]
        self.retry(self.sync, assignments)

    def synced(self, response: SyncResponse) -> None:
        if response.error:
            self.recover(response.error)
            return
        self.storm.check_assignment(self, response.assignment)
        self.beat(self.life)

    def beat(self, life: int) -> None:
        """Do one random action of a consuming member: heartbeat, commit, leave, restart or join again."""
        rng = self.storm.rng
        if life != self.life or self.storm.is_over:
            return
        chance = rng.random()
        if chance < 0.05:
            self.leave()
        elif chance < 0.12:
            self.restart()
        elif chance < 0.2:
            self.protocols = rng.choice(PROTOCOLS)
            self.join(life)
        elif chance < 0.6:
            self.commit()
        else:
            request = HeartbeatRequest(GROUP, self.generation, self.member, None, self.instance)
            self.storm.send(self, lambda: request, self.beaten)

    def beaten(self, response: Any) -> None:
        if response.error:
            self.recover(response.error)
        else:
            pause = self.storm.rng.choice((self.session // 3, self.session // 2, self.session * 2))
            self.storm.later(pause, self.beat, self.life)

    def recover(self, error: int) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member = ""
        self.storm.later(self.storm.rng.randrange(100), self.join, self.life)

    def leave(self) -> None:
        request = LeaveRequest(GROUP, [LeavingMember(self.member, self.instance)], None)
        self.storm.send(self, lambda: request, lambda _: None)
        self.restart()

    def commit(self) -> None:
        """Commit an offset. The offset is chosen when the request arrives, so later commits have higher offsets."""
        sent: list[int] = []

        def request() -> CommitRequest:
            sent.append(next(self.storm.offsets))
            topics = [("t", [OffsetToCommit(0, sent[0])])]
            return CommitRequest(GROUP, self.generation, self.member, self.instance, topics, None)

        def committed(response: Any) -> None:
            error = response.topics[0][1][0][1]
            if error:
                self.recover(error)
            else:
                self.storm.later(self.session // 3, self.beat, self.life)

        self.storm.send(self, request, committed, sent)


def _owner(member: Any) -> str:
    return member.instance_id or member.member_id


class GroupStorm(Schedule[Host]):
    """One random schedule of clients, coordinators and faults; `seed` determines it."""

    def __init__(self, seed: int, clients: int = 6, moves: bool = True) -> None:
        super().__init__(seed)
        self.ids, self.nonces, self.offsets = count(), count(), count()
        self.moves = moves
        self.peace = self.rng.choice((1_500, 10_000))
        """Maximum time (ms) between two disturbances of clients."""
        self.log: list[KeyValue] = []
        self.waiting: dict[int, tuple[Client, int, Callable[[Any], None], list[int], Host]] = {}
        """Callers whose requests are not answered yet."""
        self.assignments: dict[int, str] = {}
        """Generation -> nonce of the generation's assignment."""
        self.synced_generation = 0
        self.answered_offset = -1
        self.syncs = self.commits = 0
        self._groups: dict[int, tuple[Group, int]] = {}
        self.hosts: list[Host] = []
        self.elect()
        self.clients = [Client(self, f"c{number}") for number in range(clients)]
        self.administrator = Client(self, "administrator")
        for client in self.clients:
            self.later(self.rng.randrange(500), client.join, 0)

    # Running the schedule.

    def run(self, ms: int = 60_000) -> None:
        end = self.now + ms
        if self.moves:
            self.later(self.rng.randrange(10_000), self.move)
        self.later(self.rng.randrange(1_000), self.disturb)
        self.step_until(end)
        self.is_over = True
        self.step_until(end + 2_000_000)
        assert not self.waiting, f"never answered: {sorted(self.waiting)}"
        for host in self.hosts:
            assert not host.held

    def disturb(self) -> None:
        """Crash a random client at any point of its work, or remove it from the group as an administrator does."""
        if self.is_over:
            return
        client = self.rng.choice(self.clients)
        if self.rng.random() < 0.7:
            client.restart()
        elif client.member:
            leaving = LeavingMember("" if client.instance else client.member, client.instance)
            self.send(
                self.administrator, lambda: LeaveRequest(GROUP, [leaving], None), lambda _: None
            )
        self.later(self.rng.randrange(self.peace), self.disturb)

    # Requests and responses.

    def send(
        self,
        client: Client,
        request: Callable[[], Any],
        done: Callable[[Any], None],
        offset: list[int] | None = None,
    ) -> None:
        """Send a request to the newest coordinator or, less often, to another coordinator that still serves."""
        host = self.rng.choice([*[self.hosts[-1]] * 5, *[h for h in self.hosts if h.serves]])
        caller = next(self.callers)
        client.turn += 1
        turn = client.turn

        def arrive() -> None:
            event = request()._replace(caller=caller)
            self.waiting[caller] = (client, turn, done, offset or [], host)
            self.handle(host, event)

        self.travel(arrive)

    def answer(self, host: Host, answer: Answer) -> None:
        assert answer.caller in self.waiting, f"answered twice or never asked: {answer}"
        client, turn, done, offset, asked = self.waiting.pop(answer.caller)  # type: ignore[arg-type]
        assert asked is host
        self.answers += 1
        if offset and answer.response.topics[0][1][0][1]:  # type: ignore[union-attr]
            host.failed.add(offset[0])
        elif offset:
            self.commits += 1
            self.answered_offset = max(self.answered_offset, offset[0])

        def read() -> None:
            if client.turn == turn:
                client.turn += 1
                done(answer.response)

        self.travel(read)

    def handle(self, host: Host, event: Any) -> None:
        """Pass an event to a coordinator, and carry out its commands."""
        self.carry_out(host, host.coordinator.handle(event, self.now))

    def carry_out(self, host: Host, told: list[Command]) -> None:
        answers = [item.response for item in told if isinstance(item, Answer)]
        for command in told:
            if isinstance(command, Answer):
                self.answer(host, command)
                if isinstance(command.response, JoinResponse) and not command.response.error:
                    self.check_joined(host, command.response)
            elif isinstance(command, Append):
                host.held.append(command)
                self.later(self.rng.choice((0, 2, 30, 600)), self.finish_appends, host)
            elif isinstance(command, LoadPartition):
                self.load(host, command)
            else:
                assert isinstance(command, Note)
                self.check_note(host, command, answers)
        self.check(host)
        self.set_alarm(host)

    def is_alive(self, host: Host) -> bool:
        return bool(host.coordinator.context.groups) or not self.is_over

    # The log.

    def finish_appends(self, host: Host) -> None:
        """Complete the broker's oldest pending appends in log order; tell the broker's coordinator each outcome."""
        while host.held and self.rng.random() < 0.9:
            append = host.held.pop(0)
            error = ErrorCode.NONE
            if not host.leads:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif self.rng.random() < 0.06 and not self.is_over:
                error = self.rng.choice(FAILURES)
            if not error or error in APPENDED:
                self.log.extend(append.records)
            if isinstance(read_key(append.records[0][0]), GroupKey):
                host.has_written = not error
            self.handle(host, Outcome(append.token, error))
        if host.held:
            self.later(20, self.finish_appends, host)

    def move(self) -> None:
        """Move the group's partition to another leader.

        Of the former leader's pending appends, a random number of the oldest ones are committed.
        """
        former = self.hosts[-1]
        former.leads = False
        for append in former.held[: self.rng.randrange(len(former.held) + 1)]:
            self.log.extend(append.records)
        if self.rng.random() < 0.7:
            self.resign(former)
        else:
            self.later(self.rng.randrange(3_000), self.resign, former)
        self.later(self.rng.choice((0, 40, 1_000)), self.elect)
        if not self.is_over:
            self.later(2_000 + self.rng.randrange(12_000), self.move)

    def resign(self, host: Host) -> None:
        host.serves = False
        for append in host.held:  # the appends fail before the partition is unloaded
            host.held = [other for other in host.held if other is not append]
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.handle(host, Outcome(append.token, error))
        self.handle(host, LeadershipEnded(0))

    def elect(self) -> None:
        host = Host(self, len(self.hosts))
        self.hosts.append(host)
        self.handle(host, LeadershipBegun(0, host.epoch))

    def load(self, host: Host, command: LoadPartition) -> None:
        self.handle(host, RecordsRead(*command, starmap(LoadedRecord, self.log)))
        self.handle(host, LoadFinished(*command, partition_count=1))

    # Invariants.

    def check_assignment(self, client: Client, assignment: bytes) -> None:
        """Check that a member got its own part, and that all members of a generation got parts of one assignment."""
        nonce, generation, owner = assignment.decode().split()
        assert int(generation) == client.generation
        assert owner == client.instance or owner == client.member
        assert self.assignments.setdefault(client.generation, nonce) == nonce
        self.syncs += 1

    def check(self, host: Host) -> None:
        group = host.coordinator.context.groups.get(GROUP)
        if group is None:
            return
        known, generation = self._groups.get(id(group), (group, 0))
        assert group.generation >= generation, "the generation fell"
        self._groups[id(group)] = (known, group.generation)
        check_group(group)
        if host.leads:
            fetch = FetchOffsetsRequest([(GROUP, None)], None)
            fetched = host.coordinator.handle(fetch, self.now)
            [answer] = fetched
            topics = answer.response.groups[0].topics  # type: ignore[union-attr]
            offset = topics[0][1][0].offset if topics else -1
            assert offset >= self.answered_offset, "an answered commit is lost"
            assert offset not in host.failed, "a refused commit is visible"
            if group.state is STABLE and not host.held and host.has_written:
                self.check_log(group)

    def check_log(self, group: Group) -> None:
        """Check that the next coordinator would load the group's members, generation and assignments."""
        value = self.written()
        assert value.generation == group.generation
        assert value.leader == group.leader
        assert {(m.member_id, m.group_instance_id, m.assignment) for m in value.members} == {
            (m.member_id, m.instance_id, m.assignment) for m in group.members.values()
        }

    def check_joined(self, host: Host, response: JoinResponse) -> None:
        """Check that a member joined the current generation.

        If the group is stable and the broker's last group record is in the log, that record must list the member.
        """
        group = host.coordinator.context.groups[GROUP]
        assert group.state in (COMPLETING, STABLE)
        assert response.generation == group.generation
        if group.state is STABLE and host.leads and host.has_written:
            assert response.member_id in {member.member_id for member in self.written().members}

    def written(self) -> GroupMetadataValue:
        """Return the value of the last group metadata record in the log."""
        found = (value for key, value in reversed(self.log) if isinstance(read_key(key), GroupKey))
        return read_group(next(found) or b"")

    def check_note(self, host: Host, note: Note, answers: list[Any]) -> None:
        if note.kind in (commands.COMPLETING, commands.EMPTY):
            assert note.generation > host.generation, "a generation came twice"
            host.generation = note.generation
        if note.kind == commands.COMPLETING:
            leaders = [a for a in answers if isinstance(a, JoinResponse) and a.members]
            assert [a.member_id for a in leaders] == [note.fields["leader"]]
        if note.kind == commands.MEMBER_REMOVED:
            assert not (note.fields["instance"] and note.fields["trigger"] == commands.NOT_REJOINED)


def check_group(group: Group) -> None:
    """Raise AssertionError if the fields of a group and of its members contradict each other."""
    members = group.members
    assert group.joining == sum(member.join_caller is not None for member in members.values())
    assert group.static_ids == {m.instance_id: m.member_id for m in members.values() if m.is_static}
    assert all(name == member.member_id for name, member in members.items())
    assert (group.leader in members) if members else group.leader is None
    assert group.unsynced <= set(members)
    assert not set(group.pending) & set(members)
    supporters = dict(group.supporters)
    for member in members.values():
        for name, _ in member.protocols:
            supporters[name] -= 1
        assert member.at is None or (member.queued_at or 0) <= member.at, "a timer is due too late"
        if member.needs_heartbeat():
            assert member.at is not None, f"{member.member_id} has no session"
    assert not any(supporters.values())
    if members:
        assert any(count == len(members) for count in group.supporters.values())
    if group.state is PREPARING:
        assert group.join_timer is not None
        assert group.join_timer.at is not None
        assert group.initial_remaining_ms is not None or not group.has_all_joined()
    if group.state in (COMPLETING, STABLE):
        assert members
        assert not group.unsynced or (group.sync_timer and group.sync_timer.at is not None)
    if group.state is COMPLETING:
        assert group.is_writing or group.leader in group.unsynced
