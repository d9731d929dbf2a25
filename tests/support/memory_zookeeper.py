"""A ZooKeeper server in memory: node tree, transactions and watches, without network, disk or timeouts.

The client of this server is `MemoryZooKeeper`. Server and client together pass the conformance suite of the
ZooKeeper port, and `tests/conformance/zookeeper/test_lock_step.py` compares them with Apache ZooKeeper,
operation by operation. ACLs, containers, TTL nodes, quotas and persistent watches are missing: no broker uses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

from minikafka.base.errors import (
    BadArguments,
    BadVersion,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    ServerVerdict,
)
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, Stat
from minikafka.runtime.clock import SystemClock
from minikafka.zk import codec

NOBODY = 0
"""Session id of writes that a test makes directly with `put` and `delete`."""


class Node:
    """One znode. `created`: number of children ever created, used as the number in sequential names."""

    __slots__ = (
        "children",
        "created",
        "ctime",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, zxid: int, time_ms: int, owner: int = NOBODY) -> None:
        self.data = data
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time_ms
        self.owner = owner
        self.version = 0
        self.created = 0
        self.children: set[str] = set()

    def stat(self) -> Stat:
        """Return the node's Stat. As in ZooKeeper, cversion counts creations and deletions of children."""
        count = len(self.children)
        cversion = 2 * self.created - count
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            cversion,
            0,
            self.owner,
            len(self.data),
            count,
            self.pzxid,
        )


class Connection(Protocol):
    """The callbacks through which the server notifies a connected client."""

    def on_event(self, change: int, path: str) -> None:
        """Receive a watch event. `change` is a constant of the codec, such as NODE_CREATED."""

    def on_session_ended(self) -> None:
        """Called when the server has ended the session and closed the connection."""


Watchers = dict[str, dict[Connection, None]]
"""Path -> connections that watch the path, in the order of their registration."""
Written = tuple[str, Stat | None]
"""(path of the node, its Stat after a create or set, None after other operations)."""


class _Transaction:
    """A transaction in progress: its undo steps, and the changes that fire watches if it succeeds."""

    def __init__(self, zxid: int, time_ms: int, session: int) -> None:
        self.zxid = zxid
        self.time_ms = time_ms
        self.session = session
        self.undo: list[Callable[[], None]] = []
        self.changes: list[tuple[int, str]] = []

    def roll_back(self) -> None:
        for step in reversed(self.undo):
            step()


class Ensemble:
    """The in-memory ZooKeeper server that all clients of a test share. `wall_ms`: source of ctime and mtime."""

    def __init__(self) -> None:
        self.zxid = 0
        self.wall_ms: Callable[[], int] = SystemClock().wall_ms
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.data_watchers: Watchers = {}
        self.child_watchers: Watchers = {}
        self.sessions: dict[int, Connection | None] = {}
        """Open sessions by id. The value is the session's connection, None while it has no connection."""
        self._session_ids = itertools.count(1)

    # Sessions.

    def open_session(self) -> int:
        """Create a session and return its id. The creation uses up a zxid."""
        self.zxid += 1
        session = next(self._session_ids)
        self.sessions[session] = None
        return session

    def end_session(self, session: int, *, notify: bool = True) -> None:
        """Expire a session: delete the session's ephemeral nodes in one transaction.

        With `notify`, the session's connection is closed too, and the client is notified.
        """
        connection = self.sessions.pop(session, None)
        if connection is not None:
            self.drop(connection)
        self._delete_nodes_of(session)
        if notify and connection is not None:
            connection.on_session_ended()

    def close_session(self, session: int) -> None:
        """Close a session on its client's request. The client still gets the watch events of the deleted nodes."""
        connection = self.sessions.pop(session, None)
        self._delete_nodes_of(session)
        if connection is not None:
            self.drop(connection)

    def _delete_nodes_of(self, session: int) -> None:
        transaction = self._begin(session)
        for path in sorted(path for path, node in self.nodes.items() if node.owner == session):
            self._remove(path, transaction)
        self._fire(transaction)

    def drop(self, connection: Connection) -> None:
        """Remove the watches of a connection that has ended."""
        for watchers in (self.data_watchers, self.child_watchers):
            for path in [path for path, those in watchers.items() if connection in those]:
                unwatch(watchers, path, connection)

    # Reads.

    def node(self, path: str) -> Node:
        """Return the node. Raises NoNode."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the node's children. Raises NoNode."""
        return sorted(self.node(path).children)

    def stat(self, path: str) -> Stat:
        """Return the node's Stat. Raises NoNode."""
        return self.node(path).stat()

    # Writes.

    def write(self, ops: Sequence[MultiOp], session: int = NOBODY) -> list[Written]:
        """Apply all operations as one transaction, or none. Raises MultiFailed. A failure uses up a zxid, too."""
        transaction = self._begin(session)
        written: list[Written] = []
        for index, op in enumerate(ops):
            try:
                written.append(self._apply(op, transaction))
            except ServerVerdict as verdict:
                transaction.roll_back()
                raise MultiFailed(index, verdict) from verdict
        self._fire(transaction)
        return written

    def apply(self, op: MultiOp, session: int = NOBODY) -> Written:
        """Apply a single operation. Raises ServerVerdict."""
        try:
            (written,) = self.write([op], session)
        except MultiFailed as failed:
            raise failed.error from None
        return written

    def put(self, path: str, data: bytes = b"") -> None:
        """Write as an external client: replace the node's data, or create the node with its parents."""
        if path in self.nodes:
            self.apply(Set(path, data, -1))
            return
        if parent_of(path) not in self.nodes:
            self.put(parent_of(path))
        self.apply(Create(path, data))

    def delete(self, path: str) -> None:
        """Delete the node as an external client. Raises NoNode, NotEmpty."""
        self.apply(Delete(path, -1))

    def _begin(self, session: int) -> _Transaction:
        self.zxid += 1
        return _Transaction(self.zxid, self.wall_ms(), session)

    def _apply(self, op: MultiOp, transaction: _Transaction) -> Written:
        if isinstance(op, Create):
            path = self._create(op, transaction)
            return path, self.nodes[path].stat()
        if isinstance(op, Delete):
            self._delete(op, transaction)
            return op.path, None
        check_path(op.path)
        node = self.node(op.path)
        if op.version not in (-1, node.version):
            raise BadVersion(op.path)
        if isinstance(op, Check):
            return op.path, None
        self._set(op, node, transaction)
        return op.path, node.stat()

    def _create(self, op: Create, transaction: _Transaction) -> str:
        if not op.path.startswith("/"):
            raise BadArguments(op.path)
        parent = self.node(parent_of(op.path))
        path = f"{op.path}{sequence_number(parent.created)}" if op.sequential else op.path
        check_path(path)
        if path in self.nodes:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        owner = transaction.session if op.ephemeral else NOBODY
        self.nodes[path] = Node(op.data or b"", transaction.zxid, transaction.time_ms, owner)
        before = parent.pzxid
        parent.children.add(name_of(path))
        parent.created += 1
        parent.pzxid = transaction.zxid

        def undo() -> None:
            del self.nodes[path]
            parent.children.remove(name_of(path))
            parent.created -= 1
            parent.pzxid = before

        transaction.undo.append(undo)
        transaction.changes.append((codec.NODE_CREATED, path))
        return path

    def _set(self, op: Set, node: Node, transaction: _Transaction) -> None:
        before = node.data, node.version, node.mzxid, node.mtime
        node.data, node.version = op.data, node.version + 1
        node.mzxid, node.mtime = transaction.zxid, transaction.time_ms

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime = before

        transaction.undo.append(undo)
        transaction.changes.append((codec.DATA_CHANGED, op.path))

    def _delete(self, op: Delete, transaction: _Transaction) -> None:
        if not op.path.startswith("/") or op.path == "/":
            raise BadArguments(op.path)
        self.node(parent_of(op.path))
        node = self.node(op.path)
        if op.version not in (-1, node.version):
            raise BadVersion(op.path)
        if node.children:
            raise NotEmpty(op.path)
        self._remove(op.path, transaction)

    def _remove(self, path: str, transaction: _Transaction) -> None:
        node, parent = self.nodes.pop(path), self.nodes[parent_of(path)]
        before = parent.pzxid
        parent.children.remove(name_of(path))
        parent.pzxid = transaction.zxid

        def undo() -> None:
            self.nodes[path] = node
            parent.children.add(name_of(path))
            parent.pzxid = before

        transaction.undo.append(undo)
        transaction.changes.append((codec.NODE_DELETED, path))

    # Watches.

    def _fire(self, transaction: _Transaction) -> None:
        """Send the watch events of a transaction that succeeded, in the order of its operations."""
        for change, path in transaction.changes:
            if change == codec.DATA_CHANGED:
                _send(change, path, self.data_watchers)
            elif change == codec.NODE_CREATED:
                _send(change, path, self.data_watchers)
                _send(codec.CHILDREN_CHANGED, parent_of(path), self.child_watchers)
            else:
                _send(change, path, self.data_watchers, self.child_watchers)
                _send(codec.CHILDREN_CHANGED, parent_of(path), self.child_watchers)


def _send(change: int, path: str, *tables: Watchers) -> None:
    """Send the event once to every connection that watches the path according to `tables`; remove these watches."""
    connections: dict[Connection, None] = {}
    for watchers in tables:
        connections.update(watchers.pop(path, {}))
    for connection in connections:
        connection.on_event(change, path)


def watch(watchers: Watchers, path: str, connection: Connection) -> None:
    """Add a one-shot watch."""
    watchers.setdefault(path, {})[connection] = None


def unwatch(watchers: Watchers, path: str, connection: Connection) -> None:
    """Remove a watch if it is registered."""
    those = watchers.get(path, {})
    those.pop(connection, None)
    if not those:
        watchers.pop(path, None)


def sequence_number(created: int) -> str:
    """Return the number in a sequential node's name. ZooKeeper counts with 32 bits, and goes on below zero."""
    return f"{(created + 2**31) % 2**32 - 2**31:010d}"


def parent_of(path: str) -> str:
    """Return the path of the parent node, "/" for a top-level node."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """Return the last component of the path."""
    return path.rpartition("/")[2]


def check_path(path: str) -> None:
    """Raise BadArguments for a path that ZooKeeper does not accept in a write."""
    names = path.split("/")[1:] if path != "/" else []
    if not path.startswith("/") or any(name in ("", ".", "..") for name in names):
        raise BadArguments(path)
    if any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F for char in path):
        raise BadArguments(path)
