"""Concurrent calls whose results are awaited together.

This is no part of the scheduler: most of the time of such calls passes in ZooKeeper or at another broker.
Invariant: when `all_of` returns, raises or is cancelled, no call is still running. An error is raised only
after all other calls have ended. Cancelling `all_of` cancels all calls and waits until they have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from itertools import islice
from typing import Final, TypeVar

Result = TypeVar("Result")

AT_ONCE: Final = 25
"""Value of `at_once` for calls that handle one topic each. The first steps of this many calls take about 2 ms."""


async def all_of(calls: Iterable[Awaitable[Result]], at_once: int | None = None) -> list[Result]:
    """Return the results of the calls, in order. Raises the first error, after all calls have ended.

    `at_once`: how many calls to begin together. The next group of calls begins when the previous group has ended.
    Without groups, the first steps of thousands of calls would block the event loop. None: one group of all calls.
    """
    waiting = iter(calls)
    outcomes: list[Result | BaseException] = []
    while some := list(islice(waiting, at_once)):
        outcomes += await asyncio.gather(*some, return_exceptions=True)
    results: list[Result] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results
