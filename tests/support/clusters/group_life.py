"""Groups that work on in-memory brokers while the coordinator is killed, paused or moved.

Every member commits rising offsets of its own partition. The invariants are checked again and again: no acknowledged
commit is lost or replaced by a lower offset, generations never fall, and a member gets the assignment that the group
leader sent for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from support.clients.group_client import REJOIN, START_AGAIN, GroupClient, Member

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.broker.broker import BrokerServer
from minikafka.deciders.groups.events import CommitRequest, JoinRequest, SyncRequest
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import SeededLoop

BEAT_MS = 100
REQUESTS = (JoinRequest, SyncRequest, CommitRequest)
APPENDS = ("_append", "_appended")
STEPS = (*(request.__name__ for request in REQUESTS), *APPENDS)
"""The moments before and after the coordinator handles these requests, and calls of these methods of its appends."""


class SteppedCluster(MemoryCluster):
    """A MemoryCluster that calls `at_step(broker id, step number, step name)` at every step of its coordinators."""

    def __init__(self, brokers: int = 3, **config: object) -> None:
        super().__init__(brokers, **config)
        self.steps: list[str] = []
        self.at_step: Callable[[int, int, str], None] = lambda broker, number, name: None

    def created(self, broker: BrokerServer) -> None:
        """Watch the broker's group coordinator: `at_step` is then called before and after each of its `STEPS`."""
        appends, groups, number = broker.groups._appends, broker.groups, broker.config.broker_id
        for name in APPENDS:
            setattr(appends, name, self._watched(number, name, getattr(appends, name)))
        handle = groups.handle

        def watched(event: Any) -> None:
            watch = isinstance(event, REQUESTS)
            (self._watched(number, type(event).__name__, handle) if watch else handle)(event)

        groups.handle = watched  # type: ignore[method-assign]

    def _watched(self, broker: int, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def watched(*arguments: Any) -> Any:
            self._step(broker, f"before {name}")
            result = method(*arguments)
            self._step(broker, f"after {name}")
            return result

        return watched

    def _step(self, broker: int, name: str) -> None:
        self.steps.append(name)
        self.at_step(broker, len(self.steps) - 1, name)


class Living(Member):
    """A member that commits the offsets 1, 2, 3, … for its partition until it is stopped."""

    def __init__(
        self,
        cluster: MemoryCluster,
        group: str,
        number: int,
        topic: str = "t",
        instance: str | None = None,
    ) -> None:
        home = number % len(cluster.storages)
        super().__init__(cluster, group, home, instance, session_ms=15_000)
        self.partition = (topic, number)
        self.acked = 0
        self.sent = 0
        self.stopped = False

    async def live(self) -> None:
        """Join, then send heartbeats and commits; join again when the coordinator requires it."""
        while not self.stopped:
            await self.join()
            self._check_history()
            code = 0
            while not code and not self.stopped:
                await self.cluster.clock.sleep(BEAT_MS)
                code = await self.beat() or await self._commit_next()
            assert not code or code in REJOIN, ErrorCode(code)
            if code in START_AGAIN:
                self.member_id = ""

    async def _commit_next(self) -> int:
        self.sent += 1
        (code,) = await self.commit_as_member({self.partition: self.sent})
        if not code:
            self.acked = self.sent
        return 0 if code == ErrorCode.REQUEST_TIMED_OUT else code

    def _check_history(self) -> None:
        generations = [generation for generation, _ in self.history]
        assert generations == sorted(generations), self.history
        generation, assignment = self.history[-1]
        assert assignment == f"{generation} {self.instance or self.member_id}".encode(), (
            self.history
        )


class Life:
    """Members of one group, and an observer that reads the group's committed offsets."""

    def __init__(
        self, cluster: MemoryCluster, group: str, count: int, topic: str = "t", static: int = 0
    ) -> None:
        """`static`: number of static members; the first `static` members have an instance id."""
        self.cluster = cluster
        self.group = group
        self.members = [
            Living(cluster, group, number, topic, f"static-{number}" if number < static else None)
            for number in range(count)
        ]
        self.observer = GroupClient(cluster, group)
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks of all members."""
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(member.live()) for member in self.members]

    def restart(self, number: int) -> None:
        """Cancel a static member at its current point, and start a new member with the same instance id."""
        former = self.members[number]
        self.tasks[number].cancel()
        former.close()
        member = Living(self.cluster, self.group, number, former.partition[0], former.instance)
        member.sent, member.acked = former.sent, former.acked
        member.history = former.history
        self.members[number] = member
        self.tasks[number] = asyncio.get_running_loop().create_task(member.live())

    async def check(self) -> None:
        """Check that each member's committed offset is between its last acknowledged and its last sent offset."""
        acked = {member.partition: member.acked for member in self.members if member.acked}
        found = await self.observer.committed()
        for partition, offset in acked.items():
            assert found.get(partition, -1) >= offset, (self.group, partition, offset, found)
        for member in self.members:
            assert found.get(member.partition, 0) <= member.sent

    async def progress(self, commits: int = 3) -> None:
        """Wait until `commits` more commits of every member are acknowledged; check the invariants meanwhile."""
        goal = {member.partition: member.acked + commits for member in self.members}
        while any(member.acked < goal[member.partition] for member in self.members):
            for task in self.tasks:
                if task.done():
                    await task
            await self.cluster.clock.sleep(BEAT_MS)
            await self.check()

    async def stop(self) -> None:
        """Stop the members. Raises the exception of a member that has failed."""
        for member in self.members:
            member.stopped = True
        await asyncio.gather(*self.tasks)
        await self.check()
        for client in (*self.members, self.observer):
            client.close()


class Faults:
    """The faults of a group's coordinator.

    "kill" and "pause" affect the coordinator's broker. "move" moves the group's partition to another broker.
    """

    def __init__(self, cluster: MemoryCluster, away_ms: int = 1_500) -> None:
        self.cluster = cluster
        self.away_ms = away_ms

    @property
    def loop(self) -> SeededLoop:
        """The running event loop."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        return loop

    def begin(self, fault: str, broker: int) -> Callable[[], Awaitable[None]]:
        """Kill or pause the broker at once; return a function that ends the fault.

        For the fault "move", nothing happens at once: the returned function moves the partition.
        """
        session = self.cluster.sessions[broker].session_id
        if fault == "kill":
            self.cluster.kill(broker)
        elif fault == "pause":
            self.cluster.pause(broker)

        async def rest() -> None:
            if fault == "move":
                await self.move(broker)
                return
            self.cluster.ensemble.end_session(session)
            await self.cluster.clock.sleep(self.away_ms)
            if fault == "kill":
                await self.cluster.start(broker)
            else:
                self.cluster.resume(broker)
            await self.cluster.clock.sleep(self.away_ms)

        return rest

    async def move(self, broker: int, group: str = "g") -> None:
        """Make another broker the leader of the group's partition."""
        count = int(str(self.cluster.config.get("offsets.topic.num.partitions", 50)))
        tp = TopicPartition(GROUP_TOPIC, partition_of(group, count))
        others = [number for number in self.cluster.storages if number != broker]
        async with self.cluster.client() as client:
            await client.admin.alter_reassignments({tp: (*others, broker)})
            await client.admin.elect_leaders([tp])
        await self.cluster.clock.sleep(self.away_ms)
