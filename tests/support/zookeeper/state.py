"""A server's state with connections that record their events."""

from __future__ import annotations

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE, Acl, Identity
from minikafka.zookeeper.messages.requests import CreateNode, Operation
from minikafka.zookeeper.server.core.attempt import Written
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.core.tree import CONTAINER, Tree

TICK_MS = 1_000
TIMEOUT_MS = 5_000


class Connection:
    """A client's connection. `events`: (kind, path, zxid) of the events it received."""

    def __init__(self, session_id: int = 0) -> None:
        self.session_id = session_id
        self.identities: list[Identity] = [("ip", "127.0.0.1")]
        self.events: list[tuple[int, str, int]] = []

    def on_event(self, change: int, path: str, zxid: int) -> None:
        self.events.append((change, path, zxid))


class World:
    """A state and requests of its clients."""

    def __init__(self) -> None:
        self.state = ServerState(tick_ms=TICK_MS)

    def connect(self, now: int = 0) -> Connection:
        session = self.state.open_session(TIMEOUT_MS, now, now)
        session.connection = connection = Connection(session.id)
        return connection

    def write(self, connection: Connection, operation: Operation) -> Written:
        return self.state.write(connection, 0, operation, 7)

    def create(
        self,
        connection: Connection,
        path: str | None,
        data: bytes | None = b"",
        *,
        acl: Acl | None = ANYONE,
        flags: int = 0,
        kind: int = codes.CREATE,
    ) -> str:
        return self.write(connection, CreateNode(kind, path, data, acl, flags)).path

    def refusal(self, connection: Connection, operation: Operation) -> int:
        """Return the code with which the state refuses the operation."""
        try:
            self.write(connection, operation)
        except Refused as refused:
            return refused.code
        raise AssertionError(f"{operation} succeeded")

    def refused_read(self, connection: Connection, path: str) -> int:
        """Return the code with which the state refuses to read the node."""
        try:
            self.state.data(connection, path)
        except Refused as refused:
            return refused.code
        raise AssertionError(f"{path} was read")


def image(tree: Tree) -> dict[str, object]:
    """Return everything that the tree holds, for comparison. The order of children has no meaning."""
    return {
        path: (
            node.stat(),
            node.data,
            node.acl,
            node.owner,
            node.created,
            sorted(node.children or ()),
        )
        for path, node in tree.nodes.items()
    }


def assert_consistent(state: ServerState) -> None:
    """Assert the invariants of a state.

    Parents name their children, the indexes name the owners' nodes, owners have open sessions, and no zxid is in the
    future.
    """
    tree = state.tree
    assert set(tree.ephemerals) <= set(state.sessions.open)
    for path, node in tree.nodes.items():
        assert max(node.czxid, node.mzxid, node.pzxid) <= state.zxid
        assert not node.children or node.owner in (0, CONTAINER)
        for name in node.children or ():
            assert f"{path.rstrip('/')}/{name}" in tree.nodes
        if path != "/":
            above, _, name = path.rpartition("/")
            assert name in (tree.nodes[above or "/"].children or {})
    owned = [(n.owner, path) for path, n in tree.nodes.items() if n.owner not in (0, CONTAINER)]
    indexed = [(owner, path) for owner, paths in tree.ephemerals.items() for path in paths]
    assert sorted(owned) == sorted(indexed)
    assert all(tree.ephemerals.values()), "the index has an owner without nodes"
    containers = [path for path, node in tree.nodes.items() if node.owner == CONTAINER]
    assert sorted(containers) == sorted(tree.containers)
