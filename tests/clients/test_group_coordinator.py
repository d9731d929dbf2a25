"""The group coordinator core and Apache Kafka 3.9 give the same answers to the same requests.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.

The requests are random. There are three clients. `a` uses JoinGroup version 5 and must first get a member id. `b` uses
version 9 and is a static member. `c` uses version 3, as old clients do. Member ids differ between Kafka and our core,
so labels replace them for the comparison.

Requests are not sent if Kafka's reaction to them is not determined. The leader of three members sends no LeaveGroup,
because either other member may become the next leader. A client whose JoinGroup or SyncGroup is not answered yet sends
no second one, because Kafka may answer either request first. The static member is an exception: it sends a second
JoinGroup, as after a restart.
"""

from __future__ import annotations

import asyncio
import random
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clusters.apache_kafka import apache_kafka, needs_kafka
from support.deciders.group_world import GroupWorld

from benchmarks.kafka import CLIENT_ID, Session
from minikafka.base.errors import ErrorCode
from minikafka.deciders.groups.events import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    LeaveRequest,
    LeavingMember,
)
from minikafka.deciders.groups.states import COMPLETING, STABLE
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import (
    CREATE_TOPICS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    METADATA,
    OFFSET_COMMIT,
    SYNC_GROUP,
)

JOIN_VERSIONS = {"a": 5, "b": 9, "c": 3}
INSTANCES: dict[str, str | None] = {"a": None, "b": "b", "c": None}
SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION, COMMIT_VERSION, DESCRIBE_VERSION = 5, 4, 4, 8, 5
SESSION_MS, REBALANCE_MS = 60_000, 120_000
ANSWER_SECONDS, SILENCE_SECONDS = 10, 0.02


class Labels:
    """Labels of the member ids that one of the two coordinators has given out."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.labels = {"": "", "stranger": "stranger"}

    def add(self, actor: str, member: str) -> None:
        if member not in self.labels:
            label = f"{actor}{sum(name[:1] == actor for name in self.ids)}"
            self.ids[label], self.labels[member] = member, label

    def id_of(self, label: str) -> str:
        return self.ids.get(label, label)


class Twins:
    """The same group on two coordinators: our core (`world`) and an Apache Kafka broker (`address`)."""

    def __init__(self, host: str, port: int, group: str, seed: int) -> None:
        self.address, self.group = (host, port), group
        self.rng = random.Random(seed)
        self.world = GroupWorld(group_initial_rebalance_delay_ms=0)
        self.ours, self.theirs = Labels(), Labels()
        self.parked: dict[int, tuple[str, str, Session]] = {}
        """Requests that are not answered yet: caller -> (client, kind, connection to Kafka)."""
        self.label = dict.fromkeys("abc", "")
        self.generation = dict.fromkeys("abc", 0)
        self.members: dict[str, list[str]] = {}
        """Labels of the members to which a group leader must assign partitions."""
        self.compared = 0

    # Sending.

    def send(
        self, actor: str, kind: str, caller: int, api: int, version: int, **values: Any
    ) -> None:
        """Send Kafka a request that our core has already received.

        Then compare both answers to every request that our core has answered by now.
        """
        session = Session(*self.address)
        body = codec.request(api, version, **values)
        session.socket.sendall(codec.encode_request(api, version, 1, CLIENT_ID, body))
        self.parked[caller] = (actor, kind, session)
        self.world.advance(1)  # fires timers of 0 ms, such as the timer of an empty group
        answered = [one for one in self.parked if one in self.world.answers]
        received = {one: self.receive(one) for one in answered}
        for one, theirs in received.items():
            self.compare(one, theirs)
        sockets = [session.socket for _, _, session in self.parked.values()]
        if sockets:
            early, _, _ = select.select(sockets, [], [], SILENCE_SECONDS)
            assert not early, "Kafka answered a request that waits here"

    def receive(self, caller: int) -> Any:
        """Receive and return Kafka's answer. For a JoinGroup, label the member ids given by Kafka and by our core."""
        actor, kind, session = self.parked[caller]
        session.socket.settimeout(ANSWER_SECONDS)
        with session:
            data = session.receive()
        answer = codec.decode_response(*self.api(actor, kind), data)
        if kind == "join":
            self.ours.add(actor, self.world.answers[caller].member_id)
            self.theirs.add(actor, answer.member_id)
        return answer

    def api(self, actor: str, kind: str) -> tuple[int, int]:
        return {
            "join": (JOIN_GROUP, JOIN_VERSIONS[actor]),
            "sync": (SYNC_GROUP, SYNC_VERSION),
            "heartbeat": (HEARTBEAT, HEARTBEAT_VERSION),
            "leave": (LEAVE_GROUP, LEAVE_VERSION),
            "commit": (OFFSET_COMMIT, COMMIT_VERSION),
            "describe": (DESCRIBE_GROUPS, DESCRIBE_VERSION),
        }[kind]

    def compare(self, caller: int, theirs: Any) -> None:
        actor, kind, _ = self.parked.pop(caller)
        ours = self.world.answers[caller]
        _, version = self.api(actor, kind)
        mine, other = (
            getattr(self, f"our_{kind}")(ours, version),
            getattr(self, f"their_{kind}")(theirs, version),
        )
        assert mine == other, f"{kind} of {actor}: here {mine}, Kafka {other}"
        self.compared += 1
        if kind == "join":
            self.joined(actor, ours)

    def joined(self, actor: str, answer: Any) -> None:
        if not answer.error or answer.error == 79:  # MEMBER_ID_REQUIRED
            self.label[actor] = self.ours.labels[answer.member_id]
        if not answer.error:
            self.generation[actor] = answer.generation
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            self.members[actor] = [
                self.ours.labels[member.member_id] for member in answer.members if leads
            ]

    # Answers, with labels.

    def our_join(self, answer: Any, version: int) -> Any:
        labels = self.ours.labels
        members = sorted(
            (labels[m.member_id], m.instance_id or "", m.metadata) for m in answer.members
        )
        extra = (answer.protocol_type, answer.skip_assignment) if version >= 9 else ()
        return (
            int(answer.error),
            answer.generation,
            answer.protocol_name or "",
            labels[answer.leader],
            labels[answer.member_id],
            members if version >= 5 else [(a, "", c) for a, _, c in members],
            extra,
        )

    def their_join(self, answer: Any, version: int) -> Any:
        labels = self.theirs.labels
        members = sorted(
            (labels[m.member_id], getattr(m, "group_instance_id", None) or "", m.metadata)
            for m in answer.members
        )
        extra = (answer.protocol_type, answer.skip_assignment) if version >= 9 else ()
        return (
            int(answer.error_code),
            answer.generation_id,
            answer.protocol_name or "",
            labels[answer.leader],
            labels[answer.member_id],
            members,
            extra,
        )

    def our_sync(self, answer: Any, version: int) -> Any:
        return (int(answer.error), answer.protocol_type, answer.protocol_name, answer.assignment)

    def their_sync(self, answer: Any, version: int) -> Any:
        return (
            int(answer.error_code),
            answer.protocol_type,
            answer.protocol_name,
            answer.assignment,
        )

    def our_heartbeat(self, answer: Any, version: int) -> int:
        return int(answer.error)

    def their_heartbeat(self, answer: Any, version: int) -> int:
        return int(answer.error_code)

    def our_leave(self, answer: Any, version: int) -> Any:
        return (
            int(answer.error),
            [(self.ours.labels[m.member_id], m.instance_id, int(m.error)) for m in answer.members],
        )

    def their_leave(self, answer: Any, version: int) -> Any:
        return (
            int(answer.error_code),
            [
                (self.theirs.labels[m.member_id], m.group_instance_id, int(m.error_code))
                for m in answer.members
            ],
        )

    def our_commit(self, answer: Any, version: int) -> Any:
        return [
            (topic, [(p, int(error)) for p, error in partitions])
            for topic, partitions in answer.topics
        ]

    def their_commit(self, answer: Any, version: int) -> Any:
        return [
            (t.name, [(p.partition_index, int(p.error_code)) for p in t.partitions])
            for t in answer.topics
        ]

    def our_describe(self, answer: Any, version: int) -> Any:
        [group] = answer.groups
        members = sorted(
            (
                self.ours.labels.get(m.member_id, "new"),
                m.instance_id or "",
                m.client_host,
                m.metadata,
                m.assignment,
            )
            for m in group.members
        )
        return (int(group.error), group.state, group.protocol_type, group.protocol, members)

    def their_describe(self, answer: Any, version: int) -> Any:
        [group] = answer.groups
        members = sorted(
            (
                self.theirs.labels.get(m.member_id, "new"),
                m.group_instance_id or "",
                m.client_host,
                m.member_metadata,
                m.member_assignment,
            )
            for m in group.members
        )
        return (
            int(group.error_code),
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            members,
        )

    # Requests.

    def join(self, actor: str, label: str, metadata: bytes, protocols: tuple[str, ...]) -> None:
        offers = [(name, metadata) for name in protocols]
        version, instance = JOIN_VERSIONS[actor], INSTANCES[actor]
        caller = self.world.send_join(
            self.ours.id_of(label),
            group_id=self.group,
            instance_id=instance,
            client_id=CLIENT_ID,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=offers,
            protocol_type="t",
            requires_member_id=version >= 4 and instance is None,
            can_skip_assignment=version >= 9,
        )
        static = {"group_instance_id": instance} if version >= 5 else {}
        self.send(
            actor,
            "join",
            caller,
            JOIN_GROUP,
            version,
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.theirs.id_of(label),
            protocol_type="t",
            protocols=[{"name": name, "metadata": data} for name, data in offers],
            **static,
        )

    def sync(self, actor: str, label: str, generation: int, protocol: str | None) -> None:
        assigned = [
            (member, f"{member} in {generation}".encode()) for member in self.members.get(actor, ())
        ]
        caller = self.world.send_sync(
            self.ours.id_of(label),
            generation,
            group_id=self.group,
            instance_id=INSTANCES[actor],
            protocol_type="t",
            protocol_name=protocol,
            assignments={self.ours.id_of(member): data for member, data in assigned},
        )
        self.send(
            actor,
            "sync",
            caller,
            SYNC_GROUP,
            SYNC_VERSION,
            group_id=self.group,
            generation_id=generation,
            member_id=self.theirs.id_of(label),
            group_instance_id=INSTANCES[actor],
            protocol_type="t",
            protocol_name=protocol,
            assignments=[
                {"member_id": self.theirs.id_of(m), "assignment": data} for m, data in assigned
            ],
        )

    def heartbeat(self, actor: str, label: str, generation: int) -> None:
        caller = self.world.call(
            HeartbeatRequest,
            group_id=self.group,
            generation=generation,
            member_id=self.ours.id_of(label),
            instance_id=INSTANCES[actor],
        )
        self.send(
            actor,
            "heartbeat",
            caller,
            HEARTBEAT,
            HEARTBEAT_VERSION,
            group_id=self.group,
            generation_id=generation,
            member_id=self.theirs.id_of(label),
            group_instance_id=INSTANCES[actor],
        )

    def leave(self, actor: str, label: str) -> None:
        leaving = LeavingMember(self.ours.id_of(label), INSTANCES[actor])
        caller = self.world.call(LeaveRequest, group_id=self.group, members=[leaving])
        self.send(
            actor,
            "leave",
            caller,
            LEAVE_GROUP,
            LEAVE_VERSION,
            group_id=self.group,
            members=[
                {"member_id": self.theirs.id_of(label), "group_instance_id": INSTANCES[actor]}
            ],
        )

    def commit(self, actor: str, label: str, generation: int) -> None:
        caller = self.world.send_commit(
            {("t", 0): generation + 7},
            self.ours.id_of(label),
            generation,
            self.group,
            INSTANCES[actor],
        )
        partition = {
            "partition_index": 0,
            "committed_offset": generation + 7,
            "committed_metadata": "",
        }
        self.send(
            actor,
            "commit",
            caller,
            OFFSET_COMMIT,
            COMMIT_VERSION,
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.theirs.id_of(label),
            group_instance_id=INSTANCES[actor],
            topics=[{"name": "t", "partitions": [partition]}],
        )

    def describe(self) -> None:
        caller = self.world.call(DescribeGroupsRequest, group_ids=[self.group])
        self.send("a", "describe", caller, DESCRIBE_GROUPS, DESCRIBE_VERSION, groups=[self.group])

    # One step.

    def step(self) -> None:
        rng = self.rng
        actor = rng.choice("abc")
        label = self.label[actor]
        kinds = {kind for who, kind, _ in self.parked.values() if who == actor}
        generation = self.generation[actor] + rng.choice((0, 0, 0, 0, 0, 1, -1))
        chance = rng.random()
        if chance < 0.45 and not kinds:
            self.advance(actor, label)
        elif chance < 0.55:
            self.heartbeat(actor, rng.choice((label, label, "stranger")), generation)
        elif chance < 0.65:
            self.commit(actor, label, rng.choice((generation, generation, -1)))
        elif chance < 0.72 and "sync" not in kinds and self.may_leave(actor, label):
            self.leave(
                actor,
                rng.choice((label, label, "stranger")) if actor != "b" else rng.choice((label, "")),
            )
            self.label[actor] = "" if rng.random() < 0.8 else label
        elif chance < 0.8:
            self.describe()
        elif actor == "b" or not kinds:
            returns = actor == "b" and (bool(kinds) or rng.random() < 0.5)
            metadata = rng.choice((b"1", b"1", b"2"))
            self.join(actor, "" if returns else label, metadata, ("range", "x"))

    def advance(self, actor: str, label: str) -> None:
        """Send JoinGroup from a client; if the client is in the current generation, usually send SyncGroup instead."""
        group = self.world.context.groups.get(self.group)
        if (
            group is not None
            and group.state in (COMPLETING, STABLE)
            and group.generation == self.generation[actor]
            and self.ours.id_of(label) in group.members
            and self.rng.random() < 0.8
        ):
            protocol = self.rng.choice(
                (group.protocol_name, group.protocol_name, group.protocol_name, "wrong")
            )
            self.sync(actor, label, self.generation[actor], protocol)
            return
        protocols = self.rng.choice((("range",), ("range", "x"), ("range", "y"), ("z",)))
        self.join(actor, label, b"1", protocols)

    def may_leave(self, actor: str, label: str) -> bool:
        """Return False if the member leads a group of three, else True.

        If such a leader left, Kafka could choose either remaining member as the next leader.
        """
        group = self.world.context.groups.get(self.group)
        if group is None or len(group.members) < 3:
            return True
        return group.leader not in (self.ours.id_of(label), group.static_ids.get(actor))

    @property
    def is_stable(self) -> bool:
        group = self.world.context.groups.get(self.group)
        return group is not None and group.state is STABLE

    def close(self) -> None:
        for _, _, session in self.parked.values():
            session.socket.close()


pytestmark = [pytest.mark.clients, needs_kafka]
SEQUENCES, STEPS = 20, 60


async def test_coordinator_core_gives_the_same_answers_as_apache_kafka(tmp_path: Path) -> None:
    settings = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}
    async with apache_kafka(tmp_path, group_initial_rebalance_delay_ms=0, **settings) as kafka:
        host, _, port = kafka.bootstrap.partition(":")
        await asyncio.to_thread(compare, host, int(port))


def compare(host: str, port: int) -> None:
    prepare(host, port)
    compared = stable = 0
    for seed in range(SEQUENCES):
        twins = Twins(host, port, f"g{seed}", seed)
        try:
            for _ in range(STEPS):
                twins.step()
                stable += twins.is_stable
        finally:
            twins.close()
        compared += twins.compared
    assert compared > SEQUENCES * STEPS * 0.7
    assert stable > SEQUENCES


def prepare(host: str, port: int) -> None:
    """Create the topic whose offsets are committed, and `__consumer_offsets`."""
    with Session(host, port) as session:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        wait(
            session,
            CREATE_TOPICS,
            2,
            lambda a: a.topics[0].error_code,
            topics=[topic],
            timeout_ms=10_000,
        )
        session.ask(FIND_COORDINATOR, 0, key="g0")
        wait(
            session,
            DESCRIBE_GROUPS,
            DESCRIBE_VERSION,
            lambda a: a.groups[0].error_code,
            groups=["g0"],
        )
        wait(session, METADATA, 1, lambda a: a.topics[0].error_code, topics=[{"name": "t"}])


def wait(
    session: Session, api: int, version: int, error_of: Callable[[Any], int], **values: Any
) -> None:
    """Repeat a request until it succeeds or is answered with TOPIC_ALREADY_EXISTS."""
    deadline = time.monotonic() + 30
    while error_of(session.ask(api, version, **values)) not in (
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
