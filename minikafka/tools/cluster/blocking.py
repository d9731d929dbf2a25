"""How a method of a cluster serves both kinds of code: in a coroutine it is awaited, elsewhere it blocks.

`BlockingCluster` follows it, and so does every object that a method of a cluster returns and that acts on the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; in a coroutine, return `work`, which the caller awaits."""
    if asyncio._get_running_loop() is not None:
        return work  # type: ignore[return-value]  # the caller awaits it
    return run_blocking(work)


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in an event loop of its own, and return its result. No event loop may run in this thread."""
    # With a factory, Runner does not change the current event loop of this thread.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)
