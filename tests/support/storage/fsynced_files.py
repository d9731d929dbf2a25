"""What a power loss leaves of real files, if a file system keeps nothing that was not fsynced.

`FsyncedFiles` stands between a storage and the operating system: at each fsync it notes the content of a file, or the
names in a directory. `restore` copies what was noted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from minikafka.runtime.storage import DiskStorage


class FsyncedFiles:
    """The content of each file, and the names in each directory, at the last fsync."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._names: dict[int, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        self._held: dict[int, int] = {}
        """Inode → descriptor that keeps the inode's number from being used for another file."""
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._noting(getattr(os, name)))

    def _noting(self, fsync: Callable[[int], None]) -> Callable[[int], None]:
        def note(fd: int) -> None:
            fsync(fd)
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(fd) as entries:
                    self._names[status.st_ino] = {each.name: each.inode() for each in entries}
                for name, inode in self._names[status.st_ino].items():
                    self._hold(inode, f"/proc/self/fd/{fd}/{name}")
            else:
                self._contents[status.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
            self._hold(status.st_ino, f"/proc/self/fd/{fd}")

        return note

    def _hold(self, inode: int, path: str) -> None:
        if inode not in self._held:
            with suppress(FileNotFoundError):
                self._held[inode] = os.open(path, os.O_RDONLY)

    def restore(self, root: Path, copy: Path) -> None:
        """Write what is durable below `root` to the new directory `copy`."""
        self._restore(root.stat().st_ino, copy)

    def _restore(self, inode: int, copy: Path) -> None:
        copy.mkdir()
        for name, below in self._names.get(inode, {}).items():
            if stat.S_ISDIR(os.fstat(self._held[below]).st_mode):
                self._restore(below, copy / name)
            else:
                (copy / name).write_bytes(self._contents.get(below, b""))

    def close(self) -> None:
        for fd in self._held.values():
            os.close(fd)


class RootedStorage:
    """The disk storage, with `root` before each path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._disk = DiskStorage()

    def clone(self) -> RootedStorage:
        """Return the storage as a killed process leaves it."""
        return RootedStorage(self.root)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)

        def call(*values: Any, **options: Any) -> Any:
            return method(*map(self._below_root, values), **options)

        return call

    def _below_root(self, value: Any) -> Any:
        is_path = isinstance(value, str) and not value.startswith(str(self.root))
        return f"{self.root}{value}" if is_path else value
