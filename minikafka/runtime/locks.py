"""Lock files that only their owner can open, and the processes that hold them.

Whoever can open a file can lock it (flock(2)), even for reading. Invariant: no other user can open a lock file that
`open_lock` has opened, and its directory is closed to other users too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")
_KIND, _PID, _FILE = 1, 4, 5
"""Indexes of the fields of a line of /proc/locks without the mark of a waiting process, see proc(5)."""


def open_lock(path: str) -> int:
    """Open or create a lock file and return its descriptor. Its mode is then 0600.

    Raises OSError, also for a symbolic link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", path) from None
        raise
    try:
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid():
            with suppress(PermissionError):  # file systems without modes
                os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def close_to_others(directory: str | Path) -> None:
    """Set the mode of a directory to 0700, unless it belongs to another user or many users write to it (/tmp).

    Raises OSError.
    """
    status = os.stat(directory)
    is_shared = status.st_uid != os.geteuid() or bool(status.st_mode & stat.S_ISVTX)
    if not is_shared and stat.S_IMODE(status.st_mode) & 0o077:
        with suppress(PermissionError):
            os.chmod(directory, 0o700)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; return False, without waiting, if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder_of(path: str | Path) -> str:
    """Return the process that holds the lock of a file, with its command, as text; "another process" if unknown."""
    with suppress(OSError):
        status = os.stat(path)
        for pid in (*_lockers(status), *_openers(status)):
            if (command := _command(pid)) is not None:
                return f"process {pid} ({command})" if command else f"process {pid}"
    return "another process"


def _lockers(status: os.stat_result) -> Iterator[int]:
    """Yield the pids that have locked a file. A pid may be that of a process that has passed on its descriptor."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    for line in _LOCKS.read_text().splitlines():
        fields = [field for field in line.split() if field != "->"]
        if fields[_KIND] != "FLOCK" or int(fields[_PID]) <= 0:
            continue
        place, _, inode = fields[_FILE].rpartition(":")
        if place == device and int(inode) == status.st_ino:
            yield int(fields[_PID])


def _openers(status: os.stat_result) -> Iterator[int]:
    """Yield the pids of other processes that have a file open, as far as this user may see their descriptors."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                for link in (entry / "fd").iterdir():
                    if os.path.samestat(link.stat(), status):
                        yield int(entry.name)
                        break


def _command(pid: int) -> str | None:
    """Return the command line of a process, None if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:100]
    except OSError:
        return None
