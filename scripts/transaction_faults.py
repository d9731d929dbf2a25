"""The faults of the chaos test of transactions: brokers, coordinators, the controller, ZooKeeper and the copy jobs.

Each round has every kind of fault once, in an order that the seed determines. A fault ends before the next begins.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

import broker_faults
from copy_processes import CopyProcess
from display import Display

from minikafka.deciders.transactions.steps import STEPS, TRANSACTION
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.script.actions import begin

OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
PAUSE_SECONDS = (0.5, 12.0)
"""Range of the duration of a fault. Some faults are longer than a transaction's or a session's timeout."""
LEAST_SECONDS = 1.0
"""Least duration of a fault that begins at the end of a run."""
STEP_MS = 10_000
"""Time limit for a coordinator to reach a step."""


class Faults:
    """The faults of one run, which end at the monotonic time `end`, or soon after it."""

    def __init__(
        self,
        display: Display,
        cluster: LocalCluster,
        jobs: Sequence[CopyProcess],
        chance: random.Random,
        end: float,
    ) -> None:
        self._display = display
        self._cluster = cluster
        self._jobs = jobs
        self._chance = chance
        self._end = end
        self._round: list[str] = []
        steps = {f"{TRANSACTION}.{step}": self._at_step for step in STEPS[TRANSACTION]}
        self._kinds: dict[str, Callable[[str], Awaitable[None]]] = {
            **dict.fromkeys(broker_faults.KINDS, self._broker),
            "transaction coordinator": self._coordinator,
            "group coordinator": self._coordinator,
            "controller": self._controller,
            "ZooKeeper pause": self._zookeeper,
            "ZooKeeper restart": self._zookeeper,
            "job kill": self._job,
            "job pause": self._job,
            **steps,
        }

    async def inject(self) -> str:
        """Inject the next fault and end it. Return its kind."""
        if not self._round:
            self._round = self._chance.sample(sorted(self._kinds), len(self._kinds))
        kind = self._round.pop()
        await self._kinds[kind](kind)
        return kind

    def _seconds(self) -> float:
        left = max(self._end - time.monotonic(), LEAST_SECONDS)
        return min(self._chance.uniform(*PAUSE_SECONDS), left)

    def _say(self, text: str) -> None:
        self._display.say(f"  {text}")

    async def _broker(self, kind: str) -> None:
        await self._fault(kind, self._chance.choice(self._ids()), self._seconds())

    def _ids(self) -> list[int]:
        return [broker.id for broker in self._cluster.record.brokers]

    async def _fault(self, kind: str, broker: int, seconds: float, why: str = "") -> None:
        self._say(f"{kind} broker {broker}{why} for {seconds:.1f} s")
        begun = await begin(self._cluster, kind, {"broker": broker}, None)
        await asyncio.sleep(seconds)
        await begun.end()

    async def _coordinator(self, kind: str) -> None:
        """Kill or pause the leader of a partition of the coordinators' topic."""
        topic = STATE if kind.startswith("transaction") else OFFSETS
        fault, seconds = self._chance.choice(("kill", "pause")), self._seconds()
        partition = self._chance.randrange(5)
        leader = await self._cluster.leader_of(topic, partition)
        await self._fault(fault, leader, seconds, f", leader of {topic}-{partition},")

    async def _controller(self, _: str) -> None:
        """Kill or pause the active controller; in a cluster without a controller, any broker."""
        fault, seconds = self._chance.choice(("kill", "pause")), self._seconds()
        broker = self._chance.choice(self._ids())
        found = (await self._cluster.state()).controller
        why = "" if found is None else ", the controller,"
        await self._fault(fault, broker if found is None else found, seconds, why)

    async def _zookeeper(self, kind: str) -> None:
        seconds = self._seconds()
        self._say(f"{kind} for {seconds:.1f} s")
        if kind.endswith("pause"):
            await self._cluster.pause_zookeeper()
            await asyncio.sleep(seconds)
            await self._cluster.resume_zookeeper()
        else:
            await self._cluster.kill_zookeeper()
            await asyncio.sleep(seconds)
            await self._cluster.start_zookeeper()

    async def _job(self, kind: str) -> None:
        """Kill or pause up to half of the jobs at once."""
        count = self._chance.randint(1, max(1, len(self._jobs) // 2))
        jobs, seconds = self._chance.sample(list(self._jobs), count), self._seconds()
        self._say(f"{kind}: {', '.join(job.name for job in jobs)} for {seconds:.1f} s")
        if kind.endswith("pause"):
            for job in jobs:
                job.signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            for job in jobs:
                job.signal(signal.SIGCONT)
        else:
            for job in jobs:
                await job.kill()
            await asyncio.sleep(seconds)
            for job in jobs:
                await job.start()

    async def _at_step(self, step: str) -> None:
        """Kill or pause the coordinator that reaches a step of the end of a transaction, at that step."""
        fault, seconds = self._chance.choice(("kill", "pause")), self._seconds()
        await self._cluster.hold(step)
        try:
            broker = await self._cluster.held(step, STEP_MS)
        except ClusterError:
            self._say(f"no coordinator reached {step} within {STEP_MS / 1000:g} s")
        else:
            self._say(f"{fault} broker {broker} at {step} for {seconds:.1f} s")
            begun = await begin(self._cluster, fault, {"broker": broker}, None)
            await self._cluster.release(step)
            await asyncio.sleep(seconds)
            assert begun.end is not None, "a kill and a pause end"
            await begun.end()
        await self._cluster.release(step)  # also at a broker that was paused at the step
