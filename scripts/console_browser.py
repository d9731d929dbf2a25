"""A cluster under load, its console as a process, and the console's page in Chromium.

Used by console-grid, console-soak and console-pictures. Everything ends with its context manager.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from load import Stream, create_topic
from playwright.async_api import Browser, Page, ViewportSize, async_playwright
from threads import in_thread

from minikafka.tools.cluster import LocalCluster

BROKERS = 3
TOPICS = ("orders", "payments", "clicks")
PARTITIONS = 8
CONFIG = {
    "zookeeper.session.timeout.ms": 6_000,
    "auto.leader.rebalance.enable": False,
    "group.initial.rebalance.delay.ms": 0,
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 60.0


@asynccontextmanager
async def console(data: Path) -> AsyncIterator[tuple[str, int]]:
    """Start the console of the cluster in a data directory; yield its URL and the id of its process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "minikafka", "console", "--data", str(data), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError("the console has ended early: run `minikafka console` to see why")
        yield json.loads(line)["url"], process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start the installed Chromium without a window."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise RuntimeError(f"no browser found: install one of {', '.join(BROWSERS)}")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def page_of_cluster(
    size: ViewportSize | None = None,
) -> AsyncIterator[tuple[LocalCluster, Page, str, int]]:
    """Start a cluster with the topics, its console, and Chromium with an empty page.

    Yield the cluster, the page, the URL of the console, and the id of its process.
    """
    async with LocalCluster(BROKERS, config=CONFIG) as cluster:
        for topic in TOPICS:
            await in_thread(create_topic, cluster.bootstrap, topic, PARTITIONS, {})
        async with console(cluster.directory.path) as (url, pid), chromium() as browser:
            yield cluster, await browser.new_page(viewport=size), url, pid


@contextmanager
def load(bootstrap: str, rates: Sequence[float]) -> Iterator[list[Stream]]:
    """Send records to each topic: `rates` has the records per second of each."""
    streams = [
        Stream(bootstrap, topic, records(topic), rate)
        for topic, rate in zip(TOPICS, rates, strict=True)
    ]
    for stream in streams:
        stream.PACE_EVERY = 10
        stream.start()
    try:
        yield streams
    finally:
        for stream in streams:
            stream.abandon()


def records(topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and JSON values without end."""
    for number in itertools.count(1):
        value: dict[str, Any] = {"id": number, "kind": topic, "price": number % 97, "paid": True}
        yield b"customer-%d" % (number % 500), json.dumps(value).encode()


def resident(pid: int) -> int:
    """Return the bytes of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
