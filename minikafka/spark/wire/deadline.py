"""A time limit for retries. No other module of `wire` reads the clock or sleeps.

Tasks on executors are blocking code, so this module does not use the Clock port.
"""

from __future__ import annotations

import time
from typing import Final

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class Deadline:
    """A time limit for repeated attempts. The pause between two attempts doubles, up to one second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Restart the time limit, and reset the pause between attempts. Callers do this after progress."""
        self._end = time.monotonic() + self._seconds  # noqa: TID251
        self._pause = _FIRST_PAUSE_S

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return max(self._end - time.monotonic(), 0.0)  # noqa: TID251

    def wait_to_retry(self) -> bool:
        """Sleep briefly and return True. Return False immediately if the time limit has passed."""
        left = self.left()
        if not left:
            return False
        time.sleep(min(self._pause, left))  # noqa: TID251
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        return True


def now_ms() -> int:
    """Return the time of a monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000
