"""The controller's four multi-step operations, as scenarios that go through all of their steps.

Each class requests its operation, names the brokers that the tests kill, and knows the documented result. `missing()`
describes one part of the result that ZooKeeper or the brokers' disks do not show yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from support.clusters.stage import BROKERS, Stage

from minikafka.base.errors import ErrorCode
from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.client import NewTopic
from minikafka.deciders.controller.steps import (
    CONTROLLED_SHUTDOWN,
    CREATION,
    DELETION,
    REASSIGNMENT,
    STEPS,
)
from minikafka.zookeeper.nodes import layout

NOT_STARTING = "broker.leader_and_isr"


class Cast(NamedTuple):
    """Broker ids by role in a scenario. In some operations the controller also hosts replicas."""

    controller: int
    leader: int
    follower: int
    newcomer: int

    @classmethod
    def of(cls, stage: Stage) -> Cast:
        controller = stage.controller()
        assert controller is not None
        return cls(controller, *(broker for broker in BROKERS if broker != controller))


class Operation:
    """An operation on `topic`. All acknowledged records of the topic `written` must survive the operation."""

    name: ClassVar[str]
    victims: ClassVar[tuple[str, ...]]
    waits_for: ClassVar[tuple[str, ...]]
    """Roles of the brokers that must be alive for the operation to end."""

    def __init__(self, stage: Stage, cast: Cast, topic: str, step: str) -> None:
        self.stage = stage
        self.cast = cast
        self.topic = topic
        self.step = step
        self.written = f"beside-{topic}"

    @property
    def bystander(self) -> dict[int, Sequence[int]]:
        _, leader, follower, newcomer = self.cast
        return {0: (leader, follower, newcomer), 1: (follower, newcomer, leader)}

    async def prepare(self) -> None:
        """Create the topics that must exist before the operation is requested."""
        await self.stage.create(self.written, self.bystander)

    async def ask(self) -> None:
        """Request the operation, possibly without waiting for its end.

        If the controller dies, a client retries with the next controller.
        """
        raise NotImplementedError

    async def resume(self) -> None:
        """Unblock the broker that `prepare` has blocked, if any. The controller is unblocked by `kill_at_step`."""

    def missing(self) -> str:
        """Return a part of the documented result that is still missing, "" if nothing is missing."""
        raise NotImplementedError

    async def confirm(self) -> None:
        """Check the result with a client after all brokers have started again."""


class Creation(Operation):
    name = CREATION
    victims = ("controller", "leader", "follower")
    waits_for = ("leader", "follower")

    @property
    def assignment(self) -> dict[int, Sequence[int]]:
        return self.bystander

    async def ask(self) -> None:
        async with self.stage.client() as client:
            topic = NewTopic(self.topic, assignment=self.assignment)
            outcome = (await client.admin.create_topics([topic]))[self.topic]
        assert outcome.code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), outcome

    def missing(self) -> str:
        return missing_replicas(self.stage, self.topic, self.assignment)

    async def confirm(self) -> None:
        async with self.stage.stream(self.topic, len(self.assignment)) as stream:
            await stream.check()


class Deletion(Operation):
    name = DELETION
    victims = ("controller", "leader", "follower")
    waits_for = ("leader", "follower")

    async def prepare(self) -> None:
        await super().prepare()
        await self.stage.create(self.topic, self.bystander)

    async def ask(self) -> None:
        async with self.stage.client() as client:
            outcome = (await client.admin.delete_topics([self.topic]))[self.topic]
        assert outcome.code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), outcome

    def missing(self) -> str:
        paths = (layout.topic_path, layout.topic_config_path, layout.delete_topic_path)
        for path in (of(self.topic) for of in paths):
            if self.stage.read(path) is not None:
                return f"{path} is there"
        for broker in BROKERS:
            if self.stage.directories(broker, self.topic):
                return f"broker {broker} keeps {self.stage.directories(broker, self.topic)}"
        return ""

    async def confirm(self) -> None:
        """Check that the topic can be created again, and that the new topic has no old records."""
        await self.stage.create(self.topic, self.bystander)
        async with self.stage.stream(self.topic, len(self.bystander)) as stream:
            await stream.check()


class ControlledShutdown(Operation):
    """The controlled shutdown of the leader, after which the follower leads."""

    name = CONTROLLED_SHUTDOWN
    victims = ("controller", "leader", "follower")
    waits_for = ()

    async def ask(self) -> None:
        await self.stage.stop(self.cast.leader)

    def missing(self) -> str:
        if self.stage.is_running(self.cast.leader):
            return missing_replicas(self.stage, self.written, self.bystander)
        for partition in self.bystander:
            state = self.stage.leadership(TopicPartition(self.written, partition))
            if state is None or state.leader in (-1, self.cast.leader):
                return f"{partition} is led by {state}"
            if self.cast.leader in state.isr:
                return f"{partition} still counts on the broker that left: {state}"
        return ""

    async def confirm(self) -> None:
        """Elect preferred leaders, and check that the restarted broker leads again."""
        async with self.stage.client() as client:
            outcomes = await client.admin.elect_leaders()
        fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        assert all(outcome.code in fine for outcome in outcomes.values()), outcomes
        for partition, replicas in self.bystander.items():
            state = self.stage.leadership(TopicPartition(self.written, partition))
            assert state is not None
            assert state.leader == replicas[0]


class Reassignment(Operation):
    """A reassignment of three partitions to the brokers with the roles `follower` and `newcomer`.

    Partition 0 gets another leader, partition 1 keeps its leader, and partition 2 gets only new replicas.
    """

    name = REASSIGNMENT
    victims = ("controller", "leader", "follower", "newcomer")
    waits_for = ("follower", "newcomer")
    by_node = ("U1", "A2", "B1", "B6", "B7")
    """Steps for which the request is written to ZooKeeper. For other steps, it is sent to the controller."""

    def __init__(self, stage: Stage, cast: Cast, topic: str, step: str) -> None:
        super().__init__(stage, cast, topic, step)
        self.written = topic
        self.before: dict[int, LeaderAndIsr] = {}

    @property
    def origin(self) -> dict[int, Sequence[int]]:
        controller, leader, follower, _ = self.cast
        return {0: (leader, follower), 1: (follower, leader), 2: (controller, leader)}

    @property
    def bystander(self) -> dict[int, Sequence[int]]:
        return self.target

    @property
    def target(self) -> dict[int, Sequence[int]]:
        return dict.fromkeys(self.origin, (self.cast.follower, self.cast.newcomer))

    async def prepare(self) -> None:
        await self.stage.create(self.topic, self.origin)
        for partition in self.origin:
            state = self.stage.leadership(TopicPartition(self.topic, partition))
            assert state is not None
            self.before[partition] = state

    async def ask(self) -> None:
        await self.ask_for(self.target, by_node=self.step in self.by_node)

    async def ask_for(self, targets: dict[int, Sequence[int]], *, by_node: bool = False) -> None:
        wanted = {TopicPartition(self.topic, number): to for number, to in targets.items()}
        if by_node:
            data = layout.encode_reassignments(wanted)
            await self.stage.write(layout.REASSIGN_PARTITIONS, data)
            return
        async with self.stage.client() as client:
            outcomes = await client.admin.alter_reassignments(wanted)
        assert all(outcome.ok for outcome in outcomes.values()), outcomes

    def missing(self) -> str:
        if self.stage.read(layout.REASSIGN_PARTITIONS) is not None:
            return f"{layout.REASSIGN_PARTITIONS} is there"
        for partition, before in self.before.items():
            state = self.stage.leadership(TopicPartition(self.topic, partition))
            assert state is not None
            if state.leader_epoch <= before.leader_epoch:
                return f"the leader epoch of {partition} has not risen"
        return missing_replicas(self.stage, self.topic, self.target)


class Superseded(Reassignment):
    """A reassignment to the brokers `leader` and `follower`, which replaces a reassignment in progress.

    The replaced reassignment cannot end: the test blocks its target `newcomer` before `newcomer` starts replicas.
    """

    @property
    def target(self) -> dict[int, Sequence[int]]:
        return dict.fromkeys(self.origin, (self.cast.leader, self.cast.follower))

    waits_for = ("leader", "follower")

    async def prepare(self) -> None:
        await super().prepare()
        newcomer = self.cast.newcomer
        await self.stage.hold(NOT_STARTING, [newcomer])
        await self.ask_for(dict.fromkeys(self.origin, (self.cast.follower, newcomer)))
        assert await self.stage.held(NOT_STARTING) == newcomer

    async def resume(self) -> None:
        if self.stage.is_running(self.cast.newcomer):
            await self.stage.release(NOT_STARTING, [self.cast.newcomer])


def missing_replicas(stage: Stage, topic: str, target: dict[int, Sequence[int]]) -> str:
    """Return the first difference between the cluster and the expected result of an operation, "" if none.

    In the expected result, each partition is assigned to its replicas in `target`. One of these replicas leads, and
    all replicas on running brokers are in the ISR. No other running broker has a directory of the partition.
    """
    for partition, replicas in target.items():
        tp = TopicPartition(topic, partition)
        assignment, state = stage.assignment(tp), stage.leadership(tp)
        if assignment != ReplicaAssignment(tuple(replicas)):
            return f"{tp} is assigned to {assignment}"
        if state is None or state.leader not in replicas:
            return f"{tp} is led by {state}"
        running = [id_ for id_ in replicas if stage.is_running(id_)]
        if not set(running) <= set(state.isr) <= set(replicas):
            return f"{tp} is in sync on {state}"
    for broker in BROKERS:
        found = stage.directories(broker, topic)
        wanted = [f"{topic}-{number}" for number, to in target.items() if broker in to]
        if stage.is_running(broker) and found != wanted:
            return f"broker {broker} has {found}, not {wanted}"
    return ""


OPERATIONS = {kind.name: kind for kind in (Creation, Deletion, ControlledShutdown, Reassignment)}


def staged(stage: Stage, cast: Cast, operation: str, step: str, topic: str) -> Operation:
    """Return the named operation. If it has several variants, choose one in which the controller reaches `step`."""
    kind = Superseded if (operation, step) == (REASSIGNMENT, "U3") else OPERATIONS[operation]
    return kind(stage, cast, topic, step)


CASES = [
    (operation, step, victim)
    for operation, steps in STEPS.items()
    for step in steps
    for victim in OPERATIONS[operation].victims
]
"""(operation, step, victim): every relevant broker is killed at every step of every operation."""


async def kill_at_step(stage: Stage, operation: str, step: str, victim: str, topic: str) -> None:
    """Hold the controller at the step, kill the victim, and check that the operation ends as documented.

    An operation that needs the victim ends after the victim is started again; any other operation must end while the
    victim is dead. Then all brokers are started: ZooKeeper, the brokers' disks and a client must show the documented
    result, with every acknowledged record.
    """
    cast = Cast.of(stage)
    dying = getattr(cast, victim)
    staging = staged(stage, cast, operation, step, topic)
    epoch = stage.controller_epoch()
    name = f"{operation}.{step}"
    await staging.prepare()
    async with stage.stream(staging.written, len(staging.bystander)) as stream:
        await stage.hold(name)
        asked = asyncio.create_task(staging.ask())
        assert await stage.held(name) == cast.controller
        await stage.kill(dying)
        await stage.release(name)
        await staging.resume()
        if victim not in staging.waits_for:
            await asked
            await stage.eventually(lambda: not staging.missing(), staging.missing)
        await stage.start(dying)
        await asked
        await stage.start()
        await stage.eventually(lambda: not staging.missing(), staging.missing)
        await staging.confirm()
        await stream.check()
    assert (stage.controller_epoch() > epoch) == (dying == cast.controller)
