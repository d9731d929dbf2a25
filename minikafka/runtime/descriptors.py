"""The file descriptors of this process: their limit, and the number that is open."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

_OPEN: Final = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


class ProcessDescriptors:
    """The Descriptors port, implemented with RLIMIT_NOFILE and the directory of open descriptors."""

    def __init__(self) -> None:
        self._used = 0

    def limit(self) -> int:
        """Return the current limit, which `prlimit` may change while the process runs."""
        return soft_limit()

    def used(self) -> int:
        """Return the number of open descriptors. If the directory cannot be listed, no descriptor is free."""
        try:
            self._used = len(os.listdir(_OPEN)) - 1  # without the descriptor of the listing itself
        except OSError:
            return max(self._used, soft_limit())
        return self._used


def close_all_but(kept: Collection[int]) -> None:
    """Close all open descriptors but these, in a process that shares none of them with a running thread."""
    for name in os.listdir(_OPEN):
        if int(name) not in kept:
            with suppress(OSError):  # the descriptor of the listing is closed already
                os.close(int(name))


def soft_limit() -> int:
    """Return the maximum number of open descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_soft_limit() -> None:
    """Raise the limit to the hard limit, as Java does. Shells often set a low soft limit such as 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def process_that_uses(directory: str) -> int | None:
    """Return the pid of another process that has a file in the directory open; None if no such process is found.

    Only root finds the processes of other users. On a system without /proc, no process is found.
    """
    prefix = os.path.realpath(directory) + os.sep
    own = os.getpid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if (
            name.isdigit()
            and int(name) != own
            and any(f.startswith(prefix) for f in open_files(name))
        ):
            return int(name)
    return None


def open_files(pid: str) -> Iterator[str]:
    """Yield the paths of the files that a process has open, of a removed file with ` (deleted)` at the end.

    The process may end meanwhile. On a system without /proc, and for a process of another user, nothing is yielded.
    """
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")
