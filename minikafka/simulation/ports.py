"""The small ports of a simulated broker: processor, random numbers, executor, and the cleaners of its logs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from minikafka.base.errors import CleaningFailed, CorruptBatch
from minikafka.base.ports import Clock, Storage
from minikafka.storage.log.cleaner.cleaning import clean
from minikafka.storage.log.cleaner.task import CleanedGroup, CleaningTask


async def no_text(url: str) -> str:
    """Raise OSError, because simulated brokers read no HTTP addresses."""
    raise OSError(f"{url} cannot be reached")


class IdleProcessor:
    """The Processor port when no other process waits for the processor, and work takes no time."""

    def yield_ns(self) -> int:
        return 0

    def time_ns(self) -> int:
        return 1


class SeededRng:
    """The Rng port with a seed: every run gets the same numbers."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        return self._random.sample(items, len(items))


class InlineExecutor:
    """The Executor port without threads: blocking work runs on the event loop."""

    async def run(self, function: Callable[[], Any]) -> Any:
        return function()


class MemoryCleaners:
    """Log cleaners that respect the `bytes_per_second` of each task. `tasks`: all cleaning tasks so far."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self.tasks: list[CleaningTask] = []
        self.running = 0
        self._due = 0.0
        """Earliest time (ms of the clock) at which the next step may begin within the rate."""

    async def clean(
        self, task: Mapping[str, Any], on_group: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> Mapping[str, Any]:
        given = CleaningTask.decode(task)
        self.tasks.append(given)
        steps = clean(self._storage, given)
        self.running += 1
        try:
            while True:
                step = next(steps)
                if isinstance(step, CleanedGroup):
                    await on_group(asdict(step))
                else:
                    now = self._clock.now()
                    self._due = max(self._due, now) + 1_000 * step / given.bytes_per_second
                    await self._clock.sleep(self._due - now)
        except StopIteration as end:
            return asdict(end.value)
        except CorruptBatch as error:
            raise CleaningFailed(str(error)) from error
        finally:
            self.running -= 1

    async def close(self) -> None:
        """Do nothing: there are no processes to stop."""
