"""A function that runs the event loop until a condition is true."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

TURNS = 100
"""Number of turns of the event loop after which the test waits for another process, a thread or the time."""
PAUSE_S = 0.002


async def until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    """Run the event loop until the condition is true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        for turn in itertools.count():
            if condition():  # what is watched has no event
                return
            await asyncio.sleep(0 if turn < TURNS else PAUSE_S)
