"""Takes the pictures of the console in docs/images: three brokers under load, one of which is killed in the page.

console-pictures [--folder docs/images]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import endings
from console_browser import TOPICS, load, page_of_cluster
from playwright.async_api import Page

from minikafka.tools.cli.execution.running import run_cancellable

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1160, 700
PHONE = {"width": 360, "height": 740}
WARM_SECONDS = 40.0
"""Time for the line of records per second to fill."""
VICTIM = 2


def main() -> bool:
    """Parse the command line and take the pictures."""
    parser = argparse.ArgumentParser(
        prog="console-pictures", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    return run_cancellable(take(parser.parse_args(sys.argv[1:]).folder))


async def take(folder: Path) -> bool:
    """Take all pictures."""
    async with page_of_cluster({"width": WIDTH, "height": HEIGHT}) as (cluster, page, url, _):
        await page.goto(url)
        with load(cluster.bootstrap, (400, 150, 50)):
            await asyncio.sleep(WARM_SECONDS)
            await show(page, folder)
    return True


async def show(page: Page, folder: Path) -> None:
    """Kill a broker in the page, and take a picture of each state."""
    await page.click(f'[data-broker="{VICTIM}"] [data-action="kill"]')
    await page.wait_for_selector("[data-confirm]:not([disabled])")
    await asyncio.sleep(1)
    await page.locator("dialog").screenshot(path=folder / "console-kill.png")
    led = page.locator(f'[data-key^="{TOPICS[0]}-"]:has(.leader[aria-label^="broker {VICTIM}:"])')
    partition = str(await led.first.get_attribute("data-key")).rpartition("-")[2]
    await page.click("[data-confirm]")
    await page.wait_for_selector(".done")
    await page.keyboard.press("Escape")
    await page.wait_for_selector(f'[data-broker="{VICTIM}"].down')
    await asyncio.sleep(4)
    await both_colours(page, folder, "console-cluster")
    await page.evaluate(f"location.hash = '#/partition/{TOPICS[0]}/{partition}'")
    await page.wait_for_selector(".chains li")
    await asyncio.sleep(2)
    await both_colours(page, folder, "console-partition")
    await page.set_viewport_size(PHONE)
    await page.evaluate("location.hash = '#/cluster'")
    await asyncio.sleep(1)
    await picture(page, folder, "console-phone")


async def both_colours(page: Page, folder: Path, name: str) -> None:
    """Take a picture in light, and one in dark colours."""
    for scheme in ("dark", "light"):
        await page.emulate_media(color_scheme=scheme)
        await asyncio.sleep(0.5)
        await picture(page, folder, name if scheme == "light" else f"{name}-dark")


async def picture(page: Page, folder: Path, name: str) -> None:
    """Save what is in sight as NAME.png."""
    path = folder / f"{name}.png"
    await page.screenshot(path=path, full_page="partition" in name)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    endings.run("console-pictures", main)
