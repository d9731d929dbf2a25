"""Waiting for a condition that nothing announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, seconds: float = 10) -> None:
    """Turn the loop until the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  what is watched has no event
            await asyncio.sleep(0)
