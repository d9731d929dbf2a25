"""Background work with an owner: the Tasks and Executor ports of the production loop.

The only place that makes tasks which go on when their maker returns. Invariant: a task is kept until it
has ended, its crash is never lost (logged, then given to the owner), and after `close` none of them runs
any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class TaskRegistry:
    """The Tasks port. `on_crash(name, error)` is called when an exception leaves one of the tasks."""

    def __init__(self, on_crash: Callable[[str, Exception], None] | None = None) -> None:
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Awaitable[None]:
        """See Tasks. Whoever awaits the task sees its end, not its exception.

        After `close` the coroutine is not begun: work that is asked for while its owner goes down has
        nobody left who would wait for it.
        """
        task = asyncio.get_running_loop().create_task(self._run(coroutine, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step has not touched the coroutine.
        task.add_done_callback(lambda _: coroutine.close())
        if self._is_closed:
            task.cancel()
        return task

    async def close(self) -> None:
        """See Tasks. A task that calls it is not cancelled by it, nor waited for."""
        self._is_closed = True
        caller = asyncio.current_task()
        while others := [task for task in self._tasks if task is not caller]:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    def names(self) -> list[str]:
        """Names of the tasks that have not ended, sorted."""
        return sorted(task.get_name() for task in self._tasks)

    async def _run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await coroutine
        except Exception as error:
            logger.exception("task %s crashed", name)
            if self._on_crash is not None:
                self._on_crash(name, error)


class ThreadExecutor:
    """The Executor port over the loop's pool of threads."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """See Executor."""
        return await asyncio.to_thread(function)
