"""Helpers of the KAFKA-42 tests: the reassignment of one partition to other brokers.

The stages in KAFKA-42's design mail are: 1 register an ISR listener, 2 start new replicas, 3 wait until they are in
sync, 4 elect a leader among them, 5 stop old replicas, 6 write the new assignment, 7 take the partition out of the
admin path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from support.clusters.operations import NOT_STARTING, Cast, missing_replicas
from support.clusters.stage import BROKERS, Stage, Stream

from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.zookeeper.nodes import layout


class Move:
    """A reassignment of partition t-0 from `origin` to `target`, requested in `/admin/reassign_partitions`."""

    tp = TopicPartition("t", 0)

    def __init__(self, stage: Stage, cast: Cast, origin: Sequence[int], target: Sequence[int]):
        self.stage = stage
        self.cast = cast
        self.origin = tuple(origin)
        self.target = tuple(target)
        self.stream: Stream

    @property
    def state(self) -> LeaderAndIsr:
        """The partition's leader, leader epoch and ISR in ZooKeeper."""
        found = self.stage.leadership(self.tp)
        assert found is not None
        return found

    @property
    def request(self) -> bytes | None:
        """Data of `/admin/reassign_partitions`, None after its deletion."""
        return self.stage.read(layout.REASSIGN_PARTITIONS)

    async def submit(self) -> None:
        """Write the request to `/admin/reassign_partitions`."""
        data = layout.encode_reassignments({self.tp: self.target})
        await self.stage.write(layout.REASSIGN_PARTITIONS, data)

    async def up_to(self, step: str) -> None:
        """Submit the request, and wait until the controller blocks before this step of the reassignment."""
        await self.stage.hold(f"reassignment.{step}")
        await self.submit()
        assert await self.stage.held(f"reassignment.{step}") == self.cast.controller

    async def fail_over_at(self, step: str, *others: int) -> None:
        """Kill the controller before it carries out the step; kill the brokers `others` just before the controller."""
        await self.up_to(step)
        for broker in (*others, self.cast.controller):
            await self.stage.kill(broker)
        await self.stage.release(f"reassignment.{step}")

    def missing(self) -> str:
        """Return a part of the documented result that is still missing, "" if nothing is missing."""
        if self.request is not None:
            return "the reassignment is still requested"
        return missing_replicas(self.stage, self.tp.topic, {0: self.target})

    async def complete(self) -> None:
        """Wait for the end of the reassignment, and check that every acknowledged record can be read."""
        await self.stage.eventually(lambda: not self.missing(), self.missing)
        await self.stage.start()
        await self.stage.eventually(lambda: not self.missing(), self.missing)
        await self.stream.check()


@asynccontextmanager
async def moving(
    stage: Stage, cast: Cast, origin: Sequence[int], target: Sequence[int]
) -> AsyncIterator[Move]:
    """Create t-0 on `origin`, and yield the move of t-0 to `target`. The move is not requested yet.

    Records are written to t-0 until the `with` block ends.
    """
    move = Move(stage, cast, origin, target)
    await stage.create(move.tp.topic, {0: origin})
    async with stage.stream(move.tp.topic, 1) as move.stream:
        yield move


async def all_brokers_die_at_b7(stage: Stage) -> None:
    """Kill all brokers after the final assignment is written; the next controller only has to delete the request."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.fail_over_at("B7", *(id_ for id_ in BROKERS if id_ != cast.controller))
        assert move.request is not None
        await stage.start()
        await move.complete()


# Failure cases and test cases that run on memory stages and on real ones.


async def fails_over_between_steps_1_and_2(stage: Stage) -> None:
    """The new controller reads the request in the admin path and starts the reassignment from the beginning."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("A1")
        assert move.request is not None
        assert str(move.tp) not in stage.directories(cast.newcomer), "no new replica was started"
        await stage.kill(cast.controller)
        await stage.release("reassignment.A1")
        await move.complete()


async def fails_over_between_steps_2_and_3(stage: Stage) -> None:
    """The new controller waits until the new replicas are in sync, then continues the reassignment."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await stage.hold(NOT_STARTING, [cast.newcomer])
        await move.submit()
        assert await stage.held(NOT_STARTING) == cast.newcomer
        await stage.kill(cast.controller)
        await stage.eventually(lambda: stage.controller() not in (None, cast.controller))
        await stage.start(cast.controller)
        assignment = stage.assignment(move.tp)
        assert assignment is not None
        assert assignment.adding == (cast.newcomer,)
        assert set(move.origin) <= set(move.state.isr)
        await stage.release(NOT_STARTING, [cast.newcomer])
        await move.complete()


async def fails_over_between_steps_4_and_5(stage: Stage) -> None:
    """The current leader is a target replica and alive, so no other leader is elected; only the epoch rises (R58)."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], (cast.newcomer, cast.follower)) as move:
        await move.up_to("B4")
        leader = move.state.leader
        assert leader in move.target
        await stage.kill(cast.controller)
        await stage.release("reassignment.B4")
        await move.complete()
        assert move.state.leader == leader


async def fails_over_between_steps_5_and_6(stage: Stage) -> None:
    """The new controller repeats the reassignment from step 4 although the old replicas are already deleted."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B6")
        await stage.eventually(lambda: stage.directories(cast.leader, "t") == [])
        assignment = stage.assignment(move.tp)
        assert assignment is not None
        assert assignment.removing == (cast.leader,)
        await stage.kill(cast.controller)
        await stage.release("reassignment.B6")
        await move.complete()


async def fails_over_between_steps_6_and_7(stage: Stage) -> None:
    """The assignment already names the new replicas, so the new controller only deletes the admin path."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B7")
        assert move.request is not None
        before = stage.read(layout.topic_path("t")), move.state
        await stage.kill(cast.controller)
        await stage.release("reassignment.B7")
        await stage.eventually(lambda: move.request is None)
        assert (stage.read(layout.topic_path("t")), move.state) == before
        await move.complete()


async def fails_over_after_step_3(stage: Stage) -> None:
    """The next controller elects the leader and completes the remaining steps."""
    cast = Cast.of(stage)
    async with moving(stage, cast, cast[1:3], cast[2:4]) as move:
        await move.up_to("B1")
        assert move.state.leader == cast.leader
        await stage.kill(cast.controller)
        await stage.release("reassignment.B1")
        await move.complete()
        assert move.state.leader in move.target
