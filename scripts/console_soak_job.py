"""Memory of the console: keeps its page open in Chromium while records are written and brokers are killed.

    console-soak [--minutes N]

The page shows each view in turn. Every 10 s the browser collects garbage, and the heap of the page and the memory of
the server are measured. The exit code is 0 only if neither grew: the median of the last quarter of the measurements is
compared with that of the second quarter, because caches fill in the first.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import endings
from confluent_kafka import Consumer
from console_browser import BROKERS, TOPICS, load, page_of_cluster, resident
from playwright.async_api import CDPSession, Page

from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster

MEASURE_SECONDS = 10.0
VIEWS = (
    "cluster",
    f"partition/{TOPICS[0]}/0",
    "topics",
    f"topics/{TOPICS[0]}",
    "groups",
    "groups/readers",
    "transactions",
)
KILL_EVERY = 6
"""Number of measurements between the death of a broker and the next."""
GROWTH_MAX = 0.10
MIB = 1 << 20
GROWTH_ALLOWED = 2 * MIB
"""Growth below this is noise."""


@dataclass(frozen=True)
class Measurement:
    """Bytes in the heap of the page, its DOM nodes, and the resident bytes of the server."""

    heap: int
    nodes: int
    server: int


def main() -> bool:
    """Parse the command line and run. Return True if no memory grew."""
    parser = argparse.ArgumentParser(
        prog="console-soak", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=30, help="how long the page is open (30)")
    arguments = parser.parse_args(sys.argv[1:])
    return run_cancellable(soak(arguments.minutes * 60))


async def soak(seconds: float) -> bool:
    """Keep the page open for this time, and print the verdict."""
    complaints: list[str] = []
    async with page_of_cluster() as (cluster, page, url, pid):
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(url)
        with load(cluster.bootstrap, (100, 50, 50)):
            reading = asyncio.create_task(read(cluster.bootstrap))
            try:
                measured = await watch(page, pid, cluster, seconds)
            finally:
                reading.cancel()
    return verdict(measured, complaints)


async def read(bootstrap: str) -> None:
    """Be a consumer group, so that the page has one to show."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 2}
    consumer = Consumer(settings)
    consumer.subscribe([TOPICS[0]])
    try:
        while True:
            consumer.poll(0)
            await asyncio.sleep(0.01)
    finally:
        consumer.close()


async def watch(page: Page, pid: int, cluster: LocalCluster, seconds: float) -> list[Measurement]:
    """Show the views in turn, kill and start brokers, and measure."""
    session = await page.context.new_cdp_session(page)
    measured: list[Measurement] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        turn = len(measured)
        await page.evaluate(f"location.hash = '#/{VIEWS[turn % len(VIEWS)]}'")
        broker = turn // KILL_EVERY % BROKERS + 1
        if turn % KILL_EVERY == KILL_EVERY // 2:
            await cluster.kill(broker)
        if turn % KILL_EVERY == KILL_EVERY - 1:
            await cluster.start(broker)
        await asyncio.sleep(MEASURE_SECONDS)
        measured.append(await measure(session, pid))
        now = measured[-1]
        print(
            f"{turn + 1}: heap {now.heap / MIB:.1f} MiB, {now.nodes} nodes, server {now.server / MIB:.1f} MiB",
            flush=True,
        )
    return measured


async def measure(session: CDPSession, pid: int) -> Measurement:
    """Measure the page after a garbage collection, and the server."""
    await session.send("HeapProfiler.collectGarbage")
    heap = await session.send("Runtime.getHeapUsage")
    counters = await session.send("Memory.getDOMCounters")
    return Measurement(int(heap["usedSize"]), int(counters["nodes"]), resident(pid))


def verdict(measured: Sequence[Measurement], complaints: Sequence[str]) -> bool:
    """Print how the memory grew. Return True if it did not grow, and the page raised no exception."""
    quarter = max(1, len(measured) // 4)
    early, late = measured[quarter : 2 * quarter] or measured[:1], measured[-quarter:]
    is_good = not complaints
    parts: tuple[tuple[str, Callable[[Measurement], int]], ...] = (
        ("heap of the page", lambda one: one.heap),
        ("memory of the server", lambda one: one.server),
    )
    for name, of in parts:
        before = statistics.median(map(of, early))
        after = statistics.median(map(of, late))
        grew = after - before > max(GROWTH_ALLOWED, GROWTH_MAX * before)
        is_good = is_good and not grew
        print(f"{name}: {before / MIB:.1f} MiB, at the end {after / MIB:.1f} MiB")
    for complaint in complaints:
        print(f"exception in the page: {complaint}")
    print("no memory grew" if is_good else "memory grew, or the page raised an exception")
    return is_good


if __name__ == "__main__":
    endings.run("console-soak", main)
