"""Direct operations on the nodes of a ZooKeeper server, which need neither a loop nor a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from minikafka.base import ports
from minikafka.base.errors import MultiFailed
from minikafka.base.ports import MultiOp, Stat
from minikafka.simulation.clocks import WALL_MS
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.messages import codes, requests
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE, Identity
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.core.tree import DataNode, parent_of

TICK_MS: Final = 2_000
SESSION_MS: Final = 6_000
NOBODY: Final = 0
"""Session id of direct writes."""
Written: TypeAlias = "tuple[str, Stat | None]"
"""(path of the node, its Stat after a create or set, None after other operations)."""


class _Direct:
    """The connection of direct writes. It watches nothing."""

    session_id = NOBODY

    def __init__(self) -> None:
        self.identities: list[Identity] = []

    def on_event(self, change: int, path: str, zxid: int) -> None:
        raise AssertionError("direct writes set no watches")


class Znodes:
    """Direct operations on the state of a ZooKeeper server, at once and as an external client. They fire watches."""

    def __init__(self, state: ServerState | None = None) -> None:
        self.state = state or ServerState(tick_ms=TICK_MS, keeps_journal=False)
        self._allow_direct_writes()
        self.wall_ms: Callable[[], int] = lambda: WALL_MS
        """Source of ctime and mtime of direct writes."""
        self._direct = _Direct()

    def _allow_direct_writes(self) -> None:
        """Open the session of direct writes again. A session that was never touched does not expire."""
        self.state.sessions.remove(NOBODY)
        self.state.sessions.add(NOBODY, 0)

    @property
    def nodes(self) -> dict[str, DataNode]:
        """All znodes by path."""
        return self.state.tree.nodes

    @property
    def zxid(self) -> int:
        """The zxid of the last attempt to write."""
        return self.state.zxid

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the node's children. Raises KeyError."""
        return sorted(self.nodes[path].children or ())

    def stat(self, path: str) -> Stat:
        """Return the node's Stat. Raises KeyError."""
        return self.nodes[path].stat()

    def put(self, path: str, data: bytes = b"", *, owner: int = NOBODY) -> None:
        """Replace the node's data, or create the node with its parents. `owner`: the session of an ephemeral node."""
        if path in self.nodes:
            self.apply(ports.Set(path, data, -1))
            return
        if parent_of(path) not in self.nodes:
            self.put(parent_of(path))
        self.apply(ports.Create(path, data, ephemeral=owner != NOBODY), owner)

    def delete(self, path: str) -> None:
        """Delete the node. Raises NoNode, NotEmpty."""
        self.apply(ports.Delete(path, -1))

    def apply(self, op: MultiOp, session: int = NOBODY) -> Written:
        """Carry out a single operation. Raises ServerVerdict."""
        self._direct.session_id = session
        try:
            path, node = self.state.write(self._direct, 0, _operation(op), self.wall_ms())
        except Refused as refused:
            raise calls.error_of(refused.code, op.path) from None
        return path, None if node is None else node.stat()

    def write(self, ops: Sequence[MultiOp], session: int = NOBODY) -> list[Written]:
        """Carry out all operations or none. Raises MultiFailed."""
        self._direct.session_id = session
        results = self.state.multi(self._direct, 0, [_operation(op) for op in ops], self.wall_ms())
        written: list[Written] = []
        for index, (op, result) in enumerate(zip(ops, results, strict=True)):
            if not isinstance(result, int):
                written.append((result.path, result.stat))
            elif result:
                verdict: Any = calls.error_of(result, op.path)
                raise MultiFailed(index, verdict)
        return written

    def open_session(self, session_id: int | None = None) -> int:
        """Open a session that nobody is connected to, and that does not expire; return its id."""
        sessions = self.state.sessions
        return sessions.add(session_id or sessions.next_id(), SESSION_MS).id

    def end_session(self, session_id: int) -> None:
        """End a session, as when its time is over. A session that is over already needs no end."""
        if session_id in self.state.sessions.open:
            self.state.close_session(session_id, 0, self.wall_ms())


def _operation(op: MultiOp) -> requests.Operation:
    """Return the server's form of an operation."""
    if isinstance(op, ports.Create):
        flags = codes.EPHEMERAL * op.ephemeral | codes.SEQUENTIAL * op.sequential
        return requests.CreateNode(codes.CREATE2, op.path, op.data, ANYONE, flags)
    if isinstance(op, ports.Set):
        return requests.SetData(op.path, op.data, op.version)
    if isinstance(op, ports.Delete):
        return requests.DeleteNode(op.path, op.version)
    return requests.CheckVersion(op.path, op.version)
