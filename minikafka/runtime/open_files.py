"""Which process has files of a directory open, on Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress


def process_that_uses(directory: str) -> int | None:
    """Return the pid of another process that has a file in the directory open; None if none is seen.

    Processes of other users are not seen, except by root, nor are any where there is no /proc.
    """
    prefix = os.path.realpath(directory) + os.sep
    own = os.getpid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and int(name) != own and any(f.startswith(prefix) for f in _files(name)):
            return int(name)
    return None


def _files(pid: str) -> Iterator[str]:
    """Yield the paths of the files that a process has open. It may end meanwhile."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")
