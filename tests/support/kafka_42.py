"""Helpers of the KAFKA-42 tests: the reassignment of one partition to other brokers.

The stages in KAFKA-42's design mail are: 1 register an ISR listener, 2 start new replicas, 3 wait until they are in
sync, 4 elect a leader among them, 5 stop old replicas, 6 write the new assignment, 7 take the partition out of the
admin path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from support.operations import Cast, missing_replicas
from support.stage import BROKERS, Stage, Stream

from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.zk import layout


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
