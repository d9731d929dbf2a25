"""An event loop in virtual time whose schedule comes from a seed.

    run_seeded(seed, scenario())

The callbacks in the loop belong to several simulated processes, for example the brokers of a `MemoryCluster`. Within
a process, callbacks run in asyncio's order. The seed decides which process runs next. Sometimes it delays a process:
for a random time, the process runs only when no other process has a ready callback. The loop never sleeps: when no
callback is ready, the time jumps to the next timer. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple, Unpack

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
Callback = tuple[asyncio.Handle, contextvars.Context]

TURN_SECONDS = 0.000_02
"""Virtual time in seconds that each callback takes."""
TURNS_MAX = 2_000_000
"""Number of callbacks after which a run is considered endless."""
HELD_UP = 0.2
"""Probability, per callback, that another process, or none, is chosen to be delayed."""


class Process:
    """One simulated process. Its callbacks do not run after `kill`, and not between `pause` and `resume`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.frozen: list[Callback] = []
        """Callbacks that became ready while the process was dead or paused."""

    def __repr__(self) -> str:
        return f"<process {self.name}>"


OUTSIDE = Process("outside")
PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process", default=OUTSIDE)
"""The process that a callback or task belongs to. Tasks and callbacks that it starts inherit the process."""


def context_of(process: Process) -> contextvars.Context:
    """Return a context in which callbacks and tasks belong to the process."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, process)
    return context


def start_in(process: Process, coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Start a task of the process in the running loop, which may be any event loop."""
    return asyncio.get_running_loop().create_task(coroutine, context=context_of(process))


def running_loop() -> SeededLoop:
    """Return the running event loop, which must be a `SeededLoop`: no other loop can kill or pause a process."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SeededLoop), "run the scenario with run_seeded"
    return loop


def run_seeded(seed: int, scenario: Coroutine[Any, Any, Result]) -> Result:
    """Run the scenario under the seed's schedule; return its result. Raises AssertionError on unhandled exceptions."""
    loop = SeededLoop(seed)  # type: ignore[abstract]
    result = loop.run(scenario)
    assert not loop.errors, f"seed {seed}: {loop.errors}"
    return result


class NothingReady(Exception):
    """The scenario cannot end: no callback is ready and no timer is set, or `TURNS_MAX` callbacks have run."""


class SeededLoop(asyncio.AbstractEventLoop):
    """An event loop in virtual time for several simulated processes. `errors`: contexts of unhandled exceptions."""

    def __init__(self, seed: int) -> None:
        self.errors: list[dict[str, Any]] = []
        self._chance = random.Random(seed)
        self._now = 0.0
        self._turns = 0
        self._ready: dict[Process, deque[Callback]] = {}
        self._timers: list[tuple[float, int, asyncio.TimerHandle, contextvars.Context]] = []
        self._order = itertools.count()
        self._held_up: Process | None = None
        self._test = Process("test")
        self._processes: set[Process] = set()

    # Running.

    def run(self, scenario: Coroutine[Any, Any, Result]) -> Result:
        """Run the scenario to its end, and end all other tasks. Return the scenario's result or raise its exception."""
        asyncio.set_event_loop(self)
        try:
            return self.run_until_complete(scenario)
        finally:
            self._end_tasks()
            asyncio.set_event_loop(None)

    def run_until_complete(
        self, future: Generator[Any, None, Result] | Awaitable[Result]
    ) -> Result:
        """Run until the task has ended, and return its result."""
        task: asyncio.Future[Result] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        asyncio._set_running_loop(self)
        try:
            while not task.done():
                self._run_next()
        finally:
            asyncio._set_running_loop(None)
        return task.result()

    def _run_next(self) -> None:
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise NothingReady(f"no end after {TURNS_MAX} callbacks")
        self._now += TURN_SECONDS
        if not self._ready and self._timers:
            self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            _, _, handle, context = heapq.heappop(self._timers)
            self._put(handle, context)
        if not self._ready:
            if not self._timers:
                raise NothingReady
            return
        self._run_one_of(self._choose())

    def _choose(self) -> Process:
        """Choose the process whose callback runs next."""
        if len(self._ready) == 1:
            return next(iter(self._ready))
        ready = list(self._ready)
        if self._chance.random() < HELD_UP:
            self._held_up = self._chance.choice([None, *ready])
        if self._held_up in self._ready:
            ready.remove(self._held_up)
        return ready[int(self._chance.random() * len(ready))]

    def _run_one_of(self, process: Process) -> None:
        callbacks = self._ready[process]
        handle, _ = callbacks.popleft()
        if not callbacks:
            del self._ready[process]
        if not handle.cancelled():
            handle._run()

    def _put(self, handle: asyncio.Handle, context: contextvars.Context) -> None:
        process = context.get(PROCESS, self._test)
        if process.is_dead or process.is_paused:
            process.frozen.append((handle, context))
        else:
            self._ready.setdefault(process, deque()).append((handle, context))

    def kill(self, process: Process) -> None:
        """Run no further callback of the process during the scenario. No `finally` or `except` of the process runs."""
        process.is_dead = True
        process.frozen += self._ready.pop(process, ())

    def pause(self, process: Process) -> None:
        """Pause the process, as SIGSTOP does: its callbacks wait until `resume`."""
        process.is_paused = True
        process.frozen += self._ready.pop(process, ())

    def resume(self, process: Process) -> None:
        """Resume the process, as SIGCONT does. Callbacks that became ready during the pause run now, in their order."""
        process.is_paused = False
        frozen, process.frozen = process.frozen, []
        for callback in frozen:
            self._put(*callback)

    def _end_tasks(self) -> None:
        """Cancel all unfinished tasks, including tasks of dead processes.

        Otherwise asyncio would report each pending task when the task is garbage-collected.
        """
        errors = list(self.errors)
        for process in self._processes:
            process.is_dead = process.is_paused = False
            for callback in process.frozen:
                self._put(*callback)
            process.frozen.clear()
        while tasks := self._running():
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks))
            self._run_ready()
        self.errors = errors

    def _run_ready(self) -> None:
        """Run the callbacks that are ready: those of ended tasks close the coroutines that never ran."""
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                self._run_one_of(self._choose())
        finally:
            asyncio._set_running_loop(None)

    def _running(self) -> list[asyncio.Task[Any]]:
        tasks = (task for process in self._processes for task in process.tasks)
        return [task for task in tasks if not task.done()]

    # Callbacks and tasks.

    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run the callback after the callbacks of its process that are already ready."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle, context)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback after this many seconds of virtual time."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback at this virtual time."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle, context))
        return handle

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """Start a task that belongs to the process that is set in `context` (None: the current context)."""
        context = contextvars.copy_context() if context is None else context
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        process = context.get(PROCESS, self._test)
        self._processes.add(process)
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    # Methods that asyncio calls on a loop.

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def get_debug(self) -> bool:
        """Return False: this loop has no debug mode."""
        return False

    def is_running(self) -> bool:
        """Return True while this loop runs callbacks."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """Return False: this loop has nothing to close."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record the context of an unhandled exception."""
        self.errors.append(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing (called by asyncio): a cancelled timer is removed when it becomes due."""
