"""How long to go on trying: the only place of this package that knows the time or sleeps.

A task on an executor is plain blocking code, so there is no Clock port to take the time from.
"""

from __future__ import annotations

import time
from typing import Final

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class Deadline:
    """A span of time in which attempts are repeated; the pause between them doubles up to a second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """There was progress: the whole span lies ahead again."""
        self._end = time.monotonic() + self._seconds  # noqa: TID251
        self._pause = _FIRST_PAUSE_S

    def left(self) -> float:
        """Seconds until the end, never below 0."""
        return max(self._end - time.monotonic(), 0.0)  # noqa: TID251

    def wait_to_retry(self) -> bool:
        """Sleep a little; False, at once, when the time is up."""
        left = self.left()
        if not left:
            return False
        time.sleep(min(self._pause, left))  # noqa: TID251
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        return True
