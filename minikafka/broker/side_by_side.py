"""Calls made side by side by one who waits for all of them.

Invariant: none of the calls goes on after `all_of` is over, however it ends: an error waits for the
others, and whoever is cancelled meanwhile has cancelled them and seen their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

Answer = TypeVar("Answer")


async def all_of(calls: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """Their answers, in order. Raises the first error, but not before the last has ended."""
    answers: list[Answer] = []
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
        answers.append(answer)
    return answers
