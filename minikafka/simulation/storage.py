"""The Storage port in memory, with faults on demand. It passes the same conformance suite as the disk storage.

After `fail(path, number)`, every change at or below the path raises StorageFailed with the errno `number`, and a write
leaves half of its bytes, as on a full disk. `clone()` returns the storage as a killed process leaves it.
`power_cut()` returns it as a power loss leaves it: without an fsync, neither a file's bytes nor the name of a file or
directory is durable, and a removed name may be back. `before_change` is called with the path before each change, and
may raise StorageFailed. An atomic write consists of several changes, as on a disk. `before_open` is called with the
path whenever a disk would need a file descriptor.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Buffer
from minikafka.simulation.files import (
    BytesLeft,
    Content,
    Files,
    Folder,
    NamesLeft,
    find,
    left_by_power_loss,
    name_of,
    names_of_last_fsync,
    parent_of,
)


class MemoryFile:
    """An open file. Like a file descriptor, it stays usable after its path is renamed or removed."""

    def __init__(self, storage: MemoryStorage, path: str, content: Content) -> None:
        self.path = path
        self._storage = storage
        self._content: Content | None = content

    def pread(self, count: int, position: int) -> bytes:
        return bytes(self._open()[position : position + count])

    def pwritev(self, slices: Sequence[Buffer], position: int) -> int:
        content = self._open()
        data = b"".join(slices)
        broken = self._storage.failure_at(self.path)
        if broken:
            data = data[: len(data) // 2]
        content.modified_ms = self._storage.wall_ms()
        content.limit_durable(position)
        if position > len(content):
            content += bytes(position - len(content))
        content[position : position + len(data)] = data
        if broken:
            raise _failed(self.path, broken)
        return len(data)

    def size(self) -> int:
        return len(self._open())

    def truncate(self, size: int) -> None:
        content = self._open()
        self._storage.check(self.path)
        content = self._content = self._storage.unshared(self.path, content)
        content.limit_durable(size)
        del content[size:]
        content += bytes(size - len(content))

    def sync(self) -> None:
        content = self._open()
        self._storage.check(self.path)
        self._storage.synced.append(self.path)
        content.sync()

    def close(self) -> None:
        self._content = None
        if self._storage.locks.get(self.path) is self:
            del self._storage.locks[self.path]

    def _open(self) -> Content:
        if self._content is None:
            raise _failed(self.path, errno.EBADF)
        return self._content


class MemoryStorage:
    """Files and directories in memory. `synced`: the paths of all fsyncs, in order."""

    def __init__(self) -> None:
        self.root = Folder()
        self.private: set[str] = set()
        self.locks: dict[str, MemoryFile] = {}
        self.synced: list[str] = []
        self.wall_ms: Callable[[], int] = lambda: 0
        self.before_change: Callable[[str], None] = lambda path: None
        self.before_open: Callable[[str], None] = lambda path: None
        self._failures: dict[str, int] = {}

    # ---- for tests

    @property
    def files(self) -> Files:
        """The content of each file by path. A change through this mapping is durable."""
        return Files(self.root)

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
        """Return a copy without open files, locks and failures, in which the same bytes and names are durable."""
        return self._with(self.root.copy_to({}))

    def _with(self, root: Folder) -> MemoryStorage:
        other = MemoryStorage()
        other.root = root
        other.private = set(self.private)
        other.wall_ms = self.wall_ms
        return other

    def power_cut(
        self, remains: BytesLeft, names: NamesLeft = names_of_last_fsync
    ) -> MemoryStorage:
        """Return the storage as a power loss leaves it.

        The fsynced bytes of each file stay, and `remains` decides about the bytes after them. Each directory has the
        names of its last fsync, and the later changes of names that `names` leaves.
        """
        return self._with(left_by_power_loss(self.root, remains, names))

    # ---- the port

    def _folder_of(self, path: str) -> Folder:
        folder = find(self.root, parent_of(path))
        if not isinstance(folder, Folder):
            raise _failed(path, errno.ENOENT)
        return folder

    def _content(self, path: str) -> Content:
        content = find(self.root, path)
        if not isinstance(content, Content):
            raise _failed(path, errno.ENOENT)
        return content

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.before_open(path)
        if not create or self._folder_of(path).get(name_of(path)) is not None:
            return MemoryFile(self, path, self._content(path))
        self.check(path)
        return MemoryFile(self, path, self._create(path))

    def _create(self, path: str) -> Content:
        content = Content()
        self._folder_of(path).change(None, name_of(path), content)
        return content

    def read(self, path: str) -> bytes:
        self.before_open(path)
        return bytes(self._content(path))

    def write_atomically(
        self, path: str, data: bytes, *, private: bool = False, sync: bool = True
    ) -> None:
        self.before_open(path)
        self.check(path)
        content = self._create(path + ".tmp")
        self.check(path)
        content += data
        if sync:
            self.check(path)
            content.sync()
        self.check(path)
        folder = self._folder_of(path)
        folder.change(name_of(path) + ".tmp", name_of(path), content)
        (self.private.add if private else self.private.discard)(path)
        if sync:
            self.before_open(parent_of(path))
            self.check(path)
            self.synced.append(path)
            folder.sync()

    def exists(self, path: str) -> bool:
        return find(self.root, path) is not None

    def names(self, directory: str) -> list[str]:
        self.before_open(directory)
        folder = find(self.root, directory)
        if not isinstance(folder, Folder):
            raise _failed(directory, errno.ENOENT)
        return sorted(folder)

    def modified_ms(self, path: str) -> int:
        return self._content(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self.check(path)
        self._content(path).modified_ms = time_ms

    def is_directory(self, path: str) -> bool:
        return isinstance(find(self.root, path), Folder)

    def is_link(self, path: str) -> bool:
        return False

    def make_directories(self, path: str, *, sync: bool = True) -> bool:
        if self.is_directory(path):
            return False
        self.check(path)
        if not self.is_directory(parent_of(path)):
            self.make_directories(parent_of(path), sync=sync)
        folder = self._folder_of(path)
        folder.change(None, name_of(path), Folder())
        if sync:
            self.before_open(parent_of(path))
            folder.sync()
        return True

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        self.check(old)
        node = find(self.root, old)
        if node is None:
            raise _failed(old, errno.ENOENT)
        if parent_of(old) == parent_of(new):
            self._folder_of(old).change(name_of(old), name_of(new), node)
        else:
            self._folder_of(new).change(None, name_of(new), node)
            self._folder_of(old).change(name_of(old), None, node)
        if sync:
            self.before_open(parent_of(new))
            self._folder_of(new).sync()

    def link(self, path: str, other: str) -> bool:
        node = find(self.root, path)
        if not isinstance(node, Content) or self.exists(other) or self.failure_at(other):
            return False
        self._folder_of(other).change(None, name_of(other), node)
        node.has_links = True
        return True

    def unshared(self, path: str, content: Content) -> Content:
        """Return the content of the file for a change in place: a copy if the file has other names."""
        if not content.has_links:
            return content
        copy = content.copy_to({})
        copy.has_links = False
        self._folder_of(path).change(None, name_of(path), copy)
        return copy

    def remove(self, path: str) -> None:
        self.check(path)
        node = find(self.root, path)
        if isinstance(node, Content):
            self._folder_of(path).change(name_of(path), None, node)

    def remove_tree(self, path: str) -> None:
        self.before_open(path)
        self.check(path)
        node = find(self.root, path)
        if isinstance(node, Folder):
            for name, below in list(node.items()):
                if isinstance(below, Folder):
                    self.remove_tree(f"{path}/{name}")
                else:
                    node.change(name, None, below)
            self._folder_of(path).change(name_of(path), None, node)

    def sync_directory(self, path: str) -> None:
        self.before_open(path)
        self.check(path)
        folder = find(self.root, path)
        if not isinstance(folder, Folder):
            raise _failed(path, errno.ENOENT)
        self.synced.append(path)
        folder.sync()

    def room(self, path: str) -> tuple[int, int]:
        self.check(path)
        return 1 << 40, 1 << 39

    def place(self, path: str) -> str:
        return path

    def lock_holder(self, path: str) -> str:
        return "another process"

    def lock(self, path: str) -> MemoryFile | None:
        if path in self.locks:
            return None
        self.locks[path] = self.open(path, create=True)
        return self.locks[path]


def _failed(path: str, number: int) -> StorageFailed:
    return StorageFailed(path, OSError(number, os.strerror(number)))
