"""The serial lanes of one broker's work: one for each partition.

Invariant: the works of one partition run one after the other, in the order in which they were added. Partitions do not
wait for each other, so that a change of a leader is never queued behind other changes (C37).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeAlias

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Tasks

Work: TypeAlias = Callable[[], Awaitable[None]]


class Lanes:
    """The lanes that have work. A lane is one task, which ends when its work is done."""

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

    async def until_done(self, tps: Iterable[TopicPartition]) -> None:
        """Wait until the works of these partitions that were added so far have ended."""
        ends = []
        for tp in tps:
            ends.append(end := asyncio.Event())
            self.add(tp, partial(_set, end))
        for end in ends:
            await end.wait()

    async def idle(self) -> None:
        """Wait until no lane has work."""
        await self._idle.wait()


async def _set(end: asyncio.Event) -> None:
    end.set()
