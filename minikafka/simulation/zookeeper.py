"""A simulated ZooKeeper: the production server over a `MemoryTransport`, in the running event loop.

    zookeeper = ZooKeeperInMemory()
    zookeeper.put("/a/b", b"data")
    session = InMemoryClient(zookeeper)

In a `SeededLoop` the server is a simulated process of its own, and sessions expire in virtual time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import Process, SeededLoop, running_loop, start_in
from minikafka.simulation.ports import InlineExecutor, SeededRng
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.transport import MemoryTransport
from minikafka.simulation.znodes import SESSION_MS, TICK_MS, Znodes
from minikafka.zookeeper.client.client import ZooKeeperClient, close_session
from minikafka.zookeeper.server.server import ZooKeeperServer
from minikafka.zookeeper.server.settings import ServerSettings
from minikafka.zookeeper.server.store.store import Store

PORT: Final = 2181
CONNECT: Final = f"memory:{PORT}"
SESSION_MAX_MS: Final = 3_600_000
"""The server's longest session timeout: a session may outlast any pause."""
DATA_DIR: Final = "/zookeeper"
_started: WeakKeyDictionary[asyncio.AbstractEventLoop, list[ZooKeeperInMemory]] = (
    WeakKeyDictionary()
)
"""The servers for `close_all`. They refer to their loop, so without `close_all` they are never freed."""


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
        self.clients: list[ZooKeeperClient] = []
        self._reader: ZooKeeperClient | None = None
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
            InlineExecutor(),
            settings=ServerSettings(tick_ms=TICK_MS, session_timeout_max_ms=SESSION_MAX_MS),
            on_failure=self.failures.append,
        )
        self.state = self.server.state
        self._is_started = False

    async def start(self) -> None:
        """Start the server in its own process, unless it runs."""
        if not self._is_started:
            self._is_started = True
            loop = asyncio.get_running_loop()
            if not isinstance(loop, SeededLoop):  # a SeededLoop ends the server's tasks itself
                _started.setdefault(loop, []).append(self)
            started = self.server.start("memory", PORT)
            await start_in(self.process, started)
            self._allow_direct_writes()

    def kill(self) -> None:
        """Kill the server as by SIGKILL (only in a `SeededLoop`). `start` starts it again on what its storage holds."""
        assert self.storage is not None
        running_loop().kill(self.process)
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
            self._reader = ZooKeeperClient(
                CONNECT, SESSION_MS, self.clock, SeededRng(), TaskRegistry(), self.transport
            )
            self.clients.append(self._reader)
            await self._reader.start()
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


async def close_all() -> None:
    """Close every server that was started in the running loop, and its clients, unless it is a `SeededLoop`."""
    for server in _started.pop(asyncio.get_running_loop(), []):
        for client in server.clients:
            await client.close()
        await server.close()
