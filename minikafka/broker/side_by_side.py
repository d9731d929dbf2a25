"""Awaiting several calls at once.

Invariant: no call runs on after `all_of` has ended, in whatever way. An error is raised only after the other
calls have ended, and cancelling `all_of` cancels them and waits for their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

Result = TypeVar("Result")


async def all_of(calls: Iterable[Awaitable[Result]]) -> list[Result]:
    """Return the results of the calls, in order. Raises the first error, after all calls have ended."""
    results: list[Result] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
