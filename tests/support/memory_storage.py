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
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Buffer

Copies: TypeAlias = "dict[int, Content | Folder]"
"""`id` of a file's content or of a folder → its copy. A file with several names has one copy."""
Remains: TypeAlias = Callable[[str, bytes, bytes], bytes]
"""Return what a power loss leaves of a file after its durable bytes.

The arguments are the path, the bytes that were not fsynced, and the fsynced bytes that they have replaced.
"""
Names: TypeAlias = "Callable[[str, Sequence[Change]], Iterable[Change]]"
"""Return the changes of a folder (path, changes since its last fsync) that a power loss leaves."""


class Content(bytearray):
    """The bytes of a file. The first `durable` bytes are fsynced and unchanged since.

    `former`: the fsynced bytes that followed them, and that were truncated or overwritten since.
    """

    durable = 0
    former = b""
    modified_ms = 0

    def limit_durable(self, size: int) -> None:
        """Record that the bytes from this position on are about to change."""
        if size < self.durable:
            self.former = bytes(self[size : self.durable]) + self.former
            self.durable = size

    def sync(self) -> None:
        self.durable, self.former = len(self), b""

    def copy_to(self, copies: Copies) -> Content:
        copy = Content(self)
        copy.durable, copy.former, copy.modified_ms = self.durable, self.former, self.modified_ms
        copies[id(self)] = copy
        return copy


class Change(NamedTuple):
    """One change of a folder's names: a name removed, a name added, or both at once by a rename."""

    removed: str | None
    added: str | None
    node: Content | Folder


class Folder(dict[str, "Content | Folder"]):
    """The names in a directory. `durable`: its names at its last fsync; `changes`: all changes since."""

    def __init__(self, names: dict[str, Content | Folder] | None = None) -> None:
        super().__init__(names or {})
        self.durable = dict(self)
        self.changes: list[Change] = []

    def change(self, removed: str | None, added: str | None, node: Content | Folder) -> None:
        self.changes.append(Change(removed, added, node))
        _apply(self, self.changes[-1:])

    def sync(self) -> None:
        self.durable, self.changes = dict(self), []

    def copy_to(self, copies: Copies) -> Folder:
        copy = copies[id(self)] = Folder()
        copy.update({name: _copied(node, copies) for name, node in self.items()})
        copy.durable = {name: _copied(node, copies) for name, node in self.durable.items()}
        copy.changes = [
            change._replace(node=_copied(change.node, copies)) for change in self.changes
        ]
        return copy


def _copied(node: Content | Folder, copies: Copies) -> Content | Folder:
    found = copies.get(id(node))
    return node.copy_to(copies) if found is None else found


def _apply(names: dict[str, Content | Folder], changes: Iterable[Change]) -> None:
    for removed, added, node in changes:
        if removed is not None:
            names.pop(removed, None)
        if added is not None:
            names[added] = node


def names_of_last_fsync(path: str, changes: Sequence[Change]) -> Iterable[Change]:
    """Leave no change of names: each directory has the names of its last fsync."""
    return ()


def all_names(path: str, changes: Sequence[Change]) -> Iterable[Change]:
    """Leave every change of names, as a file system that writes its own data in time."""
    return changes


def newest_name(path: str, changes: Sequence[Change]) -> Iterable[Change]:
    """Leave only the last change: a file system may write it before all others."""
    return changes[-1:]


def some_names(seed: float) -> Names:
    """Return a function that leaves any subset of the changes: a file system may write them in any order."""

    def names(path: str, changes: Sequence[Change]) -> Iterable[Change]:
        rng = Random(f"{seed} {path}")
        share = rng.choice((0.2, 0.5, 0.8))
        return [change for change in changes if rng.random() < share]

    return names


NAMES: Final[Sequence[Names]] = (
    names_of_last_fsync,
    newest_name,
    *map(some_names, range(5)),
    all_names,
)
"""What different file systems may leave of the names in their directories."""


def former_bytes(path: str, data: bytes, former: bytes) -> bytes:
    """Leave each file with the content of its last fsync."""
    return former


def _failed(path: str, number: int) -> StorageFailed:
    return StorageFailed(path, OSError(number, os.strerror(number)))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


class Files(MutableMapping[str, bytearray]):
    """The content of each file by path, for tests that damage files. A change through it is durable."""

    def __init__(self, root: Folder) -> None:
        self._root = root

    def __getitem__(self, path: str) -> Content:
        node = find(self._root, path)
        if not isinstance(node, Content):
            raise KeyError(path)
        return node

    def __setitem__(self, path: str, data: bytearray) -> None:
        content = Content(data)
        content.sync()
        folder = find(self._root, _parent(path))
        assert isinstance(folder, Folder)
        folder[_name(path)] = folder.durable[_name(path)] = content

    def __delitem__(self, path: str) -> None:
        folder = find(self._root, _parent(path))
        assert isinstance(folder, Folder)
        del folder[_name(path)]
        folder.durable.pop(_name(path), None)

    def __iter__(self) -> Iterator[str]:
        return (path for path, node in walk(self._root, "") if isinstance(node, Content))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def find(root: Folder, path: str) -> Content | Folder | None:
    """Return the file or directory at a path, None if there is none."""
    node: Content | Folder | None = root
    for name in path.split("/"):
        if name:
            node = node.get(name) if isinstance(node, Folder) else None
    return node


def walk(folder: Folder, path: str) -> Iterator[tuple[str, Content | Folder]]:
    """Yield each file and directory below a directory, with its path."""
    for name, node in folder.items():
        yield f"{path}/{name}", node
        if isinstance(node, Folder):
            yield from walk(node, f"{path}/{name}")


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

    def power_cut(self, remains: Remains, names: Names = names_of_last_fsync) -> MemoryStorage:
        """Return the storage as a power loss leaves it.

        The fsynced bytes of each file stay, and `remains` decides about the bytes after them. Each directory has the
        names of its last fsync, and the later changes of names that `names` leaves.
        """
        return self._with(self._left_of(self.root, "", remains, names, {}))

    def _left_of(
        self, folder: Folder, path: str, remains: Remains, names: Names, copies: Copies
    ) -> Folder:
        left = dict(folder.durable)
        _apply(left, names(path, folder.changes))
        found: dict[str, Content | Folder] = {}
        for name, node in left.items():
            below = f"{path}/{name}"
            if isinstance(node, Folder):
                found[name] = self._left_of(node, below, remains, names, copies)
            elif id(node) in copies:
                found[name] = copies[id(node)]
            else:
                copy = node.copy_to(copies)
                if copy.durable < len(copy) or copy.former:
                    data = bytes(copy[copy.durable :])
                    copy[copy.durable :] = remains(below, data, copy.former)
                copy.sync()
                found[name] = copy
        return Folder(found)

    # ---- the port

    def _folder_of(self, path: str) -> Folder:
        folder = find(self.root, _parent(path))
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
        if not create or self._folder_of(path).get(_name(path)) is not None:
            return MemoryFile(self, path, self._content(path))
        self.check(path)
        return MemoryFile(self, path, self._create(path))

    def _create(self, path: str) -> Content:
        content = Content()
        self._folder_of(path).change(None, _name(path), content)
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
        folder.change(_name(path) + ".tmp", _name(path), content)
        (self.private.add if private else self.private.discard)(path)
        if sync:
            self.before_open(_parent(path))
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
        if not self.is_directory(_parent(path)):
            self.make_directories(_parent(path), sync=sync)
        folder = self._folder_of(path)
        folder.change(None, _name(path), Folder())
        if sync:
            self.before_open(_parent(path))
            folder.sync()
        return True

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        self.check(old)
        node = find(self.root, old)
        if node is None:
            raise _failed(old, errno.ENOENT)
        if _parent(old) == _parent(new):
            self._folder_of(old).change(_name(old), _name(new), node)
        else:
            self._folder_of(new).change(None, _name(new), node)
            self._folder_of(old).change(_name(old), None, node)
        if sync:
            self.before_open(_parent(new))
            self._folder_of(new).sync()

    def link(self, path: str, other: str) -> bool:
        node = find(self.root, path)
        if not isinstance(node, Content) or self.exists(other) or self.failure_at(other):
            return False
        self._folder_of(other).change(None, _name(other), node)
        return True

    def remove(self, path: str) -> None:
        self.check(path)
        node = find(self.root, path)
        if isinstance(node, Content):
            self._folder_of(path).change(_name(path), None, node)

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
            self._folder_of(path).change(_name(path), None, node)

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

    def lock_holder(self, path: str) -> str:
        return "another process"

    def lock(self, path: str) -> MemoryFile | None:
        if path in self.locks:
            return None
        self.locks[path] = self.open(path, create=True)
        return self.locks[path]
