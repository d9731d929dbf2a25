"""A ZooKeeper server in the loop of a test: the production server and client over a `MemoryTransport`.

    zookeeper = ZooKeeperInMemory()
    zookeeper.put("/a/b", b"data")
    session = InMemoryClient(zookeeper)

In a `SeededLoop` it is a simulated process of its own, and sessions expire in virtual time.
The fixture `watched_loop` closes clients and servers at the end of a test.
`Znodes` has the direct operations of a test on the server's state, and needs neither a loop nor a server.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from support.loop_clock import LoopClock, SeededRng
from support.memory_storage import MemoryStorage
from support.memory_transport import MemoryTransport
from support.seeded_loop import Process, SeededLoop, context_of
from support.until import until

from minikafka.base import ports
from minikafka.base.endpoints import PLAINTEXT, SecurityProtocol
from minikafka.base.errors import CoordinationError, MultiFailed, NotConnected, OutcomeUnknown
from minikafka.base.ports import (
    MultiOp,
    SessionState,
    Stat,
    StreamHandler,
    Transport,
    WatchKind,
    ZooKeeper,
)
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.client import ZooKeeperClient, close_session
from minikafka.zookeeper.messages import codes, requests
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE, Identity
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.core.tree import DataNode, parent_of
from minikafka.zookeeper.server.server import ZooKeeperServer
from minikafka.zookeeper.server.settings import ServerSettings
from minikafka.zookeeper.server.store.store import Store

PORT = 2181
CONNECT = f"memory:{PORT}"
Answer = TypeVar("Answer")
TICK_MS = 2_000
SESSION_MS = 6_000
CONNECT_TIMEOUT_MS = 18_000
"""The default of zookeeper.connection.timeout.ms. A test may run in real time, with a session timeout of 1 ms."""
SESSION_MAX_MS = 3_600_000
"""A test can have sessions that outlast any pause."""
DATA_DIR = "/zookeeper"
NOBODY = 0
"""Session id of the writes that a test makes directly."""
Written = tuple[str, Stat | None]
"""(path of the node, its Stat after a create or set, None after other operations)."""
_started: WeakKeyDictionary[asyncio.AbstractEventLoop, list[ZooKeeperInMemory]] = (
    WeakKeyDictionary()
)


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
        self.wall_ms: Callable[[], int] = SystemClock().wall_ms
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


class ZooKeeperInMemory(Znodes):
    """A ZooKeeper server on port 2181 of a `MemoryTransport`. It starts when its first client connects.

    Without a storage it keeps nothing. With one, it can be killed and started again; `put` then needs a running server.
    """

    def __init__(
        self,
        transport: MemoryTransport | None = None,
        clock: LoopClock | None = None,
        storage: MemoryStorage | None = None,
    ) -> None:
        self.transport = transport or MemoryTransport()
        self.clock = clock or _Clock()
        self.storage = storage
        self.failures: list[str] = []
        self.clients: list[InMemoryClient] = []
        self._reader: InMemoryClient | None = None
        self._renew()
        super().__init__(self.server.state)
        self.wall_ms = self.clock.wall_ms

    def _renew(self) -> None:
        """Make a server that has not started, in a process of its own."""
        self.process = Process("zookeeper")
        self.server = ZooKeeperServer(
            Store(self.storage, DATA_DIR) if self.storage is not None else None,
            self.clock,
            SeededRng(),
            self.transport,
            TaskRegistry(),
            _InlineExecutor(),
            settings=ServerSettings(tick_ms=TICK_MS, session_timeout_max_ms=SESSION_MAX_MS),
            on_failure=self.failures.append,
        )
        self.state = self.server.state
        self._is_started = False

    async def start(self) -> None:
        """Start the server in its own process, unless it runs."""
        if not self._is_started:
            self._is_started = True
            _started.setdefault(asyncio.get_running_loop(), []).append(self)
            started = self.server.start("memory", PORT)
            await asyncio.get_running_loop().create_task(started, context=context_of(self.process))
            self._allow_direct_writes()

    def kill(self) -> None:
        """Kill the server as by SIGKILL (only in a `SeededLoop`). `start` starts it again on what its storage holds."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        assert self.storage is not None
        loop.kill(self.process)
        self.transport.kill(self.process)
        self.storage = self.storage.clone()
        self._renew()

    async def close(self) -> None:
        """End the server and its connections. Sessions stay open."""
        await self.server.close()

    def end_session(self, session_id: int) -> None:
        """End a session, as when its time is over, and close its connection."""
        if session_id in self.state.sessions.open:
            self.server.end_session(session_id)

    async def close_session(self, session_id: int, password: bytes) -> None:
        """End a session as any client that knows the password can."""
        await close_session(CONNECT, session_id, password, self.clock, self.transport)

    async def time_for_requests(self, count: int = 10) -> None:
        """Give all clients enough time for this number of requests, one after the other, and for their effects."""
        if self._reader is None:
            self._reader = InMemoryClient(self)
        for _ in range(count):
            await self._reader.exists("/")

    def connection_of(self, session_id: int) -> Any:
        """Return the server's end of the session's connection, None if there is no connection."""
        session = self.state.sessions.open.get(session_id)
        return None if session is None else session.connection


class _Clock(LoopClock):
    """The time of the running loop; 0 where no loop runs, as in a fixture."""

    def now(self) -> int:
        try:
            return super().now()
        except RuntimeError:
            return 0


class _InlineExecutor:
    """The Executor port of the server: work on its files runs on the event loop."""

    async def run(self, function: Callable[[], Any]) -> Any:
        return function()


class Gate:
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
        security: SecurityProtocol = PLAINTEXT,
    ) -> StreamHandler:
        while self._admitted == 0:
            await self._changed.wait()
        if self._admitted is not None:
            self._admitted -= 1
        return await self._transport.connect(factory, host, port, security)


async def close_all() -> None:
    """Close every server that was started in the running loop, and its clients."""
    for server in _started.pop(asyncio.get_running_loop(), []):
        for client in server.clients:
            await client.close()
        await server.close()


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
        clock: LoopClock | None = None,
        tasks: ports.Tasks | None = None,
        connect: str = CONNECT,
    ) -> None:
        self.server = server
        self.gate = Gate(server.transport)
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
        await until(lambda: self.state is SessionState.EXPIRED)

    async def lose_lease(self) -> None:
        """Lose the connection, and let the session timeout pass without a response."""
        self.end_lease()
        self.suspend()
        await until(lambda: self.state is SessionState.LEASE_EXPIRED)

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
        return self._behind or super()

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

    def watched(self) -> set[tuple[WatchKind, str]]:
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
            if self._watches.is_registered(kind, path)
        }


def _copy_of(server: ZooKeeperInMemory) -> ZooKeeperInMemory:
    """Return a server that has the nodes which `server` has now."""
    copied = ZooKeeperInMemory()
    copied.state.tree = copy.deepcopy(server.state.tree)
    copied.state.zxid = server.zxid
    return copied


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
