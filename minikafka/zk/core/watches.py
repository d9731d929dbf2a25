"""Watches: which connections are told about changes of which nodes.

There are two tables. The data table has the watches of exists and getData, the child table those of getChildren;
a persistent watch is in both. A recursive watch is in the data table, and is found by walking up the path.
Invariant: `by_path` and `by_connection` name the same watches.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from minikafka.zk.core.paths import ROOT, parent_of
from minikafka.zk.messages.jute import Identity

ONE_SHOT: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4
ANY: Final = ONE_SHOT | PERSISTENT | RECURSIVE


class Watcher(Protocol):
    """A connection that watches nodes."""

    @property
    def identities(self) -> Collection[Identity]:
        """Who the connection is, for access control."""

    def on_event(self, change: int, path: str, zxid: int) -> None:
        """Receive an event. `change`: a constant of `codes`. `zxid`: of the change, -1 if unknown."""


class WatchTable:
    """The watches of one table. A mode is a set of the bits ONE_SHOT, PERSISTENT and RECURSIVE.

    A client may watch the null path, which never changes [measured].
    """

    def __init__(self) -> None:
        self.by_path: dict[str | None, dict[Watcher, int]] = {}
        self.by_connection: dict[Watcher, set[str | None]] = {}
        self._recursive = 0
        """Number of recursive watches: without them, no event walks up its path."""

    def add(self, path: str | None, connection: Watcher, mode: int) -> None:
        """Add a watch; a second one of the same mode has no effect."""
        modes = self.by_path.setdefault(path, {})
        before = modes.get(connection, 0)
        modes[connection] = before | mode
        self.by_connection.setdefault(connection, set()).add(path)
        if mode & ~before & RECURSIVE:
            self._recursive += 1

    def has(self, path: str | None, connection: Watcher, mode: int) -> bool:
        """Return True if the connection watches this path in one of the modes."""
        modes = self.by_path.get(path)
        return modes is not None and bool(modes.get(connection, 0) & mode)

    def remove(self, path: str | None, connection: Watcher, mode: int) -> bool:
        """Remove the watches of these modes; return True if there was one."""
        modes = self.by_path.get(path)
        before = modes.get(connection, 0) if modes else 0
        if modes is None or not before & mode:
            return False
        if before & mode & RECURSIVE:
            self._recursive -= 1
        if before & ~mode:
            modes[connection] = before & ~mode
            return True
        del modes[connection]
        if not modes:
            del self.by_path[path]
        own = self.by_connection[connection]
        own.discard(path)
        if not own:
            del self.by_connection[connection]
        return True

    def drop(self, connection: Watcher) -> None:
        """Remove all watches of a connection that has ended."""
        for path in tuple(self.by_connection.get(connection, ())):
            self.remove(path, connection, ANY)

    def fire(self, path: str) -> dict[Watcher, None]:
        """Return the connections to tell about a change of the path, and remove their one-shot watches."""
        modes = self.by_path.get(path)
        found = dict.fromkeys(modes) if modes else {}
        for connection in found:
            self.remove(path, connection, ONE_SHOT)
        if self._recursive:
            self._add_recursive(path, found)
        return found

    def _add_recursive(self, path: str, found: dict[Watcher, None]) -> None:
        while path != ROOT:
            path = parent_of(path)
            for connection, mode in self.by_path.get(path, {}).items():
                if mode & RECURSIVE:
                    found[connection] = None

    def __len__(self) -> int:
        """Return the number of pairs of path and connection."""
        return sum(map(len, self.by_path.values()))
