"""When a call is attempted again: the pauses between its attempts, and its time limit."""

from __future__ import annotations


class RetryPlan:
    """The plan of one call. Each pause is twice as long as the one before, up to `longest_pause_ms`.

    The caller tells the time (`now`, milliseconds of any one clock), and waits.
    """

    def __init__(
        self, now: float, limit_ms: float, first_pause_ms: float, longest_pause_ms: float
    ) -> None:
        self._limit_ms = limit_ms
        self._first_pause_ms = first_pause_ms
        self._longest_pause_ms = longest_pause_ms
        self.restart(now)

    def restart(self, now: float) -> None:
        """Begin the time limit and the pauses again. Callers do this after progress."""
        self._began = now
        self._pause_ms = self._first_pause_ms

    def left_ms(self, now: float) -> float:
        """Return the time until the limit, at least 0."""
        return max(self._began + self._limit_ms - now, 0)

    def next_pause_ms(self, now: float, limit_ms: float | None = None) -> float | None:
        """Return the time to wait before the next attempt; None if the time limit has passed.

        `limit_ms`: a lower time limit for this error.
        """
        left = self.left_ms(now)
        if limit_ms is not None:
            left = min(left, self._began + limit_ms - now)
        if left <= 0:
            return None
        pause_ms = min(self._pause_ms, left)
        self._pause_ms = min(2 * self._pause_ms, self._longest_pause_ms)
        return pause_ms
