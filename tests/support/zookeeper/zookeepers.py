"""Real ZooKeeper servers shared by the tests of a folder, and clients that are closed at the end of each test.

A conftest.py imports the fixtures:

from support.zookeeper.zookeepers import connect, ensemble, server, shared_embedded, shared_ensemble, shared_server
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from kazoo.client import KazooClient

from minikafka.base.ports import SessionEvent, SessionState
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.client.client import ZooKeeperClient
from minikafka.zookeeper.processes.apache import ApacheZooKeeper, EnsembleServer
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper, ServerProcess

ServerT = TypeVar("ServerT", bound=ServerProcess)

TICK_MS = 100
"""ZooKeeper's tick time. The minimum session timeout is two ticks, 200 ms."""
ENSEMBLE_TICK_MS = 500
"""A member that does not answer for five ticks leaves the quorum, and all its clients lose their connections."""
SESSION_MS = 6_000
MEMBERS = (1, 2, 3)


@contextmanager
def _running(kind: type[ServerT], directory: Path) -> Iterator[ServerT]:
    [port] = free_ports(1, SystemRng())
    running = kind(directory, port, clock=SystemClock(), tick_time_ms=TICK_MS)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        asyncio.run(running.stop())


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheZooKeeper]:
    with _running(ApacheZooKeeper, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(scope="session")
def shared_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with _running(EmbeddedZooKeeper, tmp_path_factory.mktemp("embedded")) as running:
        yield running


@pytest.fixture
async def server(shared_server: ApacheZooKeeper) -> AsyncIterator[ApacheZooKeeper]:
    """Yield the shared standalone server. If the test has stopped the server, start it again after the test."""
    yield shared_server
    await heal_servers([shared_server])


@pytest.fixture(scope="session")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ApacheZooKeeper]]:
    data = tmp_path_factory.mktemp("ensemble")
    running = make_ensemble(data, tick_time_ms=ENSEMBLE_TICK_MS)
    try:
        asyncio.run(heal_servers(running))
        yield running
    finally:
        for one in running:
            asyncio.run(one.stop())


@pytest.fixture
async def ensemble(
    shared_ensemble: list[ApacheZooKeeper],
) -> AsyncIterator[list[ApacheZooKeeper]]:
    """Yield the three servers of one ensemble. After the test, restart the servers that the test has stopped."""
    yield shared_ensemble
    await heal_servers(shared_ensemble)


def make_ensemble(data: Path, *, tick_time_ms: int = TICK_MS) -> list[ApacheZooKeeper]:
    """Return the three servers of one ensemble, not started yet."""
    ports = free_ports(3 * len(MEMBERS), SystemRng())
    members = [EnsembleServer(i, ports[i - 1], ports[i + 2]) for i in MEMBERS]
    return [
        ApacheZooKeeper(
            data / str(i),
            ports[i + 5],
            clock=SystemClock(),
            tick_time_ms=tick_time_ms,
            members=members,
            me=i,
        )
        for i in MEMBERS
    ]


async def heal_servers(servers: Sequence[ServerProcess]) -> None:
    """Start or resume every server, and wait until all servers serve requests."""
    for one in servers:
        one.signal(signal.SIGCONT)
        if not one.is_running():
            one.spawn()
    for one in servers:
        await one.wait_until_serving()


class Connect(Protocol):
    """A function that returns a started client with the test's own chroot; the client is closed after the test."""

    async def __call__(
        self,
        servers: str,
        *,
        root: str = ...,
        session_ms: int = ...,
        connect_ms: int | None = ...,
        in_flight_max: int = ...,
    ) -> Client: ...


class Client(ZooKeeperClient):
    """A ZooKeeper client for tests, with its chroot (`root`), its tasks, and the events of its session (`seen`)."""

    root: str
    tasks: TaskRegistry
    seen: list[SessionEvent]

    async def _remember(self) -> None:
        async for event in self.events():
            self.seen.append(event)

    def remember(self) -> None:
        self.seen = []
        self.tasks.spawn(self._remember(), "remember")

    def states(self) -> list[SessionState]:
        return [event.state for event in self.seen]

    async def until(self, state: SessionState, *, seconds: float = 20) -> None:
        """Wait until an event in `seen` has this state. Return at once if an event already has it."""
        async with asyncio.timeout(seconds):
            while state not in self.states():  # noqa: ASYNC110 - the stream is taken by `seen`
                await asyncio.sleep(0.005)


@pytest.fixture
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    clients: list[Client] = []
    own_root = "/" + "".join(c if c.isalnum() else "-" for c in request.node.name)

    async def connect_one(
        servers: str,
        *,
        root: str = own_root,
        session_ms: int = SESSION_MS,
        connect_ms: int | None = None,
        in_flight_max: int = 256,
    ) -> Client:
        tasks = TaskRegistry()
        client = Client(
            servers + root,
            session_ms,
            SystemClock(),
            SystemRng(),
            tasks,
            SocketTransport(),
            in_flight_max=in_flight_max,
            connect_timeout_ms=connect_ms,
        )
        client.root, client.tasks = root, tasks
        clients.append(client)
        await client.start()
        client.remember()
        return client

    yield connect_one
    for client in clients:
        await client.close()
        left = [name for name in client.tasks.names() if name != "remember"]
        assert left == [], "tasks outlive the session"
        await client.tasks.close()


async def in_thread(work: Callable[[KazooClient], object], server: ServerProcess) -> object:
    """Call `work` in a thread with an independent client (kazoo) of the server, and return its result."""

    def run() -> object:
        kazoo = KazooClient(server.connect)
        kazoo.start(timeout=15)
        try:
            return work(kazoo)
        finally:
            kazoo.stop()
            kazoo.close()

    return await asyncio.to_thread(run)


async def eventually(condition: Callable[[], Awaitable[bool]], *, seconds: float = 20) -> None:
    """Poll until the condition is true. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.02)
