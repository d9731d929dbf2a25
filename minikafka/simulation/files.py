"""The directories and files of a simulated disk: what they hold now, and what a power loss leaves of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

Copies: TypeAlias = "dict[int, Content | Folder]"
"""`id` of a file's content or of a folder → its copy. A file with several names has one copy."""
BytesLeft: TypeAlias = Callable[[str, bytes, bytes], bytes]
"""Return what a power loss leaves of a file after its durable bytes.

The arguments are the path, the bytes that were not fsynced, and the fsynced bytes that they have replaced.
"""
NamesLeft: TypeAlias = "Callable[[str, Sequence[NameChange]], Iterable[NameChange]]"
"""Return the changes of a folder (path, changes since its last fsync) that a power loss leaves."""


class Content(bytearray):
    """The bytes of a file. The first `durable` bytes are fsynced and unchanged since.

    `former`: the fsynced bytes that followed them, and that were truncated or overwritten since.
    """

    durable = 0
    former = b""
    modified_ms = 0
    has_links = False

    def limit_durable(self, size: int) -> None:
        """Record that the bytes from this position on are about to change."""
        if size < self.durable:
            self.former = bytes(self[size : self.durable]) + self.former
            self.durable = size

    def sync(self) -> None:
        """Make all bytes durable."""
        self.durable, self.former = len(self), b""

    def copy_to(self, copies: Copies) -> Content:
        """Return a copy, which is also added to `copies`."""
        copy = Content(self)
        copy.durable, copy.former, copy.modified_ms = self.durable, self.former, self.modified_ms
        copy.has_links = self.has_links
        copies[id(self)] = copy
        return copy


class NameChange(NamedTuple):
    """One change of a folder's names: a name removed, a name added, or both at once by a rename."""

    removed: str | None
    added: str | None
    node: Content | Folder


class Folder(dict[str, "Content | Folder"]):
    """The names in a directory. `durable`: its names at its last fsync; `changes`: all changes since."""

    def __init__(self, names: dict[str, Content | Folder] | None = None) -> None:
        super().__init__(names or {})
        self.durable = dict(self)
        self.changes: list[NameChange] = []

    def change(self, removed: str | None, added: str | None, node: Content | Folder) -> None:
        """Remove one name, add another, or do both. The change is not durable until `sync`."""
        self.changes.append(NameChange(removed, added, node))
        _apply(self, self.changes[-1:])

    def sync(self) -> None:
        """Make all names durable."""
        self.durable, self.changes = dict(self), []

    def copy_to(self, copies: Copies) -> Folder:
        """Return a copy with copies of all files and directories below. They are added to `copies`."""
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


def _apply(names: dict[str, Content | Folder], changes: Iterable[NameChange]) -> None:
    for removed, added, node in changes:
        if removed is not None:
            names.pop(removed, None)
        if added is not None:
            names[added] = node


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
        folder = find(self._root, parent_of(path))
        assert isinstance(folder, Folder)
        folder[name_of(path)] = folder.durable[name_of(path)] = content

    def __delitem__(self, path: str) -> None:
        folder = find(self._root, parent_of(path))
        assert isinstance(folder, Folder)
        del folder[name_of(path)]
        folder.durable.pop(name_of(path), None)

    def __iter__(self) -> Iterator[str]:
        return (path for path, node in walk(self._root, "") if isinstance(node, Content))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def find(root: Folder, path: str) -> Content | Folder | None:
    """Return the file or directory at a path, None if the path does not exist."""
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


def parent_of(path: str) -> str:
    """Return the path of the directory that holds the path."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """Return the last part of the path."""
    return path.rpartition("/")[2]


def left_by_power_loss(root: Folder, remains: BytesLeft, names: NamesLeft) -> Folder:
    """Return a copy of a directory tree as a power loss leaves it."""
    return _left_of(root, "", remains, names, {})


def _left_of(
    folder: Folder, path: str, remains: BytesLeft, names: NamesLeft, copies: Copies
) -> Folder:
    left = dict(folder.durable)
    _apply(left, names(path, folder.changes))
    found: dict[str, Content | Folder] = {}
    for name, node in left.items():
        below = f"{path}/{name}"
        if isinstance(node, Folder):
            found[name] = _left_of(node, below, remains, names, copies)
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


def names_of_last_fsync(path: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
    """Leave no change of names: each directory has the names of its last fsync."""
    return ()


def all_names(path: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
    """Leave every change of names, as a file system that writes its own data in time."""
    return changes


def newest_name(path: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
    """Leave only the last change: a file system may write it before all others."""
    return changes[-1:]


def some_names(seed: float) -> NamesLeft:
    """Return a function that leaves any subset of the changes: a file system may write them in any order."""

    def names(path: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        rng = Random(f"{seed} {path}")
        share = rng.choice((0.2, 0.5, 0.8))
        return [change for change in changes if rng.random() < share]

    return names


NAMES: Final[Sequence[NamesLeft]] = (
    names_of_last_fsync,
    newest_name,
    *map(some_names, range(5)),
    all_names,
)
"""What different file systems may leave of the names in their directories."""


def former_bytes(path: str, data: bytes, former: bytes) -> bytes:
    """Leave each file with the content of its last fsync."""
    return former
