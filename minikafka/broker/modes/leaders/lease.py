"""One lease: the time in which the session lets this broker act, and the work that was begun in it.

A lease begins with each start of the broker's coordination, and ends with the lease of its session or at a shutdown.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeAlias

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Tasks

Work: TypeAlias = Callable[[], Awaitable[None]]


class Lanes:
    """The works of the partitions, one after the other in a lane per partition, in the order in which they were added.

    Partitions do not wait for each other, so that a change of a leader is never queued behind other changes (C37). A
    lane is one task, which ends when its work is done.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._lanes: dict[TopicPartition, deque[Work]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, tp: TopicPartition, work: Work) -> None:
        """Run the work after all earlier works of the partition. It must not raise."""
        lane = self._lanes.get(tp)
        if lane is not None:
            lane.append(work)
            return
        self._idle.clear()
        self._lanes[tp] = deque([work])
        self._tasks.spawn(self._run(tp), f"partition-{tp}")

    async def _run(self, tp: TopicPartition) -> None:
        lane = self._lanes[tp]
        try:
            while lane:
                await lane.popleft()()
        finally:
            del self._lanes[tp]
            if not self._lanes:
                self._idle.set()

    async def wait_for(self, tps: Iterable[TopicPartition]) -> None:
        """Wait until the works of these partitions that were added so far have ended."""
        ends = []
        for tp in tps:
            ends.append(end := asyncio.Event())
            self.add(tp, partial(_set, end))
        for end in ends:
            await end.wait()

    async def wait_until_idle(self) -> None:
        """Wait until no lane has work."""
        await self._idle.wait()


async def _set(end: asyncio.Event) -> None:
    end.set()


class Lease:
    """One lease of this broker.

    Invariant: what was begun under a lease has no effect after its end. Writes name the generation of its session, and
    orders to the replicas have `fence`.
    """

    def __init__(self, generation: int, tasks: Tasks) -> None:
        self.generation = generation
        self.lanes = Lanes(tasks)
        self.is_over = False
        self.to_read: set[TopicPartition] = set()
        """Partitions that a lane is going to read."""

    def end(self) -> None:
        """Let nothing that was begun under this lease have an effect any longer."""
        self.is_over = True

    def fence(self) -> None:
        """Raise KafkaError if the lease is over."""
        if self.is_over:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the session's lease has ended")
