"""A function that runs the event loop until a condition is true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    """Run the event loop until the condition is true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  what is watched has no event
            await asyncio.sleep(0)
