"""Random writes to the state of a ZooKeeper server, and what must be equal after a recovery."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Final

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE, Acl, Identity
from minikafka.zookeeper.messages.requests import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    SetAcl,
    SetData,
)
from minikafka.zookeeper.server.core.state import ServerState

TICK_MS: Final = 2000
_NAMES: Final = ("/a", "/b", "/a/x", "/a/y", "/b/ü", "/a/x/deep")
_ACLS: Final[tuple[Acl, ...]] = (
    ANYONE,
    ((31, "digest", "u:hash"), (31, "world", "anyone")),
    ((31, "world", "anyone"), (1, "ip", "127.0.0.1")),
)
_FLAGS: Final = (0, 0, codes.EPHEMERAL, codes.SEQUENTIAL, codes.EPHEMERAL | codes.SEQUENTIAL)


class Client:
    """A connected client of a state."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.identities: list[Identity] = []

    def on_event(self, change: int, path: str, zxid: int) -> None:
        raise AssertionError("no watch was set")


def new_state(tick_ms: int = TICK_MS) -> ServerState:
    """Return the state of a server that has not recovered yet. Sessions have a timeout of at least two ticks."""
    return ServerState(tick_ms=tick_ms, first_session_id=100)


def fingerprint(state: ServerState) -> object:
    """Return all that must survive: zxid, nodes with their Stats, data and owners, open sessions."""
    nodes = {
        path: (node.stat(), node.data, node.acl, node.created, node.owner)
        for path, node in state.tree.nodes.items()
    }
    children = {path: set(node.children or ()) for path, node in state.tree.nodes.items()}
    owned = {owner: set(paths) for owner, paths in state.tree.ephemerals.items()}
    sessions = {session.id: session.timeout_ms for session in state.sessions.open.values()}
    return state.zxid, nodes, children, owned, set(state.tree.containers), sessions


class RandomWrites:
    """One random write after the other, to a state with at least one session. `now` counts as the clock."""

    def __init__(self, state: ServerState, random: Random) -> None:
        self.state = state
        self.random = random
        self.now = 1_700_000_000_000
        self.state.open_session(6000, 0, self.now)

    def step(self) -> None:
        """Carry out one write, refused or not."""
        self.now += 7
        kind = self.random.random()
        client = Client(self.random.choice(list(self.state.sessions.open)))
        with suppress(Refused):
            if kind < 0.7:
                self.state.write(client, self.random.randrange(99), self._operation(), self.now)
            elif kind < 0.85:
                operations = [self._part() for _ in range(self.random.randrange(4))]
                self.state.multi(client, 5, operations, self.now)
            elif kind < 0.9:
                self.state.open_session(self.random.randrange(1, 50_000), 0, self.now)
            elif kind < 0.93 and len(self.state.sessions.open) > 1:
                self.state.close_session(client.session_id, 9, self.now)
            elif kind < 0.96:
                self.state.fail(client, 3, codes.MARSHALLING_ERROR, self.now)
            else:
                self.state.remove_empty_containers(self.now)

    def _operation(self) -> Operation:
        path = self.random.choice(_NAMES)
        data = self.random.choice((None, b"", b"value", bytes(30)))
        kind = self.random.random()
        if kind < 0.5:
            acl = self.random.choice(_ACLS)
            create = self.random.choice((codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER))
            return CreateNode(create, path, data, acl, self.random.choice(_FLAGS))
        if kind < 0.65:
            return DeleteNode(path, -1)
        if kind < 0.85:
            return SetData(path, data, self.random.choice((-1, -1, 0)))
        return SetAcl(path, self.random.choice(_ACLS), -1)

    def _part(self) -> Operation:
        """Return an operation of a multi."""
        if self.random.random() < 0.1:
            return CheckVersion(self.random.choice(_NAMES), -1)
        return self._operation()
