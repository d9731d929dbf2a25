"""A time limit for retries. No other module of `wire` reads the clock or sleeps.

Tasks on executors are blocking code, so this module does not use the Clock port.
"""

from __future__ import annotations

import time
from typing import Final

from minikafka.base.retry_plan import RetryPlan

_FIRST_PAUSE_MS: Final = 50
_LONGEST_PAUSE_MS: Final = 1_000


class Deadline:
    """A time limit for repeated attempts. The pause between two attempts doubles, up to one second."""

    def __init__(self, seconds: float) -> None:
        self._plan = RetryPlan(_now(), 1_000 * seconds, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)

    def restart(self) -> None:
        """Restart the time limit, and reset the pause between attempts. Callers do this after progress."""
        self._plan.restart(_now())

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return self._plan.left_ms(_now()) / 1_000

    def wait_to_retry(self) -> bool:
        """Sleep briefly and return True. Return False immediately if the time limit has passed."""
        pause_ms = self._plan.next_pause_ms(_now())
        if pause_ms is None:
            return False
        time.sleep(pause_ms / 1_000)  # noqa: TID251
        return True


def _now() -> float:
    return 1_000 * time.monotonic()  # noqa: TID251


def now_ms() -> int:
    """Return the time of a monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return the time in Unix milliseconds."""
    return time.time_ns() // 1_000_000
