"""The ZooKeeper port over an in-memory ZooKeeper server, with faults on demand.

The server is `Ensemble`. Waiters for watches are kept by the production class `Watches`. The client has no timeouts:
it loses and regains its connection when a test calls `suspend`, `attach`, `expire` and so on.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

from support.memory_zookeeper import (
    Connection,
    Ensemble,
    Node,
    Watchers,
    parent_of,
    unwatch,
    watch,
)

from minikafka.base import ports
from minikafka.base.errors import (
    Closed,
    CoordinationError,
    NodeExists,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
    TooLarge,
)
from minikafka.base.ports import (
    Create,
    Delete,
    MultiOp,
    SessionEvent,
    SessionState,
    Set,
    Stat,
    WatchKind,
    ZooKeeper,
)
from minikafka.zk import codec
from minikafka.zk.session import REQUEST_MAX
from minikafka.zk.watches import OneShot, Watches

__all__ = ["Ensemble", "MemoryZooKeeper", "Node"]

CONNECTED, SUSPENDED, CLOSED = (
    SessionState.CONNECTED,
    SessionState.SUSPENDED,
    SessionState.CLOSED,
)


class Events:
    """A stream of session events for one consumer. `put(None)` ends the stream."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue()

    def put(self, event: SessionEvent | None) -> None:
        self._queue.put_nowait(event)

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> SessionEvent:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)
            raise StopAsyncIteration
        return event


class MemoryZooKeeper:
    """One client of an `Ensemble`.

    `faults`: faults of the next writes, one per write. "unsent" raises NotConnected. "lost" raises OutcomeUnknown
    without applying the write. "unanswered" applies the write and raises OutcomeUnknown. "lagging" is like
    "unanswered", but reads return the nodes as they were before the write, until the next sync.
    `failures`: exceptions raised by the next calls of any kind, before anything is sent.
    `multis`: all multis that reached the server. `before_multi(ops)` is called before the server applies a multi.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.generation = 0
        self.connection = 0
        self.session_id = 0
        self.session_timeout_ms = 6000
        self.state = SessionState.CONNECTING
        self.lease = True
        self.faults: list[str] = []
        self.failures: list[CoordinationError] = []
        self.before_multi: Callable[[Sequence[MultiOp]], None] = lambda ops: None
        self.multis: list[Sequence[MultiOp]] = []
        self.events_received = 0
        self._lagging: dict[str, Node] | None = None
        """The nodes that reads return while the client's server lags behind; None if the server is up to date."""
        self._watches = Watches()
        self._streams: list[Events] = []
        self._state_changed = asyncio.Event()

    # Session.

    @property
    def session_password(self) -> bytes:
        return password_of(self.session_id) if self.session_id else b""

    async def start(self) -> None:
        self.attach()

    def attach(self) -> None:
        """Connect to the server: in the current session if it is still open, else in a new session."""
        if self.session_id and self.session_id not in self.ensemble.sessions:
            self._expired()
        if self.session_id == 0:
            self.session_id = self.ensemble.open_session()
            self.generation += 1
        self.ensemble.sessions[self.session_id] = self
        self.connection += 1
        self.lease = True
        self._enter(CONNECTED)
        self._watches.resync()

    def suspend(self) -> None:
        """Lose the connection; the session stays open."""
        self.ensemble.drop(self)
        self._enter(SUSPENDED)

    def reconnect(self) -> None:
        """Lose the connection, and connect again in the next callback of the loop."""
        self.suspend()
        asyncio.get_running_loop().call_soon(self._attach_again)

    def abandon(self) -> None:
        """End as a killed process does, without closing the session: it stays open until it expires."""
        self.ensemble.drop(self)
        if self.session_id in self.ensemble.sessions:
            self.ensemble.sessions[self.session_id] = None
        self.state = CLOSED

    def lose_lease(self) -> None:
        """Let the session timeout pass without a response from the server."""
        self.lease = False
        self._enter(SessionState.LEASE_EXPIRED)

    def expire(self) -> None:
        """Let the server expire the session and the client notice. `attach` begins the next session."""
        self.ensemble.end_session(self.session_id, notify=False)
        self._expired()

    def on_event(self, change: int, path: str) -> None:
        """Receive a watch event from the server."""
        self.events_received += 1
        self._watches.changed(change, path)

    def on_session_ended(self) -> None:
        """Handle the end of the session by the server: reconnect, and then notice that the session has expired."""
        if self.state is CONNECTED:
            self.reconnect()

    def _attach_again(self) -> None:
        if self.state is SUSPENDED:
            self.attach()

    def _expired(self) -> None:
        self._enter(SessionState.EXPIRED)
        self.session_id = 0

    def _enter(self, state: SessionState) -> None:
        self.state = state
        event = SessionEvent(state, self.generation, self.connection, 0)
        for stream in self._streams:
            stream.put(event)
        self._state_changed.set()
        self._state_changed = asyncio.Event()

    def lease_valid(self, margin_ms: int = 0) -> bool:
        """True while the client is connected and its lease is not lost.

        `margin_ms` has no effect, because no time passes in this client.
        """
        return self.lease and self.state is CONNECTED

    def events(self) -> AsyncIterator[SessionEvent]:
        stream = Events()
        if self.state is CLOSED:
            stream.put(None)
        self._streams.append(stream)
        return stream

    async def connected(self) -> int:
        """Wait until the client is connected; return the current session number (`generation`). Raises Closed."""
        while self.state is not CONNECTED:
            if self.state is CLOSED:
                raise Closed
            await self._state_changed.wait()
        return self.generation

    async def close(self) -> None:
        if self.state is CLOSED:
            return
        if self.session_id in self.ensemble.sessions:
            self.ensemble.close_session(self.session_id)
        self._enter(CLOSED)
        self._watches.resync()
        for stream in self._streams:
            stream.put(None)

    async def _turn(self, generation: int | None = None) -> None:
        """Pretend to send a request. Raises NotConnected without a connection.

        `generation`: number of the session in which the request must be sent; None for any session. Raises
        StaleSession if this session is no longer the current one.
        """
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if self.state is CLOSED:
            raise Closed
        is_over = self.state is SessionState.EXPIRED or generation != self.generation
        if generation is not None and is_over:
            raise StaleSession
        if self.state is not CONNECTED:
            raise NotConnected
        self.lease = True

    # Reads.

    async def _read(self, *paths: str) -> None:
        """Pretend to send a read; wait for a connection for at most the session timeout. Raises StaleSession.

        A path that UTF-8 cannot encode raises UnicodeEncodeError, as the real client's encoder does.
        """
        for path in paths:
            path.encode()
        generation = self.generation
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1_000):
                while self.state in (SUSPENDED, SessionState.LEASE_EXPIRED, SessionState.EXPIRED):
                    if await self.connected() != generation:
                        raise StaleSession
        except TimeoutError:
            raise NotConnected from None
        await self._turn()

    @property
    def _nodes(self) -> dict[str, Node]:
        return self.ensemble.nodes if self._lagging is None else self._lagging

    def _node(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    async def get(self, path: str, *, watch: bool = False) -> ports.Node:
        await self._read(path)
        node = self._node(path)
        self._arm(self.ensemble.data_watchers, path, watch)
        return ports.Node(node.data, node.stat())

    async def get_many(self, paths: Sequence[str]) -> list[ports.Node | None]:
        await self._read(*paths)
        nodes = self._nodes
        return [
            ports.Node(nodes[path].data, nodes[path].stat()) if path in nodes else None
            for path in paths
        ]

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        await self._read(path)
        self._arm(self.ensemble.data_watchers, path, watch)
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        await self._read(path)
        node = self._node(path)
        found = sorted(node.children), node.stat()
        self._arm(self.ensemble.child_watchers, path, watch)
        return found

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        await self._read(*paths)
        nodes = self._nodes
        return [sorted(nodes[path].children) if path in nodes else None for path in paths]

    async def sync(self, path: str) -> None:
        """Make later reads see all writes so far. As with the real client, a sync uses up a zxid."""
        await self._read()
        self.ensemble.write([])
        self._lagging = None

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
        op = Create(path, data, ephemeral, sequential)
        made, stat = await self._write(op, codec.create(op), generation)
        return made, stat

    async def ensure(self, path: str) -> None:
        if await self.exists(path) is not None:
            return
        if path != "/":
            await self.ensure(parent_of(path))
        with suppress(NodeExists):
            await self.create(path, b"")

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        op = Set(path, data, version)
        stat: Stat = (await self._write(op, codec.set_data(op)))[1]
        return stat

    async def delete(self, path: str, version: int) -> None:
        op = Delete(path, version)
        await self._write(op, codec.delete(op))

    async def _write(
        self, op: MultiOp, call: codec.Call[Any], generation: int | None = None
    ) -> Any:
        _check_size(call)
        await self._turn(generation)
        return await self._answer(lambda: self.ensemble.apply(op, self.session_id))

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        if not ops:
            return []
        _check_size(codec.multi(ops))
        await self._turn(generation)

        def write() -> list[Stat | None]:
            self.multis.append(list(ops))
            self.before_multi(ops)
            return [stat for _, stat in self.ensemble.write(ops, self.session_id)]

        return await self._answer(write)

    async def _answer(self, write: Callable[[], Any]) -> Any:
        """Apply a write, or inject the next fault. The write's watch events are sent before its result is returned."""
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "unsent":
            raise NotConnected
        if fault == "lost":
            raise OutcomeUnknown
        before = copy.deepcopy(self.ensemble.nodes) if fault == "lagging" else None
        written = write()
        await asyncio.sleep(0)
        if fault == "lagging":
            self._lagging = before
        if fault in ("unanswered", "lagging"):
            raise OutcomeUnknown
        return written

    # Watches.

    def watch(self, kind: WatchKind, path: str) -> OneShot:
        """Register a watch. Raises Closed."""
        if self.state is CLOSED:
            raise Closed
        return self._watches.register(kind, path)

    def _arm(self, watchers: Watchers, path: str, is_wanted: bool) -> None:
        if is_wanted:
            watch(watchers, path, self)

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        self._watches.forget(kind, path)
        await asyncio.sleep(0)
        if kind is WatchKind.CHILDREN:
            unwatch(self.ensemble.child_watchers, path, self)
            return
        other = WatchKind.EXISTS if kind is WatchKind.DATA else WatchKind.DATA
        if not self._watches.is_registered(other, path):
            unwatch(self.ensemble.data_watchers, path, self)

    def watched(self) -> set[tuple[WatchKind, str]]:
        """Return (kind, path) of every watch that is registered at the client and armed at the server."""
        tables = (
            (WatchKind.DATA, self.ensemble.data_watchers),
            (WatchKind.EXISTS, self.ensemble.data_watchers),
            (WatchKind.CHILDREN, self.ensemble.child_watchers),
        )
        return {
            (kind, path)
            for kind, watchers in tables
            for path, those in watchers.items()
            if self in those and self._watches.is_registered(kind, path)
        }


def password_of(session_id: int) -> bytes:
    """Return the password of this session."""
    return session_id.to_bytes(16, "big")


def _check_size(call: codec.Call[Any]) -> None:
    if len(call.body) + codec.LENGTH.size > REQUEST_MAX:
        raise TooLarge(f"{len(call.body)} bytes for {call.path}, ZooKeeper takes {REQUEST_MAX}")


def _conforms(client: MemoryZooKeeper) -> tuple[ZooKeeper, Connection]:
    """Let the type checker verify that the client implements the ZooKeeper port and the server's `Connection`."""
    return client, client
