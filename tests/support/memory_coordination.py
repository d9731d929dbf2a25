"""A ZooKeeper in memory with several sessions: ephemerals, versions, multis, one-shot watches, and faults on demand.

As much of the server's rules as the controller relies on. It is no conformance-tested stand-in: what
matters there is tested against the real server too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from minikafka.base.errors import (
    BadVersion,
    Closed,
    MultiFailed,
    NodeExists,
    NoNode,
    NotConnected,
    NotEmpty,
    OutcomeUnknown,
    ServerVerdict,
    StaleSession,
)
from minikafka.base.ports import (
    Check,
    Create,
    MultiOp,
    SessionEvent,
    SessionState,
    Set,
    Stat,
    WatchKind,
    WatchSignal,
)
from minikafka.runtime.clock import SystemClock


@dataclass
class Node:
    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    owner: int = 0
    ctime: int = 0


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Ensemble:
    """The tree that all sessions share."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.watches: list[MemoryWatch] = []
        self.wall_ms: Callable[[], int] = SystemClock().wall_ms
        self._sessions = 0
        self._sequence = 0

    def new_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = (name[len(prefix) :] for name in self.nodes if name.startswith(prefix))
        return sorted(name for name in below if name and "/" not in name)

    def stat(self, path: str) -> Stat:
        node = self.nodes[path]
        count = len(self.children(path))
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime,
            0,
            node.version,
            0,
            0,
            node.owner,
            len(node.data),
            count,
            0,
        )

    def apply(self, op: MultiOp, session: int) -> str:
        """One operation, or the server's verdict; the path of the node."""
        if isinstance(op, Create):
            return self._create(op, session)
        node = self.nodes.get(op.path)
        if node is None:
            raise NoNode(op.path)
        if op.version not in (-1, node.version):
            raise BadVersion(op.path)
        if isinstance(op, Set):
            self.zxid += 1
            node.data, node.mzxid, node.version = op.data, self.zxid, node.version + 1
            self._fire(op.path, WatchKind.DATA, WatchKind.EXISTS)
        elif not isinstance(op, Check):
            self.remove(op.path)
        return op.path

    def _create(self, op: Create, session: int) -> str:
        path = op.path
        if op.sequential:
            self._sequence += 1
            path = f"{path}{self._sequence:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        if parent(path) not in self.nodes:
            raise NoNode(parent(path))
        self.zxid += 1
        owner = session if op.ephemeral else 0
        self.nodes[path] = Node(op.data, self.zxid, self.zxid, owner=owner, ctime=self.wall_ms())
        self._fire(path, WatchKind.EXISTS)
        self._fire(parent(path), WatchKind.CHILDREN)
        return path

    def remove(self, path: str) -> None:
        if self.children(path):
            raise NotEmpty(path)
        self.zxid += 1
        del self.nodes[path]
        self._fire(path, *WatchKind)
        self._fire(parent(path), WatchKind.CHILDREN)

    def end_session(self, session: int) -> None:
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self.remove(path)

    def _fire(self, path: str, *kinds: WatchKind) -> None:
        for watch in [w for w in self.watches if w.path == path and w.kind in kinds and w.armed]:
            watch.complete(WatchSignal.CHANGED)

    def put(self, path: str, data: bytes = b"") -> None:
        """Somebody else writes: create with parents, or replace."""
        if path in self.nodes:
            self.apply(Set(path, data, -1), 0)
            return
        if parent(path) not in self.nodes:
            self.put(parent(path))
        self.apply(Create(path, data), 0)

    def delete(self, path: str) -> None:
        self.remove(path)


class MemoryWatch:
    def __init__(self, session: MemoryCoordination, kind: WatchKind, path: str) -> None:
        self.session, self.kind, self.path = session, kind, path
        self.armed = False
        self._signal: asyncio.Future[WatchSignal] = asyncio.get_running_loop().create_future()
        session.ensemble.watches.append(self)

    def complete(self, signal: WatchSignal) -> None:
        self.forget()
        if not self._signal.done():
            self._signal.set_result(signal)

    def forget(self) -> None:
        if self in self.session.ensemble.watches:
            self.session.ensemble.watches.remove(self)

    async def wait(self) -> WatchSignal:
        return await self._signal

    def fired(self) -> bool:
        return self._signal.done()

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        self._signal.add_done_callback(lambda future: callback(future.result()))


class MemoryCoordination:
    """One client. `before_multi(ops)` runs ahead of each multi; `faults` are taken by multis, one each:
    "lost" is not applied and the outcome unknown, "unanswered" is applied and the outcome unknown, "unsent"
    never reaches the server.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.generation = 0
        self.connection = 0
        self.session_id = 0
        self.session_password = b""
        self.session_timeout_ms = 6000
        self.state = SessionState.CONNECTING
        self.lease = True
        self.faults: list[str] = []
        self.before_multi: Callable[[Sequence[MultiOp]], None] = lambda ops: None
        self.multis: list[Sequence[MultiOp]] = []
        self._streams: list[asyncio.Queue[SessionEvent | None]] = []
        self._state_changed = asyncio.Event()

    # Session.

    async def start(self) -> None:
        self.attach()

    def attach(self) -> None:
        """Connect: in the old session if there is one, else in a new one."""
        if self.session_id == 0:
            self.session_id = self.ensemble.new_session()
            self.generation += 1
        self.connection += 1
        self.lease = True
        self._enter(SessionState.CONNECTED)
        self._resync()

    def suspend(self) -> None:
        self._enter(SessionState.SUSPENDED)

    def lose_lease(self) -> None:
        self.lease = False
        self._enter(SessionState.LEASE_EXPIRED)

    def expire(self) -> None:
        """The server expires the session; the client hears of it, and connects anew with `attach`."""
        self.ensemble.end_session(self.session_id)
        self.session_id = 0
        self._enter(SessionState.EXPIRED)

    def _enter(self, state: SessionState) -> None:
        self.state = state
        event = SessionEvent(state, self.generation, self.connection, 0)
        for stream in self._streams:
            stream.put_nowait(event)
        self._state_changed.set()

    def _resync(self) -> None:
        for watch in [watch for watch in self.ensemble.watches if watch.session is self]:
            watch.complete(WatchSignal.RESYNC)

    def lease_valid(self, margin_ms: int = 0) -> bool:
        return self.lease and self.state is SessionState.CONNECTED

    async def events(self) -> AsyncIterator[SessionEvent]:
        stream: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        self._streams.append(stream)
        while (event := await stream.get()) is not None:
            yield event

    async def connected(self) -> int:
        while self.state is not SessionState.CONNECTED:
            if self.state is SessionState.CLOSED:
                raise Closed
            self._state_changed.clear()
            await self._state_changed.wait()
        return self.generation

    async def close(self) -> None:
        self.ensemble.end_session(self.session_id)
        self._enter(SessionState.CLOSED)
        for stream in self._streams:
            stream.put_nowait(None)

    async def _turn(self, generation: int | None = None) -> None:
        await asyncio.sleep(0)
        if self.state is SessionState.CLOSED:
            raise Closed
        if generation is not None and generation != self.generation:
            raise StaleSession
        if self.state is not SessionState.CONNECTED:
            raise NotConnected
        self.lease = True

    # Reads.

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        await self._turn()
        if path not in self.ensemble.nodes:
            raise NoNode(path)
        self._arm(WatchKind.DATA, path, watch)
        return self.ensemble.nodes[path].data, self.ensemble.stat(path)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        await self._turn()
        nodes = self.ensemble.nodes
        return [
            (nodes[path].data, self.ensemble.stat(path)) if path in nodes else None
            for path in paths
        ]

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        await self._turn()
        self._arm(WatchKind.EXISTS, path, watch)
        return self.ensemble.stat(path) if path in self.ensemble.nodes else None

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        await self._turn()
        if path not in self.ensemble.nodes:
            raise NoNode(path)
        self._arm(WatchKind.CHILDREN, path, watch)
        return self.ensemble.children(path), self.ensemble.stat(path)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        await self._turn()
        return [
            self.ensemble.children(path) if path in self.ensemble.nodes else None for path in paths
        ]

    async def sync(self, path: str) -> None:
        await self._turn()

    # Writes.

    async def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        generation: int | None = None,
    ) -> tuple[str, Stat]:
        await self._turn(generation)
        made = self.ensemble.apply(Create(path, data, ephemeral, sequential), self.session_id)
        return made, self.ensemble.stat(made)

    async def ensure(self, path: str, data: bytes = b"") -> None:
        await self._turn()
        if path not in self.ensemble.nodes:
            self.ensemble.put(path, data)

    async def set(
        self, path: str, data: bytes, version: int, *, generation: int | None = None
    ) -> Stat:
        await self._turn(generation)
        self.ensemble.apply(Set(path, data, version), self.session_id)
        return self.ensemble.stat(path)

    async def delete(self, path: str, version: int, *, generation: int | None = None) -> None:
        await self._turn(generation)
        node = self.ensemble.nodes.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        self.ensemble.remove(path)

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        await self._turn(generation)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "unsent":
            raise NotConnected
        if fault == "lost":
            raise OutcomeUnknown
        self.multis.append(list(ops))
        self.before_multi(ops)
        stats = self._all_or_nothing(ops)
        await asyncio.sleep(0)  # a server tells of the change before it answers who made it
        if fault == "unanswered":
            raise OutcomeUnknown
        return stats

    def _all_or_nothing(self, ops: Sequence[MultiOp]) -> list[Stat | None]:
        rehearsal = Ensemble()
        rehearsal._sequence = self.ensemble._sequence
        rehearsal.nodes = {path: Node(**vars(node)) for path, node in self.ensemble.nodes.items()}
        for index, op in enumerate(ops):
            try:
                rehearsal.apply(op, self.session_id)
            except ServerVerdict as verdict:
                raise MultiFailed(index, verdict) from verdict
        stats: list[Stat | None] = []
        for op in ops:
            path = self.ensemble.apply(op, self.session_id)
            stats.append(self.ensemble.stat(path) if isinstance(op, Create | Set) else None)
        return stats

    # Watches.

    def watch(self, kind: WatchKind, path: str) -> MemoryWatch:
        return MemoryWatch(self, kind, path)

    def _arm(self, kind: WatchKind, path: str, watch: bool) -> None:
        for registered in self.ensemble.watches if watch else ():
            if (registered.session, registered.kind, registered.path) == (self, kind, path):
                registered.armed = True

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        await self._turn()
        for watch in list(self.ensemble.watches):
            if (watch.session, watch.kind, watch.path) == (self, kind, path):
                watch.forget()

    def watched(self) -> set[tuple[WatchKind, str]]:
        """What this session watches on the server."""
        return {(w.kind, w.path) for w in self.ensemble.watches if w.session is self and w.armed}
