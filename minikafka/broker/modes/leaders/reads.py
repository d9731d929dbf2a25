"""Reading of partitions from ZooKeeper, many in one request.

All partitions that are asked for in one turn of the event loop are read together. Invariant: a partition is read after
it was asked for. If it has no leader, the registered brokers are read after it: only an election depends on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from minikafka.base.errors import CoordinationError
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Tasks, ZooKeeper
from minikafka.leaders.model import PartitionView
from minikafka.zk.nodes import registrations
from minikafka.zk.nodes.faults import Faults
from minikafka.zk.nodes.leaders import partitions
from minikafka.zk.nodes.leaders.tree import REGISTRATIONS


class Read(NamedTuple):
    """One partition as it was read, and the brokers that are registered."""

    view: PartitionView
    live: frozenset[BrokerId]


_Waiting: TypeAlias = dict[TopicPartition, list[asyncio.Future[Read]]]


class PartitionReads:
    """Reads the partitions of one broker. `unclean_default()`: the broker's unclean.leader.election.enable."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        tasks: Tasks,
        faults: Faults,
        unclean_default: Callable[[], bool],
    ) -> None:
        self._zookeeper = zookeeper
        self._tasks = tasks
        self._faults = faults
        self._unclean_default = unclean_default
        self._waiting: _Waiting = {}
        self._unclean: set[TopicPartition] = set()
        """Partitions whose next leader may be unclean, because an administrator has said so."""
        self.live: frozenset[BrokerId] = frozenset()
        """The registered brokers, as they were last read."""

    def allow_unclean(self, tp: TopicPartition) -> None:
        """Let this broker lead a partition although it may lack records, until the partition has a leader."""
        self._unclean.add(tp)

    async def one(self, tp: TopicPartition) -> Read:
        """Return a partition and the registered brokers. Raises CoordinationError."""
        if not self._waiting:
            self._tasks.spawn(self._read_waiting(), "partition-reads")
        answer: asyncio.Future[Read] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tp, []).append(answer)
        return await answer

    async def _read_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        try:
            views = await self.many(waiting)
            live = await self._live_for(views.values())
        except CoordinationError as error:
            for answer in _all(waiting):
                if not answer.done():
                    answer.set_exception(error)
            return
        for tp, answers in waiting.items():
            for answer in answers:
                if not answer.done():
                    answer.set_result(Read(views[tp], live))

    async def many(
        self, tps: _Waiting | list[TopicPartition]
    ) -> dict[TopicPartition, PartitionView]:
        """Return the views of these partitions. Raises CoordinationError."""
        views = await partitions.read_views(
            self._zookeeper,
            tps,
            self._zookeeper.session_id,
            self._faults,
            unclean_default=self._unclean_default(),
        )
        for tp in self._unclean.intersection(views):
            if views[tp].leader is None and views[tp].replicas is not None:
                views[tp] = replace(views[tp], unclean_election=True)
            else:
                self._unclean.discard(tp)
        return views

    async def _live_for(self, views: Iterable[PartitionView]) -> frozenset[BrokerId]:
        """Return the registered brokers: read now if one of the partitions may need an election, else as last read."""
        if any(view.leader is None and view.replicas is not None for view in views):
            return await self.read_live()
        return self.live

    async def read_live(self) -> frozenset[BrokerId]:
        """Return the ids of the registered brokers. Raises CoordinationError."""
        names, _ = await self._zookeeper.children(REGISTRATIONS)
        self.live = frozenset(registrations.ids(names, self._faults, REGISTRATIONS))
        return self.live


def _all(waiting: _Waiting) -> list[asyncio.Future[Read]]:
    return [answer for answers in waiting.values() for answer in answers]
