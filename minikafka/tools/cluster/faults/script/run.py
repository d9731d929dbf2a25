"""The run of a fault script in a thread of its own, while the code of a `with` block runs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, TypeVar

from minikafka.base.errors import MinikafkaError
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cluster.blocking import finish, run_blocking
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.script.actions import Cluster, begin
from minikafka.tools.cluster.faults.script.entries import (
    AfterPrevious,
    AfterRequests,
    At,
    AtStep,
    ScriptEntry,
    Trigger,
)

T = TypeVar("T")
_FOREVER_S: Final = 86_400
_FOREVER_MS: Final = _FOREVER_S * 1000
_STOPPED: Final = "the script was stopped before"


class FaultMissed(ClusterError):
    """An entry of a fault script has hit nothing, so the test did not test what it says."""

    exit_code = 3


@dataclass
class EntryResult:
    """What an entry has done. `begun`: how often. `problem`: why it has not done all, "" if nothing went wrong."""

    entry: ScriptEntry
    begun: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    problem: str = ""

    @property
    def has_hit(self) -> bool:
        """True if it has hit anything."""
        return any(self.hits.values())

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "fault": self.entry.name,
            "begun": self.begun,
            "hits": dict(self.hits),
            "problem": self.problem,
        }

    def __str__(self) -> str:
        hits = ", ".join(_counted(kind, count) for kind, count in self.hits.items() if count)
        times = "once" if self.begun == 1 else f"{self.begun} times"
        text = f"{self.entry.name}: began {times}, hit {hits or 'nothing'}"
        return f"{text}; {self.problem}" if self.problem else text


def _counted(kind: str, count: int) -> str:
    """Return a count with its kind, in the singular for 1."""
    if count == 1:
        kind = kind.removesuffix("es") if kind.endswith("sses") else kind.removesuffix("s")
    return f"{count} {kind}"


class _Stopped(Exception):
    """The script was stopped while an entry waited."""


class FaultRun:
    """A fault script that runs in the `with` or `async with` block, in a thread of its own.

    The end of the block ends every fault that still lasts, and raises FaultMissed if an entry has hit nothing. An
    exception that leaves the block stays, and gets a note instead. `results`: one for each entry.
    """

    def __init__(self, cluster: Cluster, entries: Sequence[ScriptEntry]) -> None:
        self.results = [EntryResult(entry) for entry in entries]
        self._cluster = cluster
        self._clock = SystemClock()
        self._thread = threading.Thread(target=self._run_thread, name="faults", daemon=True)
        self._finished = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._waiting: dict[int, asyncio.Task[Any]] = {}
        self._ended = [threading.Event() for _ in entries]
        self._holds = {
            number: threading.Event()
            for number, entry in enumerate(entries)
            if isinstance(entry.trigger, AtStep)
        }
        """By the number of an entry at a step, whether the step is held, so that no broker passes it unseen."""
        self._crash: BaseException | None = None

    # ---- in the thread of the user

    def wait(self) -> Any:
        """Wait until every entry has ended, except those that last until the end of the block."""
        return finish(self._wait_for_entries())

    async def _wait_for_entries(self) -> None:
        for result, ended in zip(self.results, self._ended, strict=True):
            while not result.entry.is_held and not await asyncio.to_thread(ended.wait, 0.2):
                continue

    def __enter__(self) -> FaultRun:
        self._thread.start()
        for held in self._holds.values():
            held.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()
        self._thread.join()
        self._judge(error)

    async def __aenter__(self) -> FaultRun:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()
        await asyncio.to_thread(self._thread.join)
        self._judge(error)

    def _stop(self) -> None:
        self._stopping = True
        loop = self._loop
        if loop is not None and not self._finished.is_set():
            loop.call_soon_threadsafe(self._end_waits)

    def _judge(self, error: BaseException | None) -> None:
        """Raise the failure of the script, or add it to an exception of the block."""
        failure = self._failure()
        if failure is None:
            return
        if error is not None:
            error.add_note(str(failure))
            return
        raise failure from self._crash

    def _failure(self) -> ClusterError | None:
        if self._crash is not None:
            return ClusterError(f"the fault script failed: {self._crash!r}")
        missed = [result for result in self.results if not result.has_hit]
        failed = [result for result in self.results if result.problem and result.has_hit]
        texts = [
            f"{one.entry.place} ({one.entry.name}) hit nothing: {one.problem or 'nothing came its way'}"
            for one in missed
        ]
        texts += [f"{one.entry.place} ({one.entry.name}): {one.problem}" for one in failed]
        if not texts:
            return None
        return (FaultMissed if missed else ClusterError)("; ".join(texts))

    # ---- in the thread of the script

    def _run_thread(self) -> None:
        try:
            run_blocking(self._run())
        except BaseException as error:  # noqa: BLE001 - the thread of the user raises it
            self._crash = error
        finally:
            self._finished.set()
            for event in (*self._ended, *self._holds.values()):
                event.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._clock.now()
        over = [asyncio.Event() for _ in self.results]
        tasks = TaskRegistry(self._crashed)
        try:
            await asyncio.gather(
                *(
                    tasks.spawn(self._run_entry(number, over), f"fault {number + 1}")
                    for number in range(len(self.results))
                )
            )
        finally:
            await tasks.close()

    def _crashed(self, task: str, error: Exception) -> None:
        self._crash = error

    async def _run_entry(self, number: int, over: Sequence[asyncio.Event]) -> None:
        result = self.results[number]
        previous = over[number - 1] if number else None
        try:
            for repetition in range(result.entry.times):
                if repetition:
                    await self._pause(number, result.entry.gap)
                await self._once(number, result, previous, is_first=not repetition)
        except _Stopped:
            if not result.begun:
                result.problem = f"{_STOPPED} {_words(result.entry.trigger)}"
        except (MinikafkaError, OSError) as error:
            result.problem = str(error)
        finally:
            over[number].set()
            self._ended[number].set()
            if number in self._holds:
                self._holds[number].set()

    async def _once(
        self,
        number: int,
        result: EntryResult,
        previous: asyncio.Event | None,
        *,
        is_first: bool,
    ) -> None:
        entry = result.entry
        async with self._triggered(number, entry.trigger, previous, is_first) as held:
            begun = await begin(self._cluster, entry.verb, entry.arguments, held)
            result.begun += 1
            result.hits += Counter(begun.hits)
        if begun.end is None or (entry.seconds is None and not entry.is_held):
            return
        try:
            await self._pause(number, _FOREVER_S if entry.seconds is None else entry.seconds)
        finally:
            result.hits += Counter(await begun.end())
            if isinstance(entry.trigger, AtStep):  # a broker that was paused at the step
                await self._cluster.release(entry.trigger.step)

    @asynccontextmanager
    async def _triggered(
        self, number: int, trigger: Trigger, previous: asyncio.Event | None, is_first: bool
    ) -> AsyncIterator[int | None]:
        """Wait for the trigger. In the block, what the trigger waited for stands still. Raises _Stopped."""
        if isinstance(trigger, AtStep):
            await self._cluster.hold(trigger.step)
            self._holds[number].set()
            try:
                yield await self._until(number, self._cluster.held(trigger.step, _FOREVER_MS))
            finally:
                await self._cluster.release(trigger.step)
            return
        if isinstance(trigger, AfterRequests):
            counted = self._cluster.after(
                trigger.api, trigger.n, broker=trigger.broker, timeout_ms=_FOREVER_MS
            )
            async with await self._until(number, counted):
                yield None
            return
        if isinstance(trigger, AfterPrevious) and previous is not None:
            await self._until(number, previous.wait())
        seconds = trigger.seconds
        if isinstance(trigger, At):
            seconds -= (self._clock.now() - self._began) / 1000
        if is_first:
            await self._pause(number, max(0, seconds))
        yield None

    async def _pause(self, number: int, seconds: float) -> None:
        await self._until(number, self._clock.sleep(seconds * 1000))

    async def _until(self, number: int, work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Return the result of `work`. Raises _Stopped if the script is stopped before."""
        if self._stopping:
            if isinstance(work, Coroutine):
                work.close()
            raise _Stopped
        task = asyncio.current_task()
        assert task is not None
        self._waiting[number] = task
        try:
            return await work
        except asyncio.CancelledError:
            if self._stopping:
                raise _Stopped from None
            raise
        finally:
            del self._waiting[number]

    def _end_waits(self) -> None:
        for task in list(self._waiting.values()):
            task.cancel()


def _words(trigger: Trigger) -> str:
    """Return the trigger as words for an error."""
    if isinstance(trigger, At):
        return f"its time, {trigger.seconds:g} s after the start"
    if isinstance(trigger, AfterPrevious):
        return f"its time, {trigger.seconds:g} s after the end of the previous entry"
    if isinstance(trigger, AtStep):
        return f"a broker reached the step {trigger.step}"
    return f"{trigger.n} requests of {trigger.api} came"
