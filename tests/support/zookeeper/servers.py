"""The ZooKeeper servers that the conformance suite of the ZooKeeper port runs on, behind one interface.

`InProcess` is a server in a process of its own, Apache ZooKeeper's or minikafka's, behind a proxy that cuts
connections. `InMemory` is minikafka's server in the loop of the test, as other tests use it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from support.until import until
from support.zookeeper.proxy import Proxy
from support.zookeeper.zookeepers import SESSION_MS, Client, Connect, in_thread

from minikafka.base.errors import NotConnected
from minikafka.base.ports import SessionEvent, SessionState, Transport, ZooKeeper
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.transport import SocketTransport
from minikafka.simulation.zookeeper import CONNECT, ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.client.client import close_session
from minikafka.zookeeper.processes.child import ServerProcess


async def end_live_session(
    connect: str,
    session_id: int,
    password: bytes,
    transport: Transport | None = None,
) -> None:
    """End the session of a client that still runs.

    If the client reconnects to its session at the same time, the server closes the connection opened here. In that
    case, try again with a new connection, at most 20 times in all.
    """
    for _ in range(20):
        with suppress(NotConnected):
            await close_session(
                connect, session_id, password, SystemClock(), transport or SocketTransport()
            )
            return
    raise AssertionError("the session could not be ended")


class RecordingClient(ZooKeeper, Protocol):
    """A client that records the states of its session. `root` is the client's chroot."""

    root: str
    seen: list[SessionEvent]

    def states(self) -> list[SessionState]: ...

    async def until(self, state: SessionState) -> None: ...


class Zookeeper(Protocol):
    """A ZooKeeper server whose client connections a test can cut, and a separate connection for observation."""

    @property
    def events(self) -> int:
        """Number of watch events sent to clients so far."""

    async def connect(self) -> Any:
        """Return a started client (`RecordingClient`); all clients of a test have the same root."""

    async def connect_directly(self) -> Any:
        """Return a started client whose connection is not affected by `cut` and `refuse`."""

    def cut(self) -> None:
        """Close every connection. Clients reconnect, except after `refuse`."""

    def refuse(self) -> None:
        """Refuse new connections, and close every existing connection."""

    def accept(self) -> None:
        """Accept connections again."""

    async def end_session(self, session_id: int, password: bytes) -> None:
        """End a session, as any client that knows the session's password can."""

    async def has(self, client: Any, path: str) -> bool:
        """True if the node exists, read without the client. `path` is relative to the client's root."""

    async def watched_paths(self, client: Any) -> int:
        """Return the number of paths below the client's root that are watched by any client."""


class InProcess:
    """A server, or one member of an ensemble, behind a proxy."""

    def __init__(
        self,
        server: ServerProcess,
        proxy: Proxy,
        connect: Connect,
        *,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.server = server
        self.proxy = proxy
        self._connect = connect
        self._session_ms = session_ms
        self._resets = False

    @property
    def events(self) -> int:
        return self.proxy.events

    async def connect(self) -> Client:
        return await self._connect(self.proxy.connect, session_ms=self._session_ms)

    async def connect_directly(self) -> Client:
        return await self._connect(self.server.connect, session_ms=self._session_ms)

    def cut(self) -> None:
        """Close every connection, alternately by a TCP reset and by a FIN."""
        self._resets = not self._resets
        (self.proxy.rst if self._resets else self.proxy.fin)()

    def refuse(self) -> None:
        self.proxy.accepting = False
        self.proxy.fin()

    def accept(self) -> None:
        self.proxy.accepting = True

    async def end_session(self, session_id: int, password: bytes) -> None:
        await end_live_session(self.server.connect, session_id, password)

    async def has(self, client: Client, path: str) -> bool:
        return bool(await in_thread(lambda kazoo: kazoo.exists(client.root + path), self.server))

    async def watched_paths(self, client: Client) -> int:
        return (await self.server.four_letter_word("wchp", 20_000)).count(client.root)


class MemoryClient(InMemoryClient):
    """A client of the server in memory that records the events of its session after `start`."""

    root = "/in-memory"

    def __init__(self, server: ZooKeeperInMemory) -> None:
        super().__init__(server, chroot=self.root)
        self.seen: list[SessionEvent] = []

    async def start(self) -> None:
        await super().start()
        self._tasks.spawn(self._remember(), "remember")

    async def _remember(self) -> None:
        async for event in self.events():
            self.seen.append(event)

    def states(self) -> list[SessionState]:
        return [event.state for event in self.seen]

    async def until(self, state: SessionState) -> None:
        await until(lambda: state in self.states())


class InMemory:
    """A ZooKeeper server in memory, and its clients."""

    def __init__(self) -> None:
        self.ensemble = ZooKeeperInMemory()
        self.clients: list[MemoryClient] = []
        self._is_accepting = True

    @property
    def events(self) -> int:
        return sum(client.events_received for client in self.clients)

    async def connect(self) -> MemoryClient:
        client = await self.connect_directly()
        self.clients.append(client)
        return client

    async def connect_directly(self) -> MemoryClient:
        client = MemoryClient(self.ensemble)
        await client.start()
        return client

    def cut(self) -> None:
        for client in self.clients:
            if self._is_accepting:
                client.reconnect()
            else:
                client.suspend()

    def refuse(self) -> None:
        self._is_accepting = False
        self.cut()

    def accept(self) -> None:
        self._is_accepting = True
        for client in self.clients:
            client.gate.release()

    async def end_session(self, session_id: int, password: bytes) -> None:
        await end_live_session(CONNECT, session_id, password, self.ensemble.transport)

    async def has(self, client: MemoryClient, path: str) -> bool:
        return client.root + path in self.ensemble.nodes

    async def watched_paths(self, client: MemoryClient) -> int:
        state = self.ensemble.state
        return len({*state.data_watches.by_path, *state.child_watches.by_path})


def _conform(process: InProcess, memory: InMemory) -> tuple[Zookeeper, Zookeeper]:
    """Let the type checker verify that `InProcess` and `InMemory` implement the protocol `Zookeeper`."""
    return process, memory
