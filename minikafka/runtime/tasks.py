"""Background tasks with an owner: the Tasks and Executor ports of the production loop.

Only this module creates tasks that run on after the creating function has returned. Invariant: a task
is referenced until it has ended. Its exception is logged and passed to the owner. No task runs after
`close`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from minikafka.base.errors import ConfigError

logger = logging.getLogger(__name__)


class TaskRegistry:
    """The Tasks port. `on_crash(name, error)` is called when a task ends with an exception."""

    def __init__(self, on_crash: Callable[[str, Exception], None] | None = None) -> None:
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Awaitable[None]:
        """Start a task. Awaiting the task waits for its end but does not raise its exception.

        After `close` the coroutine is not started, because no caller would wait for the task.
        """
        task = asyncio.get_running_loop().create_task(self._run(coroutine, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Without this, Python would warn of the coroutine of a task that is cancelled before its first step.
        task.add_done_callback(lambda _: coroutine.close())
        if self._is_closed:
            task.cancel()
        return task

    async def close(self) -> None:
        """Cancel all tasks except the calling task, and wait until they have ended."""
        self._is_closed = True
        caller = asyncio.current_task()
        while others := [task for task in self._tasks if task is not caller]:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    def names(self) -> list[str]:
        """Return the names of the tasks that have not ended, sorted."""
        return sorted(task.get_name() for task in self._tasks)

    async def _run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await coroutine
        except Exception as error:
            # A ConfigError says what the user has to correct.
            is_bug = not isinstance(error, ConfigError)
            logger.error("task %s crashed: %s", name, error, exc_info=is_bug)
            if self._on_crash is not None:
                self._on_crash(name, error)


class ThreadExecutor:
    """The Executor port, implemented with the event loop's thread pool."""

    async def run(self, function: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(function)
