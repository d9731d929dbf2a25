"""The checks of the records that one connection produces: which are done at once, and which in later turns.

Invariant: of the batches of a connection, at most one keeps decompressed or recompressed records between two turns of
the event loop, and `RecordWalks` counts its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.ports import Clock
from minikafka.broker.replicas.record_walks import PendingWalk, RecordWalks
from minikafka.kafka.records.header import LOG_APPEND_TIME
from minikafka.kafka.records.rules import RecordErrors, RecordRules
from minikafka.kafka.records.walk import AT_ONCE_BYTES, STEPS_AT_ONCE, Walk, judge

_WALKED_MAX: Final = 256 << 10
"""When this many bytes of records were walked (checked) in a tick, further records are walked in steps. A receive
buffer holds no more bytes than this, so usual batches without compression do not reach the limit."""
_WALK_MS: Final = 3
"""When a tick has taken this long (ms), further records are walked in steps in later turns."""
_TIMED_BYTES: Final = 8 << 10
"""The clock is read to apply `_WALK_MS` only after the walk over a batch of more bytes than this."""


_ATTRIBUTES_LOW: Final = 22
"""Position in a batch of the low byte of its attributes."""


class BatchChecks:
    """The checks of one connection. `resume()` is called when a check that takes several turns has ended.

    `checks_all`: check all batches, not only those of topics that need it (`minikafka.records.check.enable`).
    """

    __slots__ = ("_checks_all", "_clock", "_held", "_resume", "_walks", "errors", "walked")

    def __init__(
        self,
        walks: RecordWalks,
        clock: Clock,
        resume: Callable[[], None],
        *,
        checks_all: bool,
    ) -> None:
        self._walks = walks
        self._clock = clock
        self._resume = resume
        self._checks_all = checks_all
        self._held: tuple[int, PendingWalk] | None = None
        """Position of a batch, and the walk whose steps are taken in later turns."""
        self.errors: RecordErrors | None = None
        """The bad records of the batch that was refused last, if the refusal names records."""
        self.walked = 0
        """Number of bytes of records that were walked in this tick."""

    def check(
        self, rules: RecordRules, view: memoryview, start: int, end: int, now: int, wall_ms: int
    ) -> int | bytearray | None:
        """Return the error code of a batch's records (0: valid), or the batch with the codec of its topic.

        Return None if later turns of the event loop take the next steps. When these have ended, `resume()` is called,
        and the next call for the batch returns the result.
        """
        if self._held is not None and self._held[0] == start:
            walk = self._held[1].walk
            return self._verdict(walk) if walk.is_done else None
        if not self._checks_all and not rules.is_demanding and not _sets_append_time(view, start):
            return 0
        verdict = judge(view, start, end, rules, _WALKED_MAX - self.walked, wall_ms)
        if isinstance(verdict, int):
            self._count(end - start, now)
            return verdict
        if self.walked < _WALKED_MAX and end - start <= AT_ONCE_BYTES:
            for _ in range(STEPS_AT_ONCE):
                if not verdict.step():
                    break
            self._count(verdict.inflated, now)
            if verdict.is_done:
                return self._verdict(verdict)
        self._held = start, PendingWalk(verdict, self._resume)
        self._walks.add(self._held[1])
        return None

    def _verdict(self, walk: Walk) -> int | bytearray:
        self.errors = walk.errors
        return walk.verdict

    def _count(self, size: int, now: int) -> None:
        self.walked += size
        if size > _TIMED_BYTES and self._clock.now() - now >= _WALK_MS:
            self.walked = _WALKED_MAX

    def release(self, start: int) -> None:
        """Free the memory of the check of the batch at this position, if the check took several turns."""
        if self._held is not None and self._held[0] == start:
            self.end()

    def end(self) -> None:
        """Drop the check in progress, if there is one."""
        if self._held is not None:
            self._walks.release(self._held[1])
            self._held = None


def _sets_append_time(view: memoryview, start: int) -> bool:
    """True if the batch claims the timestamp type LogAppendTime, so that its header must be replaced or refused."""
    at = start + _ATTRIBUTES_LOW
    return at < len(view) and bool(view[at] & LOG_APPEND_TIME)
