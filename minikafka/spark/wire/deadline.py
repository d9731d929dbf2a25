"""The time limit of retries: the only module of `wire` that reads the clock or sleeps.

A task on an executor is plain blocking code, so there is no Clock port.
"""

from __future__ import annotations

import time
from typing import Final

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class Deadline:
    """A time limit for repeated attempts; the pause between attempts doubles up to one second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Start the time limit again, after progress was made."""
        self._end = time.monotonic() + self._seconds  # noqa: TID251
        self._pause = _FIRST_PAUSE_S

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return max(self._end - time.monotonic(), 0.0)  # noqa: TID251

    def wait_to_retry(self) -> bool:
        """Sleep briefly and return True; return False at once if the time is up."""
        left = self.left()
        if not left:
            return False
        time.sleep(min(self._pause, left))  # noqa: TID251
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        return True


def now_ms() -> int:
    """Return milliseconds of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000
