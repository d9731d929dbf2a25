"""The Storage port, implemented with the operating system's files.

Invariant: no method raises OSError; an OSError that is not part of a method's result is raised as
`StorageFailed` with the file's path. A write either completes or raises.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Buffer
from minikafka.runtime.descriptors import soft_limit
from minikafka.runtime.file_copies import unshare
from minikafka.runtime.locks import close_to_others, holder_of, open_lock, try_lock

KEPT: Final = 16
"""Number of descriptors that long-open files leave free: for checkpoints, ZooKeeper and other brokers."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_SLICES_MAX: Final = 1024
"""IOV_MAX of Linux: `pwritev` refuses more slices. More slices are joined into one before the write."""


@contextmanager
def _failing_as(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(path, error) from error


def _open(path: str, flags: int, mode: int = 0o644) -> int:
    """Open a file; refuse a symbolic link, because its target may be outside of the log directory."""
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", path) from None
        raise


def _check_room() -> None:
    """Raise OSError (EMFILE) if fewer than `KEPT` descriptors would be free after one more is opened.

    A new descriptor gets the lowest free number, so a high number means that all lower numbers are in use.
    """
    probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(probe)
    if probe >= soft_limit() - KEPT:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class DiskFile:
    """One open file descriptor."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pread(self, count: int, position: int) -> bytes:
        try:
            data = os.pread(self._fd, count, position)
            if len(data) == count or not data:
                return data
            return data + self.pread(count - len(data), position + len(data))
        except OSError as error:
            raise StorageFailed(self.path, error) from error

    def pwritev(self, slices: Sequence[Buffer], position: int) -> int:
        try:
            if len(slices) == 1:
                size = len(slices[0])
                written = os.pwrite(self._fd, slices[0], position)
            else:
                if len(slices) > _SLICES_MAX:
                    slices = (b"".join(slices),)
                size = sum(map(len, slices))
                written = os.pwritev(self._fd, slices, position)
            if written < size:
                self._write_rest(b"".join(slices), written, position)
            return size
        except OSError as error:
            raise StorageFailed(self.path, error) from error

    def _write_rest(self, data: bytes, written: int, position: int) -> None:
        """Write the bytes of `data` after the first `written` bytes. Raises OSError."""
        view = memoryview(data)
        while written < len(data):
            written += os.pwrite(self._fd, view[written:], position + written)

    def size(self) -> int:
        with _failing_as(self.path):
            return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with _failing_as(self.path):
            unshare(self._fd, size)
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Flush the file's data and size to the disk (fdatasync)."""
        with _failing_as(self.path):
            os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with _failing_as(self.path):
                os.close(fd)


class DiskStorage:
    """The Storage port backed by the local file system."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file for reading and writing; a symbolic link is refused.

        Fails, and creates no file, if fewer than `KEPT` descriptors would stay free.
        """
        with _failing_as(path):
            _check_room()
            return self._file(path, _open(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def _file(self, path: str, descriptor: int) -> DiskFile:
        return DiskFile(path, descriptor)

    def read(self, path: str) -> bytes:
        with _failing_as(path), open(path, "rb") as file:
            return file.read()

    def write_atomically(
        self, path: str, data: bytes, *, private: bool = False, sync: bool = True
    ) -> None:
        """Replace a file as a whole: write a temporary file, fsync, rename, fsync the directory."""
        temporary = path + ".tmp"
        with _failing_as(path):
            mode = 0o600 if private else 0o644
            fd = _open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            try:
                if private:
                    os.fchmod(fd, 0o600)
                written = os.write(fd, data)
                while written < len(data):
                    written += os.write(fd, data[written:])
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(temporary, path)
            if sync:
                self.sync_directory(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def names(self, directory: str) -> list[str]:
        with _failing_as(directory):
            return sorted(os.listdir(directory))

    def modified_ms(self, path: str) -> int:
        with _failing_as(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        with _failing_as(path):
            os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def make_directories(self, path: str, *, sync: bool = True) -> bool:
        """Create a directory with its parents, and fsync its parent directory; return False if it already existed.

        If the fsync fails, the new directory is removed: the next call would take its name for durable.
        """
        with _failing_as(path):
            try:
                os.mkdir(path)
            except FileNotFoundError:
                self.make_directories(os.path.dirname(path) or ".", sync=sync)
                os.mkdir(path)
            except FileExistsError:
                if os.path.isdir(path):
                    return False
                raise
            if sync:
                self._sync_new(path)
            return True

    def _sync_new(self, path: str) -> None:
        try:
            self.sync_directory(os.path.dirname(path) or ".")
        except StorageFailed:
            os.rmdir(path)
            raise

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        with _failing_as(old):
            os.rename(old, new)
        if sync:
            self.sync_directory(os.path.dirname(new) or ".")

    def link(self, path: str, other: str) -> bool:
        try:
            os.link(path, other)
        except OSError:
            return False
        return True

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFailed(path, error) from error

    def remove_tree(self, path: str) -> None:
        with _failing_as(path):
            if os.path.exists(path):
                shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        with _failing_as(path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def room(self, path: str) -> tuple[int, int]:
        with _failing_as(path):
            disk = os.statvfs(path)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def lock(self, path: str) -> DiskFile | None:
        with _failing_as(path):
            close_to_others(os.path.dirname(path))
            fd = open_lock(path)
            if not try_lock(fd):
                os.close(fd)
                return None
            return DiskFile(path, fd)

    def place(self, path: str) -> str:
        """Return the boot of this machine, and the file system and inode of the directory."""
        with _failing_as(path):
            status = os.stat(path)
            boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
        return f"{boot} {status.st_dev} {status.st_ino}"

    def lock_holder(self, path: str) -> str:
        return holder_of(path)
