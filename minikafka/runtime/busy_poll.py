"""Busy polling: under dense traffic the event loop checks its sockets again instead of sleeping.

Waking a sleeping processor costs as much as a broker's whole work for one record. An acks=all produce request
wakes four processes one after the other (docs/performance.md has the figures). Busy polling uses only idle
processor time: the process yields the processor before each check of the sockets. A long yield means that
another process needed the processor, and stops the polling for the next `HELD_READS` reads.

Three additions were measured and removed. A polling follower that avoids the leader's processor: a quarter more
requests per second with one in flight, but a system call at each change of role and rules for each thread. A growing
wait instead of `HELD_READS`: an eighth more with 64 in flight, but four constants. Brokers at equal addresses: no gain,
and known addresses help an attacker.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Final

PAUSE_NS: Final = 500_000
"""Polling ends if no read occurs for this time, or if a yield to another process takes longer than this."""
DENSE_READS: Final = 8
"""Number of reads without a pause before polling begins. A steady 1,000 records/s is below this number."""
HELD_READS: Final = 1_024
"""Number of reads without polling after a long yield, so that polling seldom delays other processes."""


OWN_GROUP: Final = Path("/proc/self/cgroup")
GROUPS: Final = Path("/sys/fs/cgroup")


class BusyPoll:
    """The busy polling of one event loop. `now` returns nanoseconds; `yield_processor` yields the processor."""

    __slots__ = ("_is_polling", "_last_read", "_loop", "_now", "_reads", "_yield_processor")

    def __init__(
        self,
        loop: AbstractEventLoop,
        now: Callable[[], int] = perf_counter_ns,
        yield_processor: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._loop = loop
        self._now = now
        self._yield_processor = yield_processor
        self._last_read = 0
        self._reads = 0
        self._is_polling = False

    def after_read(self) -> None:
        """Count a read of a socket. Start polling after more than `DENSE_READS` reads without a pause."""
        now = self._now()
        if now - self._last_read > PAUSE_NS:
            self._reads = min(self._reads, 0)
        self._last_read = now
        self._reads += 1
        if self._reads > DENSE_READS and not self._is_polling:
            self._is_polling = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Yield the processor, then make the event loop check its sockets again without sleeping."""
        before = self._now()
        self._is_polling = before - self._last_read <= PAUSE_NS
        if self._is_polling:
            self._yield_processor()
            if self._now() - before > PAUSE_NS:
                self._is_polling = False
                self._reads = -HELD_READS
            else:
                self._loop.call_soon(self._turn)


def has_quota(membership: Path = OWN_GROUP, mount: Path = GROUPS) -> bool:
    """Return True if this process's control group, or one of its ancestors, has a CPU quota (cgroups(7)).

    Busy polling would use up the processor time that the broker needs: the kernel stops a container that has used its
    quota for the rest of each period of 100 ms.
    Return False on a system without control groups.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers and any(limit != "max" for limit in _limits(mount, path, "cpu.max")):
            return True
        if "cpu" in controllers.split(",") and any(
            int(limit) > 0 for limit in _limits(mount / controllers, path, "cpu.cfs_quota_us")
        ):
            return True
    return False


def _limits(mount: Path, path: str, name: str) -> Iterator[str]:
    """Yield the first word of each file `name` in the control group's directory and in its parents, up to `mount`.

    `path`: the path of the control group below `mount`. Directories without the file are skipped. In a container,
    `mount` may already be the group's directory, while `path` is a path on the host that does not exist here.
    """
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if folder == mount.parent:
            return
        try:
            yield (folder / name).read_text().split()[0]
        except (OSError, IndexError):
            continue
