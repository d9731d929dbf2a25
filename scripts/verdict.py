"""Shows the verdict and the ISR history of quickstart and chaos runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from display import Display

from minikafka.base.model import TopicPartition
from minikafka.checks.delivery import HistoryComparison
from minikafka.tools.cluster import LocalCluster

WATCH_SECONDS = 0.2
_COUNTS = ("sent", "acked", "failed", "unknown", "read", "lost", "duplicated", "reordered")


class IsrWatch:
    """Records every change of a topic's leaders and ISRs, with the seconds since the start of the watch."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._started = time.monotonic()
        self._changes: dict[TopicPartition, list[str]] = {}
        self._latest: dict[TopicPartition, tuple[int | None, tuple[int, ...]]] = {}

    async def run(self) -> None:
        """Poll the cluster's state, and record changes, until cancelled."""
        while True:
            for tp, view in (await self._cluster.state()).partitions.items():
                if tp.topic == self._topic:
                    self._note(tp, view.leader, view.isr)
            await asyncio.sleep(WATCH_SECONDS)

    def _note(self, tp: TopicPartition, leader: int | None, isr: tuple[int, ...]) -> None:
        if self._latest.get(tp) == (leader, isr):
            return
        self._latest[tp] = leader, isr
        members = " ".join(f"*{i}" if i == leader else str(i) for i in sorted(isr))
        seconds = time.monotonic() - self._started
        self._changes.setdefault(tp, []).append(f"{seconds:.1f}s [{members}]")

    def show(self, display: Display) -> None:
        """Show a table of all changes, with one row per partition."""
        rows = [(tp, "  ".join(changes)) for tp, changes in sorted(self._changes.items())]
        display.table("ISR history (* leads)", ("partition", "from second … [ISR]"), rows)


def show_verdict(display: Display, verdict: HistoryComparison) -> None:
    """Show the counts as a table, with extra columns for rare kinds of anomalies that occurred."""
    anomalies = verdict.anomalies()
    names = [*_COUNTS, *(kind for kind in anomalies if kind not in _COUNTS)]
    rows = [[f"{getattr(verdict, name):,}" for name in names]]
    display.table("Verdict", names, rows)
    ok = "no acknowledged record was lost, the order was kept"
    display.say(ok if verdict.ok else f"FAILED: {verdict}")


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run a coroutine during the `with` body. Cancel the coroutine at the end of the body."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
