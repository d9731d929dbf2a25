"""The server over restarts and errors: sessions expire, and snapshots are written, also the second time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from support.zookeeper import wire as wire
from support.zookeeper.data import DIRECTORY, FOLDER, logs, recovered
from support.zookeeper.wire import WireClient

from minikafka.base.errors import StorageFailed
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import SeededRng
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import CREATE, NODE_DELETED
from minikafka.zookeeper.server.server import ZooKeeperServer
from minikafka.zookeeper.server.settings import ServerSettings
from minikafka.zookeeper.server.store.store import Store

PORT = 2181
TICK_MS = 1_000
TIMEOUT_MS = 4_000
SNAPSHOT_AFTER = 5


class DirectExecutor:
    async def run(self, function: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return function()


class StoppingClock(LoopClock):
    """The clock of a server whose process can be stopped."""

    stopped_ms = 0

    def now(self) -> int:
        return super().now() + self.stopped_ms


class Scene:
    """A server whose files are in memory. `forks`: the outcome of each attempt to fork, True if there is no other."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.clock = StoppingClock()
        self.transport = MemoryTransport()
        self.forks: list[bool | Exception] = []
        self.attempts = 0
        self.failures: list[str] = []
        self.tasks = TaskRegistry(lambda name, error: self.failures.append(f"{name}: {error!r}"))
        self.server: ZooKeeperServer

    def in_child(self, function: Callable[[], None]) -> Awaitable[bool]:
        self.attempts += 1
        outcome = self.forks.pop(0) if self.forks else True
        if isinstance(outcome, OSError) and outcome.errno == 11:
            raise outcome
        return self._child(function, outcome)

    async def _child(self, function: Callable[[], None], outcome: bool | Exception) -> bool:
        await asyncio.sleep(0.01)
        if isinstance(outcome, OSError):
            raise outcome
        if outcome is False:
            return False
        try:
            function()
        except StorageFailed:
            return False
        return True

    async def start(self, **settings: int) -> None:
        self.server = ZooKeeperServer(
            Store(self.storage, DIRECTORY),
            self.clock,
            SeededRng(1),
            self.transport,
            self.tasks,
            DirectExecutor(),
            settings=ServerSettings(tick_ms=TICK_MS, **settings),
            in_child=self.in_child,
            on_failure=self.failures.append,
        )
        await self.server.start("127.0.0.1", PORT)

    async def restart(self) -> None:
        """Kill the server, and start it on its files."""
        await self.end()
        await self.start()

    async def end(self) -> None:
        """End the server as a kill does: its files stay as they are."""
        self.transport.forget(PORT)
        for connection in tuple(self.server.connections):
            connection.cut()
        self.server._has_ended = True
        self.storage = self.storage.clone()
        await asyncio.sleep(0.01)

    async def client(self, timeout_ms: int = TIMEOUT_MS) -> WireClient:
        return await wire.client(self.transport, PORT, timeout_ms)

    def snapshots(self) -> list[str]:
        return [name for name in self.storage.names(FOLDER) if name.startswith("snapshot.")]


def played(scenario: Callable[[Scene], Coroutine[Any, Any, None]], **settings: int) -> None:
    async def play() -> None:
        scene = Scene()
        await scene.start(**settings)
        try:
            await scenario(scene)
            assert scene.failures == []
        finally:
            await scene.tasks.close()

    run_seeded(1, play())


# ---- sessions


@pytest.mark.parametrize("restarts", [1, 2])
def test_session_whose_client_never_returns_expires_after_restarts(restarts):
    async def scenario(scene: Scene) -> None:
        dead = await scene.client()
        await dead.call(CREATE, wire.create("/broker", b"", 1))
        for _ in range(restarts):
            await scene.restart()
            assert "/broker" in scene.server.state.tree.nodes
            assert len(scene.server.state.sessions.open) == 1
        watcher = await scene.client(20_000)
        await watcher.call(codes.EXISTS, wire.read("/broker", watch=True))
        await asyncio.sleep(TIMEOUT_MS / 1000 - 0.5)
        assert "/broker" in scene.server.state.tree.nodes  # it has its full timeout
        assert (await watcher.reply()).event() == (NODE_DELETED, "/broker")
        await scene.restart()
        assert "/broker" not in scene.server.state.tree.nodes

    played(scenario)


def test_session_of_a_snapshot_expires_after_a_restart():
    async def scenario(scene: Scene) -> None:
        dead = await scene.client()
        await dead.call(CREATE, wire.create("/broker", b"", 1))
        for number in range(SNAPSHOT_AFTER):
            await dead.call(CREATE, wire.create(f"/{number}"))
        await asyncio.sleep(0.1)
        for log in logs(scene.storage)[:-1]:
            scene.storage.remove(log)
        assert len(scene.snapshots()) == 2
        await scene.restart()
        await asyncio.sleep(TIMEOUT_MS / 1000 + 2 * TICK_MS / 1000)
        assert scene.server.state.sessions.open == {}
        assert "/broker" not in scene.server.state.tree.nodes

    played(scenario, snapshot_after=SNAPSHOT_AFTER)


def test_session_that_returns_after_a_restart_lives_on_and_expires_later():
    async def scenario(scene: Scene) -> None:
        first = await wire.wire(scene.transport, PORT)
        greeting = await first.greet(TIMEOUT_MS)
        await scene.restart()
        again = await wire.wire(scene.transport, PORT)
        found = await again.greet(TIMEOUT_MS, greeting.session_id, greeting.password)
        assert found.session_id == greeting.session_id
        await asyncio.sleep(TIMEOUT_MS / 1000 - 0.5)
        assert (await again.call(codes.PING, xid=wire.PING_XID)).error == 0
        await asyncio.sleep(TIMEOUT_MS / 1000 - 0.5)
        assert scene.server.state.sessions.open
        await again.end()
        assert scene.server.state.sessions.open == {}

    played(scenario)


@pytest.mark.parametrize("stops", [1, 2])
def test_session_does_not_expire_while_the_server_itself_is_stopped(stops):
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/broker", b"", 1))
        for _ in range(stops):
            scene.clock.stopped_ms += 10 * TIMEOUT_MS
            await asyncio.sleep(TIMEOUT_MS / 1000 - 1.5)  # less than its timeout
            assert "/broker" in scene.server.state.tree.nodes
            assert (await client.call(codes.PING, xid=wire.PING_XID)).error == 0
        await asyncio.sleep(TIMEOUT_MS / 1000 + 3 * TICK_MS / 1000)
        assert scene.server.state.sessions.open == {}
        assert "/broker" not in scene.server.state.tree.nodes

    played(scenario)


def test_session_of_a_dead_client_expires_although_each_tick_is_late():
    async def scenario(scene: Scene) -> None:
        await scene.client()
        begin = scene.clock.now()
        while scene.server.state.sessions.open:
            scene.clock.stopped_ms += TICK_MS * 2 // 3
            await asyncio.sleep(TICK_MS / 2000)
        assert scene.clock.now() - begin < TIMEOUT_MS + 3 * TICK_MS

    played(scenario)


def test_sessions_expire_one_after_the_other():
    async def scenario(scene: Scene) -> None:
        watcher = await scene.client(20_000)
        for number in range(3):
            dead = await scene.client()
            await dead.call(CREATE, wire.create(f"/{number}", b"", 1))
            await watcher.call(codes.EXISTS, wire.read(f"/{number}", watch=True))
            assert (await watcher.reply()).event() == (NODE_DELETED, f"/{number}")

    played(scenario)


# ---- snapshots


async def write(client: WireClient, count: int = SNAPSHOT_AFTER) -> None:
    for _ in range(count):
        assert (await client.call(codes.SET_DATA, wire.set_data("/"))).error == 0
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)


NO_PROCESS = BlockingIOError(11, "Resource temporarily unavailable")
NO_CHILD = ChildProcessError(10, "No child processes")


@pytest.mark.parametrize("outcome", [NO_PROCESS, NO_CHILD, False], ids=["fork", "wait", "killed"])
def test_next_snapshot_is_written_after_one_that_failed(outcome):
    async def scenario(scene: Scene) -> None:
        scene.forks = [outcome, outcome]
        client = await scene.client()
        for attempts in (1, 2):
            await write(client)
            assert scene.attempts == attempts
            assert len(scene.snapshots()) == 1
        await write(client)
        assert len(scene.snapshots()) == 2
        await write(client)
        assert len(scene.snapshots()) == 3
        zxid = scene.server.state.zxid
        assert recovered(scene.storage.clone()).zxid == zxid

    played(scenario, snapshot_after=SNAPSHOT_AFTER)


def test_next_snapshot_is_written_after_the_disk_was_full():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()

        def full(path: str) -> None:
            if "/snapshot." in path:
                raise StorageFailed(path, OSError(28, "No space left on device"))

        scene.storage.before_change = full
        await write(client)
        assert len(scene.snapshots()) == 1
        scene.storage.before_change = lambda path: None
        await write(client)
        assert len(scene.snapshots()) == 2
        assert recovered(scene.storage.clone()).zxid == scene.server.state.zxid

    played(scenario, snapshot_after=SNAPSHOT_AFTER)


def test_flushes_return_to_the_event_loop_after_a_snapshot_that_failed():
    async def scenario(scene: Scene) -> None:
        scene.forks = [NO_CHILD]
        client = await scene.client()
        await write(client)
        assert not scene.server._commit.expects_slow_disk

    played(scenario, snapshot_after=SNAPSHOT_AFTER)


# ---- errors that must not end one part alone


def test_error_in_a_tick_ends_the_server_rather_than_all_later_expiries():
    async def play() -> None:
        scene = Scene()
        await scene.start()

        def broken(now: int) -> None:
            raise RuntimeError("a bug")

        scene.server._cut_idle = broken  # type: ignore[method-assign]
        await asyncio.sleep(TICK_MS / 1000)
        assert len(scene.failures) == 1
        assert "a bug" in scene.failures[0]

    run_seeded(1, play())


def test_error_while_replies_are_sent_ends_the_server():
    async def play() -> None:
        scene = Scene()
        await scene.start()
        one, other = await scene.client(), await scene.client()
        [first, _] = scene.server.connections

        def broken(output: object) -> None:
            raise MemoryError

        first.send_output = broken  # type: ignore[method-assign]
        for client in (one, other):
            client.request(codes.SET_DATA, wire.set_data("/"))
        await asyncio.sleep(0.1)
        assert scene.failures == ["replies cannot be sent: MemoryError()"]

    run_seeded(1, play())
