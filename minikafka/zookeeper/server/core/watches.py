"""Watches: which clients are told about changes of which nodes.

There are two tables. The data table has the watches of exists and getData, the child table those of getChildren;
a persistent watch is in both. A recursive watch is in the data table, and is found by walking up the path.
Invariant: `by_path` and `by_client` name the same watches.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from minikafka.zookeeper.messages.jute import Identity
from minikafka.zookeeper.server.core.tree import ROOT, parent_of

ONE_SHOT: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4
ANY: Final = ONE_SHOT | PERSISTENT | RECURSIVE


class Watcher(Protocol):
    """A connected client: it requests reads and writes, and watches nodes. `session_id` 0: it has no session yet."""

    session_id: int

    @property
    def identities(self) -> Collection[Identity]:
        """Who the client is, for access control."""

    def on_event(self, change: int, path: str, zxid: int) -> None:
        """Receive an event. `change`: a constant of `codes`. `zxid`: of the change, -1 if unknown."""


class WatchTable:
    """The watches of one table. A mode is a set of the bits ONE_SHOT, PERSISTENT and RECURSIVE.

    A client may watch the null path, which never changes [measured].
    """

    def __init__(self) -> None:
        self.by_path: dict[str | None, dict[Watcher, int]] = {}
        self.by_client: dict[Watcher, set[str | None]] = {}
        self._recursive = 0
        """Number of recursive watches: without them, no event walks up its path."""

    def add(self, path: str | None, client: Watcher, mode: int) -> None:
        """Add a watch; a second one of the same mode has no effect."""
        modes = self.by_path.setdefault(path, {})
        before = modes.get(client, 0)
        modes[client] = before | mode
        self.by_client.setdefault(client, set()).add(path)
        if mode & ~before & RECURSIVE:
            self._recursive += 1

    def has(self, path: str | None, client: Watcher, mode: int) -> bool:
        """Return True if the client watches this path in one of the modes."""
        modes = self.by_path.get(path)
        return modes is not None and bool(modes.get(client, 0) & mode)

    def remove(self, path: str | None, client: Watcher, mode: int) -> bool:
        """Remove the watches of these modes; return True if there was one."""
        modes = self.by_path.get(path)
        before = modes.get(client, 0) if modes else 0
        if modes is None or not before & mode:
            return False
        if before & mode & RECURSIVE:
            self._recursive -= 1
            assert self._recursive >= 0, "more recursive watches were removed than set"
        if before & ~mode:
            modes[client] = before & ~mode
            return True
        del modes[client]
        if not modes:
            del self.by_path[path]
        own = self.by_client[client]
        own.remove(path)
        if not own:
            del self.by_client[client]
        return True

    def drop(self, client: Watcher) -> None:
        """Remove all watches of a client whose connection has ended."""
        for path in tuple(self.by_client.get(client, ())):
            self.remove(path, client, ANY)

    def fire(self, path: str) -> dict[Watcher, None]:
        """Return the clients to tell about a change of the path, and remove their one-shot watches."""
        modes = self.by_path.get(path)
        found = dict.fromkeys(modes) if modes else {}
        for client in found:
            self.remove(path, client, ONE_SHOT)
        if self._recursive:
            self._add_recursive(path, found)
        return found

    def _add_recursive(self, path: str, found: dict[Watcher, None]) -> None:
        while path != ROOT:
            path = parent_of(path)
            for client, mode in self.by_path.get(path, {}).items():
                if mode & RECURSIVE:
                    found[client] = None

    def __len__(self) -> int:
        """Return the number of pairs of path and client."""
        return sum(map(len, self.by_path.values()))
