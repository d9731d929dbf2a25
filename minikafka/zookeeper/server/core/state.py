"""The state of one ZooKeeper server: it takes requests of clients, and returns results, events and transactions.

The zxid counts every attempt to write, also one that fails, and every start and end of a session. The state never
waits and reads no clock: `now` is monotonic ms, for expiry; `time_ms` is Unix ms, for the times of nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.messages.requests import Operation, OpResult
from minikafka.zookeeper.server.core import acl
from minikafka.zookeeper.server.core.acl import check_permission, is_permitted
from minikafka.zookeeper.server.core.attempt import Attempt, Written
from minikafka.zookeeper.server.core.changes import (
    Change,
    Deleted,
    Failed,
    LoggedTransaction,
    Multi,
    SessionClosed,
    SessionOpened,
    replay,
)
from minikafka.zookeeper.server.core.sessions import Session, Sessions
from minikafka.zookeeper.server.core.tree import ROOT, DataNode, Tree, parent_of
from minikafka.zookeeper.server.core.watches import (
    ANY,
    ONE_SHOT,
    PERSISTENT,
    RECURSIVE,
    Watcher,
    WatchTable,
)

_CHECK_MODES: Final = {
    1: (ONE_SHOT, 0),
    2: (0, ONE_SHOT),
    3: (ANY, ANY),
    4: (0, PERSISTENT),
    5: (0, RECURSIVE),
}
"""Type of a checkWatches request → modes to look for in the child table and the data table."""
_REMOVE_MODES: Final = {**_CHECK_MODES, 4: (PERSISTENT, PERSISTENT)}


class ServerState:
    """Tree, watches and sessions. `journal`: the transactions to make durable, which the owner takes away.

    `first_session_id`: id of the first session. `keeps_journal` False: for a server that stores nothing. `schemes`:
    those that access control lists may have.
    """

    def __init__(
        self,
        *,
        tick_ms: int,
        first_session_id: int = 1,
        session_timeout_max_ms: int | None = None,
        keeps_journal: bool = True,
        schemes: Collection[str] = acl.SCHEMES,
    ) -> None:
        self.zxid = 0
        self.tree = Tree()
        self.sessions = Sessions(tick_ms, first_session_id, session_timeout_max_ms)
        self.data_watches = WatchTable()
        self.child_watches = WatchTable()
        self.journal: list[LoggedTransaction] = []
        self._keeps_journal = keeps_journal
        self._schemes = schemes
        self._logged_zxid = 0
        """Zxid of the last transaction."""

    # ---- writes

    def write(self, client: Watcher, cxid: int, operation: Operation, time_ms: int) -> Written:
        """Carry out a single write. Raises Refused."""
        self.check_session(client)
        self.zxid += 1
        attempt = Attempt(self.tree, client, self.zxid, time_ms, self._schemes)
        try:
            result = attempt.apply(operation)
        except Refused as refused:
            self._log(client.session_id, cxid, time_ms, Failed(refused.code))
            raise
        self._log(client.session_id, cxid, time_ms, attempt.changes[0])
        self._fire(attempt)
        return result

    def multi(
        self,
        client: Watcher,
        cxid: int,
        operations: Sequence[Operation],
        time_ms: int,
    ) -> list[OpResult | int]:
        """Carry out all operations or none. Return a result per operation, or a code per operation if one was refused.

        The code is 0 before the operation at fault, and RUNTIME_INCONSISTENCY after it.
        """
        self.check_session(client)
        self.zxid += 1
        attempt = Attempt(self.tree, client, self.zxid, time_ms, self._schemes)
        results: list[OpResult | int] = []
        try:
            for operation in operations:
                path, node = attempt.apply(operation)
                results.append(OpResult(path, node.stat() if node is not None else None))
        except Refused as refused:
            attempt.roll_back()
            self._log(client.session_id, cxid, time_ms, Failed(refused.code))
            untried = len(operations) - len(results) - 1
            return [
                *(0 for _ in results),
                refused.code,
                *(codes.RUNTIME_INCONSISTENCY for _ in range(untried)),
            ]
        assert len(results) == len(attempt.changes) == len(operations), "an operation has no result"
        self._log(client.session_id, cxid, time_ms, Multi(tuple(attempt.changes)))
        self._fire(attempt)
        return results

    def fail(self, client: Watcher, cxid: int, code: int, time_ms: int) -> None:
        """Use up a zxid for a write that was refused before it could be tried, such as a malformed multi."""
        self.check_session(client)
        self.zxid += 1
        self._log(client.session_id, cxid, time_ms, Failed(code))

    def remove_empty_containers(self, time_ms: int) -> None:
        """Delete each container that once had children and has none any more."""
        nodes = self.tree.nodes
        for path in [
            path
            for path in self.tree.containers
            if nodes[path].created and not nodes[path].children
        ]:
            self.zxid += 1
            self._delete_by_server(path)
            self._log(0, 0, time_ms, Deleted(path, is_container=True))

    def _log(self, session_id: int, cxid: int, time_ms: int, change: Change) -> None:
        # The store finds the end of its log, and followers of the log their place, by zxids without repetition.
        assert self.zxid > self._logged_zxid, (self.zxid, self._logged_zxid)
        self._logged_zxid = self.zxid
        if self._keeps_journal:
            self.journal.append(LoggedTransaction(session_id, cxid, self.zxid, time_ms, change))

    # ---- reads

    def exists(self, client: Watcher, path: str | None, *, watch: bool) -> DataNode:
        """Return a node. `watch`: set a watch, also if the node is missing. Raises Refused."""
        self.check_session(client)
        if path is not None and "\0" in path:
            raise Refused(codes.BAD_ARGUMENTS)
        node = self.tree.nodes.get(path or ROOT) if path is not None else self._node(None)
        if node is not None:
            check_permission(node.acl, acl.READ, client.identities)
        if watch and path is not None:
            self.data_watches.add(path, client, ONE_SHOT)
        if node is None:
            raise Refused(codes.NO_NODE)
        return node

    def data(self, client: Watcher, path: str | None, *, watch: bool = False) -> DataNode:
        """Return the node whose data the client reads. `watch`: set a data watch. Raises Refused."""
        node = self.readable(client, path)
        if watch:
            assert path is not None
            self.data_watches.add(path, client, ONE_SHOT)
        return node

    def children(self, client: Watcher, path: str | None, *, watch: bool = False) -> DataNode:
        """Return the node whose children the client reads. `watch`: set a child watch. Raises Refused."""
        node = self.readable(client, path)
        if watch:
            assert path is not None
            self.child_watches.add(path, client, ONE_SHOT)
        return node

    def readable(self, client: Watcher, path: str | None, permissions: int = acl.READ) -> DataNode:
        """Return a node that the client may read. Raises Refused."""
        self.check_session(client)
        node = self._node(path)
        check_permission(node.acl, permissions, client.identities)
        return node

    def read_many(self, client: Watcher, paths: Iterable[str]) -> list[DataNode | int]:
        """Return a node or an error code (int) for each path. Raises Refused if the session is over."""
        self.check_session(client)
        return [
            node
            if (node := self.tree.nodes.get(path)) is not None and node.acl is ANYONE
            else self._readable_or_code(client, path)
            for path in paths
        ]

    def _readable_or_code(self, client: Watcher, path: str) -> DataNode | int:
        try:
            return self.readable(client, path)
        except Refused as refused:
            return refused.code

    def _node(self, path: str | None) -> DataNode:
        if path is None:
            raise Refused(codes.MARSHALLING_ERROR)
        node = self.tree.nodes.get(path or ROOT)  # for reads, "" is the root [measured]
        if node is None:
            raise Refused(codes.NO_NODE)
        return node

    # ---- watches

    def set_watches(
        self,
        client: Watcher,
        seen_zxid: int,
        data: Iterable[str],
        exists: Iterable[str],
        children: Iterable[str],
        persistent: Iterable[str] = (),
        recursive: Iterable[str] = (),
    ) -> None:
        """Set the watches of a client that has reconnected; send the events since `seen_zxid` at once."""
        self.check_session(client)
        for path in data:
            self._rewatch(client, path, codes.DATA_CHANGED, seen_zxid)
        for path in exists:
            if path in self.tree.nodes:
                client.on_event(codes.NODE_CREATED, path, codes.UNKNOWN_ZXID)
            else:
                self.data_watches.add(path, client, ONE_SHOT)
        for path in children:
            self._rewatch(client, path, codes.CHILDREN_CHANGED, seen_zxid)
        for path in persistent:
            self._watch_persistently(client, path)
        for path in recursive:
            self.data_watches.add(path, client, RECURSIVE)

    def _rewatch(self, client: Watcher, path: str, change: int, seen_zxid: int) -> None:
        is_data = change == codes.DATA_CHANGED
        node = self.tree.nodes.get(path)
        if node is None:
            client.on_event(codes.NODE_DELETED, path, codes.UNKNOWN_ZXID)
        elif (node.mzxid if is_data else node.pzxid) > seen_zxid:
            client.on_event(change, path, codes.UNKNOWN_ZXID)
        else:
            (self.data_watches if is_data else self.child_watches).add(path, client, ONE_SHOT)

    def add_watch(self, client: Watcher, path: str | None, mode: int) -> None:
        """Set a persistent watch (mode 0) or a recursive one (mode 1). Raises Refused for another mode."""
        self.check_session(client)
        if mode == 0:
            self._watch_persistently(client, path)
        elif mode == 1:
            self.data_watches.add(path, client, RECURSIVE)
        else:
            raise Refused(codes.MARSHALLING_ERROR)

    def _watch_persistently(self, client: Watcher, path: str | None) -> None:
        self.data_watches.add(path, client, PERSISTENT)
        self.child_watches.add(path, client, PERSISTENT)

    def check_watch(self, client: Watcher, path: str | None, kind: int) -> None:
        """Raise Refused (NO_WATCHER) if the client has no watch of this kind (1 to 5) on the path."""
        child, data = self._modes(client, kind, _CHECK_MODES)
        has_child = self.child_watches.has(path, client, child)
        if not has_child and not self.data_watches.has(path, client, data):
            raise Refused(codes.NO_WATCHER)

    def remove_watch(self, client: Watcher, path: str | None, kind: int) -> None:
        """Remove watches of this kind (1 to 5). Raises Refused (NO_WATCHER) if there is none."""
        child, data = self._modes(client, kind, _REMOVE_MODES)
        had_child = self.child_watches.remove(path, client, child)
        if not self.data_watches.remove(path, client, data) and not had_child:
            raise Refused(codes.NO_WATCHER)

    def _modes(
        self, client: Watcher, kind: int, modes: dict[int, tuple[int, int]]
    ) -> tuple[int, int]:
        self.check_session(client)
        if kind not in modes:
            raise Refused(codes.MARSHALLING_ERROR)
        return modes[kind]

    def drop(self, client: Watcher) -> None:
        """Forget a client whose connection has ended: its watches go, its session stays."""
        self.data_watches.drop(client)
        self.child_watches.drop(client)
        session = self.sessions.open.get(client.session_id)
        if session is not None and session.connection is client:
            session.connection = None

    def _fire(self, attempt: Attempt) -> None:
        for change, path, node in attempt.events:
            self._send(change, path, node)

    def _send(self, change: int, path: str, node: DataNode) -> None:
        """Send an event to all who watch the path and may read the node."""
        if change == codes.CHILDREN_CHANGED:
            found = self.child_watches.fire(path)
        else:
            found = self.data_watches.fire(path)
            if change == codes.NODE_DELETED:
                found.update(self.child_watches.fire(path))
        for client in found:
            if is_permitted(node.acl, acl.READ, client.identities):
                client.on_event(change, path, self.zxid)

    # ---- sessions

    def check_session(self, client: Watcher) -> None:
        """Raise Refused (SESSION_EXPIRED) if the client's session is over."""
        if client.session_id not in self.sessions.open:
            raise Refused(codes.SESSION_EXPIRED)

    def open_session(self, timeout_ms: int, now: int, time_ms: int) -> Session:
        """Open a session with the next id. Its timeout is clamped to the server's limits."""
        self.zxid += 1
        clamped = self.sessions.clamped(timeout_ms)
        session = self.sessions.add(self.sessions.next_id(), clamped)
        self.sessions.touch(session, now)
        self._log(session.id, 0, time_ms, SessionOpened(clamped))
        return session

    def close_session(self, session_id: int, cxid: int, time_ms: int) -> None:
        """End a session and delete its ephemeral nodes, all with one zxid.

        The zxid rises even if the session has ended before.
        """
        self.zxid += 1
        paths = tuple(self.tree.ephemerals.get(session_id, ()))
        # Logged with the paths, as Apache ZooKeeper expects it; the deletions below change the list.
        self._log(session_id, cxid, time_ms, SessionClosed(paths))
        for path in paths:
            self._delete_by_server(path)
        self.sessions.remove(session_id)
        assert session_id not in self.tree.ephemerals, session_id

    def expire(self, now: int, time_ms: int) -> list[Session]:
        """End all sessions whose time is over; return them. Their connections are still to be closed."""
        ended = []
        for id_ in self.sessions.expired(now):
            ended.append(self.sessions.open[id_])
            self.close_session(id_, 0, time_ms)
        return ended

    def _delete_by_server(self, path: str) -> None:
        above = parent_of(path)
        parent = self.tree.nodes[above]
        node = self.tree.remove(path)
        parent.pzxid = self.zxid
        self._send(codes.NODE_DELETED, path, node)
        self._send(codes.CHILDREN_CHANGED, above, parent)

    # ---- recovery

    def replay(self, transaction: LoggedTransaction) -> None:
        """Apply a transaction that was logged before. A second replay has no effect."""
        replay(transaction, self.tree, self.sessions)
        # The snapshot may already have later transactions (`changes.py`): the zxid must not go back.
        self.zxid = max(self.zxid, transaction.zxid)
        self._logged_zxid = self.zxid
