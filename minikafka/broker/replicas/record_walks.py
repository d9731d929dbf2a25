"""Long checks of produced records, in steps that are spread over several turns of the event loop.

A walk (`kafka/records/walk.py`) checks the records of one batch. All walks of a broker are one job of the scheduler.
Invariants: in one turn, they together take at most `TURN_MS` plus one step. All walks of a broker together hold at
most `MEMORY_MAX` bytes of decompressed and recompressed records. Only a walk that needs more than this by itself may
hold more, while no other walk holds anything. The other walks wait, and hold only their batches.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.ports import Clock
from minikafka.broker.turns import STEPS_MAX, TURN_MS, Rotation
from minikafka.kafka.records.walk import Walk

logger = logging.getLogger(__name__)

MEMORY_MAX: Final = 48 << 20
"""Room for two snappy batches of 1 MiB, which inflate to at most 24 MB each."""
_INVALID: Final = int(ErrorCode.INVALID_RECORD)


class PendingWalk:
    """An unfinished walk. `done()` is called when the walk has ended, unless `RecordWalks.release` was called before.

    `memory`: the largest number of bytes that the walk and its verdict take.
    """

    __slots__ = ("done", "memory", "walk")

    def __init__(self, walk: Walk, done: Callable[[], None]) -> None:
        self.walk = walk
        self.done = done
        self.memory = walk.memory()


class RecordWalks:
    """The queue of unfinished walks of a broker. Those for which there is memory take steps in rotation.

    A walk keeps its memory until `release`, because its verdict can be a recompressed batch.
    """

    def __init__(self, clock: Clock, checks: Rotation) -> None:
        self._clock = clock
        self._checks = checks
        self._active: deque[PendingWalk] = deque()
        self._held: dict[PendingWalk, None] = {}
        """The walks that have memory: the active ones, and those that have ended."""
        self._used = 0
        self._waiting: dict[PendingWalk, None] = {}
        self._is_queued = False

    def add(self, pending: PendingWalk) -> None:
        """Queue a walk. Its next step is taken in a later turn of the event loop.

        If no memory is left for the walk, it frees what it uses now, and begins again when there is memory.
        """
        self._waiting[pending] = None
        self._admit()
        if pending in self._waiting:
            pending.walk.restart()

    def release(self, pending: PendingWalk) -> None:
        """Free the memory of a walk whose verdict was used or is no longer needed. Do nothing the second time."""
        if pending in self._waiting:
            del self._waiting[pending]
        elif pending in self._held:
            del self._held[pending]
            self._used -= pending.memory
            if not pending.walk.is_done:
                self._active.remove(pending)
            self._admit()

    def _admit(self) -> None:
        """Give memory to waiting walks, in the order of their arrival."""
        for pending in tuple(self._waiting):
            if self._used and self._used + pending.memory > MEMORY_MAX:
                break
            del self._waiting[pending]
            self._used += pending.memory
            self._held[pending] = None
            self._active.append(pending)
        if self._active and not self._is_queued:
            self._is_queued = True
            self._checks.ask(self._work)

    def _work(self) -> None:
        """Take steps of each active walk in rotation, until `TURN_MS` has passed or a walk has ended."""
        self._is_queued = False
        end = self._clock.now() + TURN_MS
        for _ in range(STEPS_MAX):
            if not self._active:
                return
            pending = self._active[0]
            if not _step(pending.walk):
                self._active.popleft()
                pending.done()
                break
            self._active.rotate(-1)
            if self._clock.now() >= end:
                break
        self._admit()


def _step(walk: Walk) -> bool:
    """Take one step; return False if it was the last."""
    try:
        return walk.step()
    except Exception:  # a bug in the broker, which must not block the connection for ever
        logger.exception("the records of a produce request could not be read")
        walk.end(_INVALID)
        return False
