"""The Cleaners port without processes: cleanings run on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from minikafka.base.errors import CleaningFailed, CorruptBatch
from minikafka.base.ports import Clock, Storage
from minikafka.storage.log.cleaner.cleaning import clean
from minikafka.storage.log.cleaner.task import CleanedGroup, CleaningTask


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
