"""Which processors the calling thread may run on (sched_setaffinity(2)), where the system has that call."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress


class Affinity:
    """Of one thread, the one that calls. Invariant: what was allowed from outside is the limit.

    A system that refuses (a container may) changes nothing.
    """

    def __init__(self) -> None:
        self._given_up: int | None = None
        self._kept: set[int] = set()

    def stand_aside(self) -> None:
        """Leave the last of the allowed processors, unless it is the only one."""
        if sys.platform == "linux":
            allowed = os.sched_getaffinity(0)
            if self._given_up is None and len(allowed) > 1:
                last = max(allowed)
                with suppress(OSError):
                    os.sched_setaffinity(0, allowed - {last})
                    self._given_up, self._kept = last, allowed - {last}

    def come_back(self) -> None:
        """Run there too again, unless somebody else has chosen other processors since."""
        if sys.platform == "linux" and self._given_up is not None:
            with suppress(OSError):
                if os.sched_getaffinity(0) == self._kept:
                    os.sched_setaffinity(0, self._kept | {self._given_up})
            self._given_up = None


def threads_everywhere() -> ThreadPoolExecutor:
    """A pool whose threads may run wherever the caller may now.

    Without it a thread that is begun while the loop's own stands aside would inherit that for its whole life.
    """
    if sys.platform != "linux":
        return ThreadPoolExecutor()
    allowed = os.sched_getaffinity(0)

    def spread() -> None:
        with suppress(OSError):
            os.sched_setaffinity(0, allowed)

    return ThreadPoolExecutor(initializer=spread)
