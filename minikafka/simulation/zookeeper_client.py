"""The production client of a simulated ZooKeeper, with faults on demand."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

from minikafka.base import ports
from minikafka.base.encryption import Tls
from minikafka.base.errors import CoordinationError, NotConnected, OutcomeUnknown
from minikafka.base.ports import (
    MultiOp,
    SessionState,
    Stat,
    StreamHandler,
    Transport,
    WatchKind,
    ZooKeeper,
)
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.ports import SeededRng
from minikafka.simulation.znodes import SESSION_MS
from minikafka.simulation.zookeeper import CONNECT, ZooKeeperInMemory
from minikafka.zookeeper.client.client import ZooKeeperClient

CONNECT_TIMEOUT_MS: Final = 18_000
"""The default of zookeeper.connection.timeout.ms, also for sessions with a timeout of 1 ms in real time."""
Answer = TypeVar("Answer")
Watched: TypeAlias = "set[tuple[WatchKind, str]]"


class ConnectGate:
    """A transport whose connects can be held back: each one, or each one after the next."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._admitted: int | None = None
        """Number of connects that may pass, None for every connect."""
        self._changed = asyncio.Event()

    def hold(self) -> None:
        """Hold back every connect from now on."""
        self._admit(0)

    def admit_one(self) -> None:
        """Let one connect pass, and hold back further ones."""
        self._admit(1)

    def release(self) -> None:
        """Let every connect pass."""
        self._admit(None)

    def _admit(self, count: int | None) -> None:
        self._admitted = count
        self._changed.set()
        self._changed = asyncio.Event()

    async def listen(self, *args: Any) -> Any:
        raise AssertionError("a client does not listen")

    async def connect(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> StreamHandler:
        while self._admitted == 0:
            await self._changed.wait()
        if self._admitted is not None:
            self._admitted -= 1
        return await self._transport.connect(factory, host, port, tls)


class InMemoryClient(ZooKeeperClient):
    """The production client of a `ZooKeeperInMemory`, with faults on demand. Its first call connects it.

    `faults`: faults of the next writes, one per write. "unsent" raises NotConnected. "lost" raises OutcomeUnknown
    without sending the write. "unanswered" sends the write and raises OutcomeUnknown. "lagging" is like "unanswered",
    but the client then reads from a server that has not yet seen the write, until the next sync.
    `failures`: exceptions raised by the next calls of any kind, before anything is sent.
    `multis`: all multis that were sent. `before_multi(ops)` is called before a multi is sent.
    """

    def __init__(
        self,
        server: ZooKeeperInMemory,
        *,
        session_ms: int = SESSION_MS,
        chroot: str = "",
        clock: ports.Clock | None = None,
        tasks: ports.Tasks | None = None,
        connect: str = CONNECT,
    ) -> None:
        self.server = server
        self.gate = ConnectGate(server.transport)
        self.faults: list[str] = []
        self.failures: list[CoordinationError] = []
        self.multis: list[Sequence[MultiOp]] = []
        self.before_multi: Callable[[Sequence[MultiOp]], None] = lambda ops: None
        self.events_received = 0
        self._starting = asyncio.Lock()
        server.clients.append(self)
        self._behind: InMemoryClient | None = None
        """A client of a server that lags behind, from which this client reads; None: it reads from its own server."""
        self._tasks = tasks or TaskRegistry()
        super().__init__(
            connect + chroot,
            session_ms,
            clock or server.clock,
            SeededRng(),
            self._tasks,
            self.gate,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
        )

    # ---- the session

    async def start(self) -> None:
        await self.server.start()
        await super().start()

    async def attach(self) -> None:
        """Connect again, after `suspend`, `expire` or `lose_lease`; start the client if it was not started."""
        if self.state is SessionState.CONNECTING:
            await self.start()
            return
        self.gate.release()
        await self.connected()

    def reconnect(self) -> None:
        """Lose the connection. The session connects again by itself."""
        connection = self._session._current
        if connection is not None:
            connection.abort()

    def suspend(self) -> None:
        """Lose the connection, and do not connect again before `attach`. The session stays open."""
        self.gate.hold()
        self.reconnect()

    async def expire(self) -> None:
        """Let the server end the session and the client notice. `attach` begins the next session."""
        self.suspend()
        self.server.end_session(self.session_id)
        self.gate.admit_one()
        await self._reach(SessionState.EXPIRED)

    async def lose_lease(self) -> None:
        """Lose the connection, and let the session timeout pass without a response."""
        self.end_lease()
        self.suspend()
        await self._reach(SessionState.LEASE_EXPIRED)

    async def _reach(self, state: SessionState) -> None:
        while self.state is not state:  # noqa: ASYNC110  the state has no event
            await asyncio.sleep(0)

    def end_lease(self) -> None:
        """Make the lease invalid until the next response of the server."""
        self._session._lease = 0

    # ---- calls, with faults

    async def _before(self) -> None:
        async with self._starting:
            if self.state is SessionState.CONNECTING:
                await self.start()
        if self.failures:
            raise self.failures.pop(0)

    async def _reader(self) -> ZooKeeper:
        """Return the client that reads: this one, or one whose server lags behind."""
        await self._before()
        return self._behind or cast("ZooKeeper", super())

    async def get(self, path: str, *, watch: bool = False) -> ports.Znode:
        return await (await self._reader()).get(path, watch=watch)

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        return await (await self._reader()).exists(path, watch=watch)

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        return await (await self._reader()).children(path, watch=watch)

    async def get_many(self, paths: Sequence[str]) -> list[ports.Znode | None]:
        return await (await self._reader()).get_many(paths)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return await (await self._reader()).children_many(paths)

    async def sync(self, path: str) -> None:
        await self._before()
        await super().sync(path)
        self._behind = None

    async def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        generation: int | None = None,
    ) -> tuple[str, Stat]:
        await self._before()
        return await self._write(
            super().create(
                path, data, ephemeral=ephemeral, sequential=sequential, generation=generation
            )
        )

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        await self._before()
        return await self._write(super().set(path, data, version))

    async def delete(self, path: str, version: int) -> None:
        await self._before()
        await self._write(super().delete(path, version))

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        await self._before()
        return await self._write(self._multi(ops, generation))

    async def _multi(self, ops: Sequence[MultiOp], generation: int | None) -> list[Stat | None]:
        is_sent = self.state is SessionState.CONNECTED and generation in (None, self.generation)
        if ops and is_sent:
            self.multis.append(list(ops))
            self.before_multi(ops)
        return await super().multi(ops, generation=generation)

    async def _write(self, write: Coroutine[Any, Any, Answer]) -> Answer:
        """Send a write, or inject the next fault."""
        fault = self.faults.pop(0) if self.faults else ""
        if fault in ("unsent", "lost"):
            write.close()
            raise NotConnected("unsent") if fault == "unsent" else OutcomeUnknown("lost")
        behind = _copy_of(self.server) if fault == "lagging" else None
        written = await write
        if behind is not None:
            self._behind = InMemoryClient(behind)
        if fault:
            raise OutcomeUnknown(fault)
        return written

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        await self._before()
        await super().unwatch(kind, path)

    # ---- watches

    def _on_event(self, change: int, full: str) -> None:
        self.events_received += 1
        super()._on_event(change, full)

    def watched(self) -> Watched:
        """Return (kind, path) of every watch that is registered at the client and set at the server."""
        state, connection = self.server.state, self.server.connection_of(self.session_id)
        tables = (
            (WatchKind.DATA, state.data_watches),
            (WatchKind.EXISTS, state.data_watches),
            (WatchKind.CHILDREN, state.child_watches),
        )
        return {
            (kind, path)
            for kind, table in tables
            for path in table.by_client.get(connection, ())
            if path is not None and self._watches.is_registered(kind, path)
        }


def _copy_of(server: ZooKeeperInMemory) -> ZooKeeperInMemory:
    """Return a server that has the nodes which `server` has now."""
    copied = ZooKeeperInMemory()
    copied.state.tree = copy.deepcopy(server.state.tree)
    copied.state.zxid = server.zxid
    return copied
