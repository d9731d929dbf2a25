"""The Storage port in memory, with faults on demand. It passes the same conformance suite as the disk storage.

After `fail(path, number)`, every change at or below the path raises StorageFailed with the errno `number`, and a write
leaves half of its bytes, as on a full disk. `clone()` returns the storage as a killed process leaves it.
`before_change` is called with the path before each change, and may raise StorageFailed. An atomic write consists of
several changes, as on a disk. `before_open` is called with the path whenever a disk would need a file descriptor.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Buffer


def _failed(path: str, number: int) -> StorageFailed:
    return StorageFailed(path, OSError(number, os.strerror(number)))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class MemoryFile:
    """An open file. Like a file descriptor, it stays usable after its path is renamed or removed."""

    def __init__(self, storage: MemoryStorage, path: str, content: bytearray) -> None:
        self.path = path
        self._storage = storage
        self._content: bytearray | None = content

    def pread(self, count: int, position: int) -> bytes:
        return bytes(self._open()[position : position + count])

    def pwritev(self, slices: Sequence[Buffer], position: int) -> int:
        content = self._open()
        data = b"".join(slices)
        broken = self._storage.failure_at(self.path)
        if broken:
            data = data[: len(data) // 2]
        self._storage.modified[self.path] = self._storage.wall_ms()
        if position > len(content):
            content += bytes(position - len(content))
        self._storage.limit_durable(content, position)
        content[position : position + len(data)] = data
        if broken:
            raise _failed(self.path, broken)
        return len(data)

    def size(self) -> int:
        return len(self._open())

    def truncate(self, size: int) -> None:
        content = self._open()
        self._storage.check(self.path)
        self._storage.limit_durable(content, size)
        del content[size:]
        content += bytes(size - len(content))

    def sync(self) -> None:
        content = self._open()
        self._storage.check(self.path)
        self._storage.synced.append(self.path)
        self._storage.durable[id(content)] = len(content)

    def close(self) -> None:
        self._content = None
        if self._storage.locks.get(self.path) is self:
            del self._storage.locks[self.path]

    def _open(self) -> bytearray:
        if self._content is None:
            raise _failed(self.path, errno.EBADF)
        return self._content


class MemoryStorage:
    """Files and directories in memory. `synced`: the paths of all fsyncs, in order."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories: set[str] = {"/"}
        self.private: set[str] = set()
        self.locks: dict[str, MemoryFile] = {}
        self.synced: list[str] = []
        self.wall_ms: Callable[[], int] = lambda: 0
        self.modified: dict[str, int] = {}
        self.durable: dict[int, int] = {}
        """`id` of a file's content → number of its first bytes that have been fsynced and not changed since."""
        self.before_change: Callable[[str], None] = lambda path: None
        self.before_open: Callable[[str], None] = lambda path: None
        self._failures: dict[str, int] = {}

    # ---- for tests

    def fail(self, path: str, number: int = errno.ENOSPC) -> None:
        """Fail every later change at or below the path, with the errno `number`."""
        self._failures[path] = number

    def heal(self) -> None:
        """Let every change succeed again."""
        self._failures.clear()

    def failure_at(self, path: str) -> int:
        """Call `before_change`; return the errno with which changes of this path fail, or 0."""
        self.before_change(path)
        below = (
            number for start, number in self._failures.items() if f"{path}/".startswith(f"{start}/")
        )
        return next(below, 0)

    def check(self, path: str) -> None:
        """Raise StorageFailed if the test has made changes of this path fail."""
        number = self.failure_at(path)
        if number:
            raise _failed(path, number)

    def clone(self) -> MemoryStorage:
        """Return a copy of the content, without open files, locks and failures."""
        other = MemoryStorage()
        other.files = {path: bytearray(content) for path, content in self.files.items()}
        other.directories = set(self.directories)
        other.private = set(self.private)
        other.wall_ms = self.wall_ms
        other.modified = dict(self.modified)
        other.durable = {id(content): len(content) for content in other.files.values()}
        return other

    def limit_durable(self, content: bytearray, size: int) -> None:
        """Record that the bytes from this position on are not durable."""
        self.durable[id(content)] = min(self.durable.get(id(content), 0), size)

    def power_cut(self, remains: Callable[[str, bytes], bytes]) -> MemoryStorage:
        """Return the storage as a power loss leaves it.

        The fsynced bytes of each file stay. `remains(path, data)` returns what the file system has after the loss in
        place of `data`, the bytes after the fsynced ones. File names, and the absence of removed files, are durable.
        """
        other = self.clone()
        for path, content in self.files.items():
            durable = self.durable.get(id(content), 0)
            if durable < len(content):
                other.files[path][durable:] = remains(path, bytes(content[durable:]))
        other.durable = {id(content): len(content) for content in other.files.values()}
        return other

    # ---- the port

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.before_open(path)
        if path not in self.files:
            if not create or _parent(path) not in self.directories:
                raise _failed(path, errno.ENOENT)
            self.check(path)
            self._create(path)
        return MemoryFile(self, path, self.files[path])

    def _create(self, path: str) -> bytearray:
        content = self.files[path] = bytearray()
        self.durable[id(content)] = 0
        return content

    def read(self, path: str) -> bytes:
        self.before_open(path)
        if path not in self.files:
            raise _failed(path, errno.ENOENT)
        return bytes(self.files[path])

    def write_atomically(
        self, path: str, data: bytes, *, private: bool = False, sync: bool = True
    ) -> None:
        self.before_open(path)
        self.check(path)
        if _parent(path) not in self.directories:
            raise _failed(path, errno.ENOENT)
        temporary = path + ".tmp"
        content = self._create(temporary)
        self.check(path)
        content += data
        if sync:
            self.check(path)
            self.durable[id(content)] = len(content)
        self.check(path)
        self.files[path] = self.files.pop(temporary)
        (self.private.add if private else self.private.discard)(path)
        if sync:
            self.before_open(_parent(path))
            self.check(path)
            self.synced.append(path)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def names(self, directory: str) -> list[str]:
        self.before_open(directory)
        if directory not in self.directories:
            raise _failed(directory, errno.ENOENT)
        every = [*self.files, *self.directories]
        return sorted(
            path[len(_parent(path)) :].lstrip("/") for path in every if self._is_in(path, directory)
        )

    @staticmethod
    def _is_in(path: str, directory: str) -> bool:
        return path != "/" and _parent(path) == directory

    def modified_ms(self, path: str) -> int:
        if path not in self.files:
            raise _failed(path, errno.ENOENT)
        return self.modified.get(path, 0)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self.check(path)
        self.modified_ms(path)
        self.modified[path] = time_ms

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def is_link(self, path: str) -> bool:
        return False

    def make_directories(self, path: str) -> bool:
        if path in self.directories:
            return False
        self.check(path)
        while path not in self.directories:
            self.directories.add(path)
            path = _parent(path)
        return True

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        self.check(old)
        if not self.exists(old):
            raise _failed(old, errno.ENOENT)
        for path in [path for path in self.files if path == old or path.startswith(f"{old}/")]:
            moved = new + path[len(old) :]
            self.files[moved] = self.files.pop(path)
            self.modified[moved] = self.modified.pop(path, 0)
        for path in [
            path for path in self.directories if path == old or path.startswith(f"{old}/")
        ]:
            self.directories.remove(path)
            self.directories.add(new + path[len(old) :])
        if sync:
            self.before_open(_parent(new))

    def link(self, path: str, other: str) -> bool:
        if path not in self.files or self.exists(other) or self.failure_at(other):
            return False
        self.files[other] = self.files[path]
        return True

    def remove(self, path: str) -> None:
        self.check(path)
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self.before_open(path)
        self.check(path)
        for below in [each for each in self.files if each.startswith(f"{path}/")]:
            del self.files[below]
        self.directories -= {each for each in self.directories if f"{each}/".startswith(f"{path}/")}

    def sync_directory(self, path: str) -> None:
        self.before_open(path)
        self.check(path)
        if path not in self.directories:
            raise _failed(path, errno.ENOENT)
        self.synced.append(path)

    def room(self, path: str) -> tuple[int, int]:
        self.check(path)
        return 1 << 40, 1 << 39

    def lock_holder(self, path: str) -> str:
        return "another process"

    def lock(self, path: str) -> MemoryFile | None:
        if path in self.locks:
            return None
        self.locks[path] = self.open(path, create=True)
        return self.locks[path]
