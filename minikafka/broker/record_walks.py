"""Long checks of produced records, in steps that are spread over several turns of the event loop.

A walk (`record/walk.py`) checks the records of one batch. Invariants: in one turn, all walks of a broker together
take at most `TURN_MS` plus one step; then the event loop reads its sockets. At most `ACTIVE_MAX` requests have walks
in progress, because such walks hold decompressed records in memory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.ports import Clock
from minikafka.broker.cold_turns import TURN_MS
from minikafka.record.walk import Walk

logger = logging.getLogger(__name__)

STEPS_MAX: Final = 64
"""Maximum number of steps in one turn, even if the clock stands still."""
ACTIVE_MAX: Final = 2
_INVALID: Final = int(ErrorCode.INVALID_RECORD)


class PendingWalks:
    """The unfinished record checks (walks) of one Produce request. `done()` is called when all walks have ended.

    After `cancel`, `done()` is not called.
    """

    __slots__ = ("_done", "_left")

    def __init__(self, walks: Sequence[Walk], done: Callable[[], None]) -> None:
        self._left = deque(walks)
        self._done: Callable[[], None] | None = done

    def cancel(self) -> None:
        """Drop the record checks (walks), and with them the buffer that the checks read."""
        self._left.clear()
        self._done = None

    def step(self) -> bool:
        """Take one step of the record check at the head of the queue; return False if no check is left."""
        if self._left and not _step(self._left[0]):
            self._left.popleft()
        return bool(self._left)

    def finish(self) -> None:
        """Call `done`, unless `cancel` was called."""
        if self._done is not None:
            self._done()


def _step(walk: Walk) -> bool:
    try:
        return walk.step()
    except Exception:  # a bug in the broker, which must not block the connection for ever
        logger.exception("the records of a produce request could not be read")
        walk.end(_INVALID)
        return False


class RecordWalks:
    """The queue of Produce requests whose records are being checked; at most `ACTIVE_MAX` are checked concurrently."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: deque[PendingWalks] = deque()
        self._waiting: deque[PendingWalks] = deque()
        self._is_turn_due = False

    def add(self, pending: PendingWalks) -> None:
        """Queue the record checks of one request. The first check begins in a later turn of the event loop."""
        self._waiting.append(pending)
        self._schedule()

    def _schedule(self) -> None:
        while self._waiting and len(self._active) < ACTIVE_MAX:
            self._active.append(self._waiting.popleft())
        if self._active and not self._is_turn_due:
            self._is_turn_due = True
            self._clock.call_later(0, self._turn)

    def _turn(self) -> None:
        """Check some records of each active request in rotation, until `TURN_MS` has passed or a request is done."""
        self._is_turn_due = False
        end = self._clock.now() + TURN_MS
        for _ in range(STEPS_MAX):
            pending = self._active[0]
            if not pending.step():
                self._active.popleft()
                pending.finish()
                break
            self._active.rotate(-1)
            if self._clock.now() >= end:
                break
        self._schedule()
