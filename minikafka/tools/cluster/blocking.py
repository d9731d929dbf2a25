"""How a method of a cluster serves both kinds of code: in a coroutine it is awaited, elsewhere it blocks.

`BlockingCluster` follows it, and so does every object that a method of a cluster returns and that acts on the cluster.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finish(
    work: Coroutine[Any, Any, T],
    awaited: Callable[[Coroutine[Any, Any, T]], Any] = lambda work: work,
    block: Callable[[Coroutine[Any, Any, T]], T] | None = None,
) -> T:
    """Return the result of `work`; in a coroutine, return what the caller awaits to get it.

    `awaited`: makes of `work` what is awaited in asyncio. `block`: runs `work` elsewhere (None: `run_blocking`).
    """
    __tracebackhide__ = True  # a failed test shows its own lines
    block = block or run_blocking
    if asyncio._get_running_loop() is not None:
        return awaited(work)  # type: ignore[no-any-return]  # the caller awaits it
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return trio.to_thread.run_sync(block, work)  # type: ignore[no-any-return]
    return block(work)


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in an event loop of its own, and return its result. No event loop may run in this thread."""
    # With a factory, Runner does not change the current event loop of this thread.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)
