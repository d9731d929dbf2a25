"""The observation of a cluster while somebody looks: one task for each broker, and what has changed for each viewer.

Invariants: while nobody looks, no broker is asked. The questions to a broker take at most a tenth of its time, and at
most LOAD_MAX_MS pass between two of them. What a viewer has not received yet is a set of names, so a slow viewer costs
no memory, and gets the newest state when it reads again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.base.model import NO_EPOCH
from minikafka.base.ports import Clock
from minikafka.broker.rpc.messages import STATE
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cluster.observation.causes import causes_of
from minikafka.tools.cluster.observation.sights import Known, ProcessSight, Sights
from minikafka.tools.cluster.observation.state import active_controller, coordination_of
from minikafka.tools.console.observation.broker_state import BrokerAnswers
from minikafka.tools.console.observation.brokers import ShownBroker, broker_row
from minikafka.tools.console.observation.grid import PartitionGrid, topic_of
from minikafka.tools.console.observation.ledger_records import as_record
from minikafka.tools.console.observation.members import (
    RUNNING,
    UNREACHABLE,
    BrokerMember,
    ObservedBrokers,
)

FRAME_MS: Final = 250
"""Shortest time between two frames, and between two questions to one broker."""
LOAD_MAX_MS: Final = 5_000
MEMBERS_MS: Final = 250
PROBLEMS_MS: Final = 2_000
IDLE_MS: Final = 10_000
"""The observation ends when nobody has looked for this time."""
LEDGER_KEPT: Final = 2_000
"""Number of ledger records that are kept for viewers that connect again."""
LEDGER_FIRST: Final = 200
"""Number of ledger records that a new viewer gets."""
READY_MS: Final = 1_000
"""Maximum time that a viewer waits for the first answers of all brokers; later ones come as changes."""


class Viewer:
    """What one viewer has not received yet. `topics`: those that it wants to see; empty: all."""

    def __init__(self, topics: Iterable[str] = ()) -> None:
        self.topics = frozenset(topics)
        self.changed = asyncio.Event()
        self.partitions: set[str] = set()
        self.brokers: set[int] = set()
        self.has_cluster = False
        self.has_problems = False
        self.unseen: set[str] = set()
        self.ledger_at = 0
        """Number of the next ledger record."""

    def wants(self, name: str) -> bool:
        """True if the viewer wants to see this partition."""
        return not self.topics or topic_of(name) in self.topics


class ClusterWatch:
    """The observation of one cluster."""

    def __init__(self, observed: ObservedBrokers, clock: Clock) -> None:
        self.observed = observed
        self.grid = PartitionGrid()
        self.members: dict[int, BrokerMember] = {}
        self.answers: dict[int, Mapping[str, Any] | OSError | KafkaError] = {}
        self.brokers: dict[int, ShownBroker] = {}
        self._states: dict[int, BrokerAnswers] = {}
        self.cluster: dict[str, Any] = {}
        self.problems: list[dict[str, Any]] = []
        self.unseen: dict[str, str] = {}
        """By part of the cluster that does not answer: the reason."""
        self.ledger: deque[dict[str, Any]] = deque(maxlen=LEDGER_KEPT)
        self.ledger_end = 0
        """Number of ledger records so far."""
        self.viewers: set[Viewer] = set()
        self.clock = clock
        self._tasks = TaskRegistry()
        self._last_look = 0
        self._run: TaskRegistry | None = None
        self._followed: set[int] = set()
        self._asked: set[int] = set()
        self._ready = asyncio.Event()
        self._look_again = asyncio.Event()

    # Viewers

    def add(self, viewer: Viewer) -> None:
        """Tell a viewer of all changes from now on."""
        self.viewers.add(viewer)
        viewer.ledger_at = max(0, self.ledger_end - LEDGER_FIRST)

    def remove(self, viewer: Viewer) -> None:
        """Forget a viewer. The observation goes on for IDLE_MS."""
        self.viewers.discard(viewer)
        self._last_look = self.clock.now()

    async def ready(self) -> None:
        """Observe the cluster, and return when every broker that runs has answered once, or after READY_MS."""
        self._last_look = self.clock.now()
        if self._run is None:
            self._start()
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_MS / 1000):
                await self._ready.wait()

    async def close(self) -> None:
        """End the observation."""
        await self._tasks.close()
        if self._run is not None:
            await self._run.close()

    # The observation

    def _start(self) -> None:
        self._run = TaskRegistry()
        self._ready.clear()
        self._followed.clear()
        self._asked.clear()
        run = self._run
        for name, work in (
            ("members", self._follow_members(run)),
            ("problems", self._follow_problems()),
            ("ledger", self._follow_ledger()),
        ):
            run.spawn(work, name)
        self._tasks.spawn(self._end_when_idle(run), "idle")

    async def _end_when_idle(self, run: TaskRegistry) -> None:
        while self.viewers or self.clock.now() - self._last_look < IDLE_MS:
            await self.clock.sleep(IDLE_MS / 4)
        self._run = None
        await run.close()

    async def _follow_members(self, run: TaskRegistry) -> None:
        """Notice which brokers there are and which of their processes run; follow each in a task of its own."""
        while True:
            try:
                members = await self.observed.members()
            except (MinikafkaError, OSError) as error:
                self._set_unseen("the cluster", str(error))
                await self.clock.sleep(PROBLEMS_MS)
                continue
            self._set_unseen("the cluster", "")
            self.members = {member.id: member for member in members}
            for id_ in self.members.keys() - self._followed:
                self._followed.add(id_)
                run.spawn(self._follow(id_), f"broker {id_}")
            self._refresh_brokers()
            self._check_ready()
            await self.clock.sleep(MEMBERS_MS)

    async def _follow(self, broker: int) -> None:
        """Ask one broker again and again, as long as it is a member."""
        while (member := self.members.get(broker)) is not None:
            began = self.clock.now()
            if member.state == RUNNING:
                await self._ask(broker)
            else:
                self._forget(broker)
            self._asked.add(broker)
            self._refresh_brokers()
            self._check_ready()
            took = self.clock.now() - began
            await self.clock.sleep(min(max(FRAME_MS, 10 * took), LOAD_MAX_MS))
        self._followed.discard(broker)
        self._forget(broker)

    async def _ask(self, broker: int) -> None:
        former = self.answers.get(broker)
        state = self._states.setdefault(broker, BrokerAnswers())
        try:
            answer = await self.observed.ask(broker, STATE, {"since": state.position})
        except (OSError, KafkaError) as error:
            self._forget(broker)
            self.answers[broker] = error
        else:
            self._apply(broker, state, answer)
        if isinstance(self.answers[broker], Exception) != isinstance(former, Exception):
            self._look_again.set()

    def _apply(self, broker: int, state: BrokerAnswers, answer: Mapping[str, Any]) -> None:
        """Keep the answer of a broker, and note what it changes."""
        change = state.apply(answer)
        self.answers[broker] = state.whole(answer)
        if change.is_whole:
            self._changed(self.grid.update(broker, change.rows))
        else:
            self._changed(self.grid.change(broker, change.rows, change.gone))

    def _forget(self, broker: int) -> None:
        """Drop what a broker has told, because it does not answer."""
        self._states.pop(broker, None)
        self.answers.pop(broker, None)
        self._changed(self.grid.forget(broker))

    def _check_ready(self) -> None:
        if self.members and self._asked >= self.members.keys():
            self._ready.set()

    def _changed(self, names: set[str]) -> None:
        if names:
            for viewer in self.viewers:
                viewer.partitions.update(filter(viewer.wants, names))
                viewer.changed.set()

    def _refresh_brokers(self) -> None:
        """Compute the row of each broker, and what is known of the cluster as a whole."""
        counts, now = self.grid.counts(), self.clock.now()
        changed = set()
        for id_, member in self.members.items():
            former = self.brokers.get(id_)
            row = broker_row(member, self.answers.get(id_), counts.get(id_), former, now)
            self.brokers[id_] = row
            if former is None or former.shown != row.shown:
                changed.add(id_)
            if former is None or former.state != row.state:
                self._look_again.set()
            self._set_unseen(f"broker {id_}", "" if row.state == RUNNING else row.reason)
        for gone in self.brokers.keys() - self.members.keys():
            del self.brokers[gone]
            changed.add(gone)
        self._tell(brokers=changed)
        self._set_cluster(**self._facts())

    def _facts(self) -> dict[str, Any]:
        known = {id_: one for id_, one in self.answers.items() if not isinstance(one, Exception)}
        if not known:
            return {"controller": None}
        answer = next(iter(known.values()))
        epoch = max(one["controller_epoch"] for one in known.values())
        return {
            "controller": active_controller(known),
            "controller_epoch": None if epoch == NO_EPOCH else epoch,
            "mode": coordination_of(answer),
        }

    def _set_cluster(self, **facts: Any) -> None:
        if {**self.cluster, **facts} != self.cluster:
            self.cluster |= facts
            for viewer in self.viewers:
                viewer.has_cluster = True
                viewer.changed.set()

    def _tell(self, brokers: set[int]) -> None:
        if brokers:
            for viewer in self.viewers:
                viewer.brokers |= brokers
                viewer.changed.set()

    def _set_unseen(self, what: str, reason: str) -> None:
        """Note why a part of the cluster cannot be seen; "" if it can."""
        if self.unseen.get(what, "") == reason:
            return
        if reason:
            self.unseen[what] = reason
        else:
            self.unseen.pop(what, None)
        for viewer in self.viewers:
            viewer.unseen.add(what)
            viewer.changed.set()

    async def _follow_problems(self) -> None:
        """Look for the causes of problems, and at ZooKeeper: at once after a change, else every PROBLEMS_MS."""
        await self._ready.wait()
        while True:
            self._look_again.clear()
            began = self.clock.now()
            try:
                seen = await self.observed.sights(self._known())
            except (MinikafkaError, OSError) as error:
                reason = error.detail if isinstance(error, KafkaError) else str(error)
                self._set_unseen("the condition of the cluster", reason)
            else:
                self._set_unseen("the condition of the cluster", "")
                self._set_problems(seen)
            pause = max(PROBLEMS_MS, 10 * (self.clock.now() - began))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause / 1000):
                    await self._look_again.wait()
            await self.clock.sleep(FRAME_MS)

    def _known(self) -> Known:
        late = TimeoutError("no answer yet")
        return {id_: self.answers.get(id_, late) for id_ in self.members}

    def _set_problems(self, seen: Sights) -> None:
        problems = [
            {"name": one.name, "text": one.text, "remedy": one.remedy, "broker": one.broker}
            for one in causes_of(seen, self.observed.options.where)
        ]
        if problems != self.problems:
            self.problems = problems
            for viewer in self.viewers:
                viewer.has_problems = True
                viewer.changed.set()
        state, reason = _zookeeper_state(seen.zookeeper.process, seen.zookeeper.failure)
        self._set_cluster(zookeeper={"address": seen.zookeeper.address, "state": state})
        self._set_unseen("ZooKeeper", reason)

    async def _follow_ledger(self) -> None:
        while True:
            began = self.clock.now()
            with suppress(MinikafkaError, OSError):
                lines = await self.observed.ledger_lines()
                for line in lines if self.ledger_end else lines[-LEDGER_FIRST:]:
                    self.ledger.append(as_record(line))
                    self.ledger_end += 1
                    for viewer in self.viewers:
                        viewer.changed.set()
            await self.clock.sleep(max(FRAME_MS, 10 * (self.clock.now() - began)))


def _zookeeper_state(process: ProcessSight | None, failure: str) -> tuple[str, str]:
    """Return the state of ZooKeeper, and why it does not serve, "" if it does."""
    if process is not None and process.state != "runs":
        return process.state, f"ZooKeeper is {process.state}"
    return (UNREACHABLE, failure) if failure else (RUNNING, "")
