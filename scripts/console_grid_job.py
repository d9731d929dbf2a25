"""How fluid the console is with many partitions: a real cluster, its console, and the page in Chromium.

    console-grid [--partitions N] [--seconds S]

Records are written all the time. The page is measured with a few partitions, and again with N: how many messages with
changes it gets, how often a row in sight changes, and how many pictures it draws while its grid is scrolled. The ratios
of both are printed. The exit code is 0 if the page raised no exception.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import endings
from console_browser import PARTITIONS, TOPICS, load, page_of_cluster, resident
from load import create_topic
from playwright.async_api import Page
from threads import in_thread

from minikafka.tools.cli.execution.running import run_cancellable

BATCH = 1_000
"""Partitions of one topic."""
WAIT_MS = 300_000
COUNTING = """(() => {
  const Native = EventSource;
  window.received = { messages: 0, characters: 0 };
  window.EventSource = class extends Native {
    constructor(...given) {
      super(...given);
      this.addEventListener("frame", ({ data }) => {
        received.messages += 1;
        received.characters += data.length;
      });
    }
  };
})()"""
"""A script that counts the messages that the page receives."""
WATCHING = """async (seconds) => {
  let changes = 0;
  const observer = new MutationObserver(() => { changes += 1; });
  observer.observe(document.querySelector(".grid-space"), { childList: true, characterData: true, subtree: true });
  const before = { ...received };
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  observer.disconnect();
  const messages = received.messages - before.messages;
  return { messages, changes, characters: received.characters - before.characters };
}"""
SCROLLING = """async (seconds) => {
  const grid = document.querySelector(".grid-scroll");
  const end = performance.now() + seconds * 1000;
  let pictures = 0, longest = 0, last = performance.now(), step = 30;
  while (last < end) {
    const now = await new Promise(requestAnimationFrame);
    longest = Math.max(longest, now - last);
    last = now;
    pictures += 1;
    if (grid.scrollTop + grid.clientHeight >= grid.scrollHeight - 1) step = -30;
    if (grid.scrollTop <= 0) step = 30;
    grid.scrollTop += step;
  }
  grid.scrollTop = 0;
  return { pictures, longest };
}"""


@dataclass(frozen=True)
class Fluidity:
    """What the page does each second. `longest_ms`: the longest time between two pictures while it is scrolled."""

    messages: float
    changes: float
    message_bytes: float
    pictures: float
    longest_ms: float

    def __str__(self) -> str:
        return (
            f"{self.messages:.1f} messages/s of {self.message_bytes / 1000:.1f} kB, rows in sight change "
            f"{self.changes:.1f} times/s, scrolling {self.pictures:.0f} pictures/s, longest pause "
            f"{self.longest_ms:.0f} ms"
        )


def main() -> bool:
    """Parse the command line and measure. Return True if the page raised no exception."""
    parser = argparse.ArgumentParser(
        prog="console-grid", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--partitions", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--seconds", type=float, default=15, help="of each measurement (15)")
    arguments = parser.parse_args(sys.argv[1:])
    return run_cancellable(measure(arguments.partitions, arguments.seconds))


async def measure(partitions: int, seconds: float) -> bool:
    """Measure with a few and with many partitions, and print both."""
    complaints: list[str] = []
    async with page_of_cluster({"width": 1280, "height": 900}) as (cluster, page, url, pid):
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.add_init_script(COUNTING)
        await page.goto(url)
        with load(cluster.bootstrap, (100, 50, 50)):
            few = await fluidity(page, len(TOPICS) * PARTITIONS, seconds)
            print(f"{len(TOPICS) * PARTITIONS} partitions: {few}", flush=True)
            await create(cluster.bootstrap, partitions)
            many = await fluidity(page, len(TOPICS) * PARTITIONS + partitions, seconds)
            print(f"{partitions} more partitions: {many}", flush=True)
            print(f"memory of the server: {resident(pid) / 1_000_000:.0f} MB", flush=True)
    print(
        f"ratios: messages {many.messages / few.messages:.2f}, rows in sight {many.changes / few.changes:.2f}, "
        f"pictures {many.pictures / few.pictures:.2f}"
    )
    for complaint in complaints:
        print(f"exception in the page: {complaint}")
    return not complaints


async def create(bootstrap: str, partitions: int) -> None:
    """Create topics with this number of partitions. Their names come after those of the load."""
    for start in range(0, partitions, BATCH):
        number = min(BATCH, partitions - start)
        await in_thread(create_topic, bootstrap, f"table-{start // BATCH}", number, {})


async def fluidity(page: Page, partitions: int, seconds: float) -> Fluidity:
    """Wait until the page shows all partitions as healthy, and measure it."""
    await page.locator("[role=grid]").wait_for()
    await page.locator("[data-filter]").fill("")
    shown = "count => Number(document.querySelector('[data-choice=all]')?.textContent.replace(/\\D/g, '')) >= count"
    await page.wait_for_function(shown, arg=partitions)
    await page.locator(".health.ok").wait_for()
    watched: dict[str, Any] = await page.evaluate(WATCHING, seconds)
    scrolled: dict[str, Any] = await page.evaluate(SCROLLING, seconds)
    return Fluidity(
        watched["messages"] / seconds,
        watched["changes"] / seconds,
        watched["characters"] / max(1, watched["messages"]),
        scrolled["pictures"] / seconds,
        scrolled["longest"],
    )


if __name__ == "__main__":
    endings.run("console-grid", main)
