"""Chaos test of transactions: a topic is copied exactly once while brokers, coordinators, ZooKeeper and the jobs die.

A feed writes transactions to a topic, and aborts some of them. Copy jobs, which are processes of their own, copy the
topic. At the end, the copies must equal the committed records: each once, in order per partition. Then the
histories of all clients are checked for isolation against the logs of all replicas (docs/isolation.md).
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from copy_check import STALLED_SECONDS, Records, Topics, differences
from copy_processes import CopyProcess, running
from display import Display, Step
from load import create_topic
from threads import in_thread
from transaction_faults import Faults
from transactional_feed import Feed

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import Recorder
from minikafka.checks.isolation.operations import OFFSETS_TOPIC
from minikafka.checks.isolation.verdict import Verdict, check
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.verdict.directories import read_logs
from minikafka.tools.verdict.files import events_of

INPUT, OUTPUT, GROUP = "transactions-in", "transactions-out", "copy"
OFFSETS_PARTITIONS = 5
CONFIG = {
    "zookeeper.session.timeout.ms": 6_000,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "transaction.state.log.num.partitions": 5,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}
TOPIC_CONFIG = {"min.insync.replicas": "2"}
PARTITIONS = 4
"""Least number of partitions of each topic: with more jobs, each job gets one."""
RATE = 150.0
QUIET_SECONDS = (0.5, 3.0)
"""Range of the time between the end of a fault and the start of the next fault."""
SHOW_SECONDS = 0.2


async def chaos(
    display: Display, cluster: LocalCluster, seconds: float, seed: int, jobs: int, keep: str | None
) -> bool:
    """Copy under faults for `seconds`, and check the copies. Return True if there is no anomaly."""
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        directory = Path(temporary if keep is None else keep) / "histories"
        directory.mkdir(exist_ok=True)
        return await Run(display, cluster, directory, seed, jobs).run(seconds)


class Run:
    """One run: the feed, the jobs, the faults, and the checks at the end."""

    def __init__(
        self, display: Display, cluster: LocalCluster, directory: Path, seed: int, jobs: int
    ) -> None:
        self._display = display
        self._cluster = cluster
        self._directory = directory
        self._partitions = max(PARTITIONS, jobs)
        self._seed = seed
        self._jobs = [
            CopyProcess(cluster.bootstrap, f"copy-{number}", (INPUT, OUTPUT), directory)
            for number in range(jobs)
        ]
        self._topics = Topics(cluster.bootstrap)
        self._ends: dict[TopicPartition, int] = {}

    async def run(self, seconds: float) -> bool:
        """Make the run, and return True if there is no anomaly."""
        for topic in (INPUT, OUTPUT):
            arguments = (topic, self._partitions, TOPIC_CONFIG)
            await in_thread(create_topic, self._cluster.bootstrap, *arguments)
        path = self._directory / "reader.jsonl"
        with path.open("w", encoding="utf-8") as file:
            reader = Recorder("reader", None, file.write, time.monotonic)
            async with running(self._jobs):
                await self._under_load(seconds)
                source = await self._read(INPUT, reader)
                with self._display.step("finish") as step:
                    arguments = (GROUP, INPUT, source, step.advance)
                    await in_thread(self._topics.wait_until_copied, *arguments)
                    await asyncio.gather(*(job.stop() for job in self._jobs))
                    step.done(self._restarts())
            target = await self._read(OUTPUT, reader)
        with self._display.step("check") as step:
            verdict = await in_thread(self._isolation)
            step.done(str(verdict))
        return self._show(source, target, verdict)

    async def _under_load(self, seconds: float) -> None:
        """Inject faults for `seconds`, wait until every ISR is full, then stop the feed."""
        feed = Feed(
            self._cluster.bootstrap, INPUT, self._partitions, RATE, self._seed, self._directory
        )
        feed.start()
        try:
            with self._display.step("faults") as step:
                counts = await self._faults(step, feed, seconds)
                step.done(", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items())))
            with self._display.step("heal") as step:
                await self._cluster.wait_until_in_sync()
                feed.stop()
                await in_thread(feed.join, STALLED_SECONDS)
                step.done(f"{feed.committed:,} of {feed.sent:,} records committed")
        finally:
            feed.stop()
        if feed.is_alive():
            raise RuntimeError(f"the feed did not end its transaction for {STALLED_SECONDS:g} s")
        if feed.error is not None:
            raise RuntimeError(f"the feed failed: {feed.error}")

    async def _faults(self, step: Step, feed: Feed, seconds: float) -> Counter[str]:
        chance = random.Random(self._seed)
        deadline = time.monotonic() + seconds
        faults = Faults(self._display, self._cluster, self._jobs, chance, deadline)
        counts: Counter[str] = Counter()
        while (left := deadline - time.monotonic()) > 0:
            end = time.monotonic() + min(left, chance.uniform(*QUIET_SECONDS))
            while time.monotonic() < end:
                step.advance(
                    feed.committed, None, f"{feed.committed:,} committed, {left:.0f} s to go"
                )
                await asyncio.sleep(SHOW_SECONDS)
            counts[await faults.inject()] += 1
        return counts

    async def _read(self, topic: str, reader: Recorder) -> Records:
        with self._display.step(f"read {topic}") as step:
            ends = await in_thread(self._topics.settled, topic, self._partitions)
            self._ends |= {TopicPartition(topic, number): end for number, end in ends.items()}
            records: Records = await in_thread(self._topics.read, topic, ends, reader)
            step.done(f"{sum(map(len, records.values())):,} records")
        return records

    def _restarts(self) -> str:
        ends = sum((job.ends for job in self._jobs), Counter())
        reasons = "".join(f"\n  {count} × {line}" for line, count in ends.most_common())
        return f"{ends.total()} jobs ended by themselves and were started again{reasons}"

    def _isolation(self) -> Verdict:
        offsets = self._topics.settled(OFFSETS_TOPIC, OFFSETS_PARTITIONS)
        self._ends |= {TopicPartition(OFFSETS_TOPIC, n): end for n, end in offsets.items()}
        topics = (INPUT, OUTPUT, OFFSETS_TOPIC)
        logs = read_logs([str(self._cluster.directory.path)], topics, self._ends)
        histories = sorted(map(str, self._directory.glob("*.jsonl")))
        return check(events_of(histories), logs)

    def _show(self, source: Records, target: Records, verdict: Verdict) -> bool:
        problems = [*differences(source, target), *verdict.lines()]
        count = sum(map(len, target.values()))
        good = f"{count:,} records were copied exactly once, in order"
        self._display.say("\n".join(f"FAILED: {problem}" for problem in problems) or good)
        return not problems
