"""Copies of files, which share their blocks where the file system can, and the end of hard links.

Invariant: a copy has the content, the mode and the time of the last change of its source, and none of its later
changes. Holes of a source stay holes. A file may get bytes at its end while its first bytes are copied.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import Final

_FICLONE: Final = 0x40049409
"""The request of ioctl_ficlone(2): the target gets the blocks of the source, and a write to either copies them."""
_CHUNK: Final = 1 << 30
_NO_CLONES: Final = (
    errno.EOPNOTSUPP,
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOTTY,
    errno.ENOSYS,
    errno.EPERM,
)
"""Errors of file systems that cannot share blocks between these files."""


def copy_file(source: str, target: str, size: int | None = None) -> int:
    """Copy a file, or its first `size` bytes, to a new path; return the number of bytes.

    Raises OSError, and then leaves no file `target`.
    """
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _copy_open(reading, target, size)
    finally:
        os.close(reading)


def _copy_open(reading: int, target: str, size: int | None) -> int:
    status = os.fstat(reading)
    wanted = status.st_size if size is None else min(size, status.st_size)
    writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _copy_content(reading, writing, wanted)
        os.fchmod(writing, status.st_mode & 0o7777)
        os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
    except BaseException:
        os.unlink(target)
        raise
    finally:
        os.close(writing)
    return wanted


def _copy_content(reading: int, writing: int, size: int) -> None:
    """Give an open, empty file the first bytes of another. Raises OSError."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
        os.ftruncate(writing, size)
    except OSError as error:
        if error.errno not in _NO_CLONES:
            raise
        _copy_data(reading, writing, size)


def _copy_data(reading: int, writing: int, size: int) -> None:
    """Copy the parts of the first bytes that are no holes."""
    os.ftruncate(writing, size)
    position = 0
    while position < size:
        try:
            position = os.lseek(reading, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # only a hole is left
                raise
            return
        end = min(os.lseek(reading, position, os.SEEK_HOLE), size)
        os.lseek(writing, position, os.SEEK_SET)
        while position < end:
            count = os.sendfile(writing, reading, position, min(end - position, _CHUNK))
            if not count:  # the source has become shorter
                return
            position += count


def unshare(descriptor: int, size: int) -> None:
    """If an open file has other names (hard links), let the descriptor and its name have a copy of its first bytes.

    The copy is durable before it gets the name, because the file was. Raises OSError.
    """
    status = os.fstat(descriptor)
    if status.st_nlink < 2:
        return
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if not os.path.samestat(os.stat(path), status):  # the name is gone: "… (deleted)"
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
    copy = f"{path}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(copy)
    _copy_open(descriptor, copy, size)
    owned = os.open(copy, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(owned)
        os.replace(copy, path)
        os.dup2(owned, descriptor, inheritable=False)
    finally:
        os.close(owned)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
