"""The checks of the records that one connection produces: which are done at once, and which in later turns.

Invariant: of the batches of a connection, at most one keeps decompressed or recompressed records between two turns of
the event loop, and `RecordWalks` counts its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.ports import Clock
from minikafka.broker.turns.record_walks import PendingWalk, RecordWalks
from minikafka.record.walk import AT_ONCE_BYTES, STEPS_AT_ONCE, RecordRules, Walk, judge

_WALKED_MAX: Final = 256 << 10
"""When this many bytes of records were walked (checked) in a tick, further records are walked in steps. A receive
buffer holds no more bytes than this, so usual batches without compression do not reach the limit."""
_WALK_MS: Final = 3
"""When a tick has taken this long (ms), further records are walked in steps in later turns."""
_TIMED_BYTES: Final = 8 << 10
"""The clock is read to apply `_WALK_MS` only after the walk over a batch of more bytes than this."""


class BatchChecks:
    """The checks of one connection. `resume()` is called when a check that `hold` was called for has ended."""

    __slots__ = ("_clock", "_held", "_resume", "_verdicts", "_walks", "walked")

    def __init__(self, walks: RecordWalks, clock: Clock, resume: Callable[[], None]) -> None:
        self._walks = walks
        self._clock = clock
        self._resume = resume
        self._verdicts: dict[int, int | Walk] = {}
        """Position of a batch in the buffer -> the error code of its records, or the walk that checks them."""
        self._held: tuple[int, PendingWalk] | None = None
        """Position of a batch, and the walk that later turns take the steps of."""
        self.walked = 0
        """Number of bytes of records that were walked in this tick."""

    def verdict(
        self, rules: RecordRules, view: memoryview, start: int, end: int, now: int, wall_ms: int
    ) -> int | Walk:
        """Return the error code of a batch's records (0: valid), or the `Walk` that checks the records in steps."""
        known = self._verdicts.pop(start, None) if self._verdicts else None
        if known is not None:
            return known
        verdict = judge(view, start, end, rules, _WALKED_MAX - self.walked, wall_ms)
        if isinstance(verdict, int):
            self._count(end - start, now)
        elif self.walked < _WALKED_MAX and end - start <= AT_ONCE_BYTES:
            for _ in range(STEPS_AT_ONCE):
                if not verdict.step():
                    break
            self._count(verdict.inflated, now)
        return verdict

    def _count(self, size: int, now: int) -> None:
        self.walked += size
        if size > _TIMED_BYTES and self._clock.now() - now >= _WALK_MS:
            self.walked = _WALKED_MAX

    def keep(self, start: int, verdict: int | Walk) -> None:
        """Remember the outcome for the batch at this position until `taken` or `verdict` returns it."""
        self._verdicts[start] = verdict

    def taken(self, start: int) -> int | Walk:
        """Return the remembered outcome for the batch at this position; 0 if there is none."""
        return self._verdicts.pop(start, 0)

    def hold(self, start: int, walk: Walk) -> None:
        """Let later turns of the event loop finish this check, unless they do already."""
        self._verdicts[start] = walk
        if self._held is not None and self._held[0] != start:
            self.release(self._held[0])
        if self._held is None:
            pending = PendingWalk(walk, self._resume)
            self._held = start, pending
            self._walks.add(pending)

    def release(self, start: int) -> None:
        """Free the memory of the check of the batch at this position, if `hold` was called for it."""
        if self._held is not None and self._held[0] == start:
            self._walks.release(self._held[1])
            self._held = None

    def keep_valid(self) -> None:
        """Forget the remembered outcomes, except those of valid batches that need no other codec."""
        self._verdicts = {start: known for start, known in self._verdicts.items() if known == 0}

    def clear(self) -> None:
        """Forget the remembered outcomes: the request was handled."""
        self._verdicts.clear()

    def end(self) -> None:
        """Drop all checks, because the connection has ended."""
        self.clear()
        if self._held is not None:
            self.release(self._held[0])
