"""The output rule: nothing leaves before every transaction that was applied before it is durable."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from support.zookeeper import wire as wire
from support.zookeeper.wire import WireClient

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Rng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import SeededRng
from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import CREATE, DATA_CHANGED
from minikafka.zookeeper.server.commit import FAST_FLUSHES, SLOW_MS
from minikafka.zookeeper.server.core.changes import LoggedTransaction
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.server import ZooKeeperServer
from minikafka.zookeeper.server.settings import UNANSWERED_MAX, ServerSettings

PORT = 2181


class ScriptedStore:
    """A store whose flush takes as long as a test says, or fails. `durable`: zxid of the last flushed transaction."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.transactions_since_roll = 0
        self.skip: Callable[[], None] = lambda: None
        """Called in a flush: moves the clock, or raises."""
        self.written: list[LoggedTransaction] = []
        self.durable = 0
        self.flushes = 0
        self.snapshots: list[int] = []

    def recover(self, state: ServerState) -> None:
        pass

    def secret(self, rng: Rng) -> bytes:
        return bytes(16)

    def append(self, transactions: Sequence[LoggedTransaction]) -> None:
        self.written += transactions
        self.transactions_since_roll += len(transactions)

    def sync(self) -> None:
        self.skip()
        self.flushes += 1
        self.durable = self.written[-1].zxid

    def roll(self) -> None:
        self.sync()
        self.transactions_since_roll = 0

    def write_snapshot(self, state: ServerState) -> None:
        assert not state.journal
        self.snapshots.append(state.zxid)

    def purge(self) -> None:
        pass

    def close(self) -> None:
        pass


class ScriptedExecutor:
    """An executor that runs the next function only when a test lets it."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def run(self, function: Callable[[], Any]) -> Any:
        turn = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait(turn)
        await turn
        return function()

    async def step(self) -> None:
        """Wait until a function is there, and run it."""
        (await self.waiting.get()).set_result(None)

    async def keep_stepping(self) -> None:
        """Run every function."""
        while True:
            await self.step()


class SlowClock(LoopClock):
    """The loop's clock, whose time also moves inside of a callback."""

    def __init__(self) -> None:
        super().__init__()
        self.moved_ms = 0

    def now(self) -> int:
        return super().now() + self.moved_ms

    def move(self) -> None:
        self.moved_ms += SLOW_MS + 1


class Scene:
    """A server with a scripted store and executor. `failures`: why it has ended."""

    def __init__(self, **settings: int) -> None:
        self.store = ScriptedStore()
        self.executor = ScriptedExecutor()
        self.clock = SlowClock()
        self.transport = MemoryTransport()
        self.tasks = TaskRegistry()
        self.failures: list[str] = []
        self.may_end = asyncio.Event()
        """Set when the child that writes a snapshot may end."""
        self.may_end.set()
        self.server = ZooKeeperServer(
            self.store,
            self.clock,
            SeededRng(1),
            self.transport,
            self.tasks,
            self.executor,
            settings=ServerSettings(**settings),
            in_child=self.in_child,
            on_failure=self.failures.append,
        )

    async def in_child(self, function: Callable[[], None]) -> bool:
        function()
        await self.may_end.wait()
        return True

    async def client(self) -> WireClient:
        return await wire.client(self.transport, PORT)

    async def make_disk_slow(self, client: WireClient) -> None:
        """From now on, flushes run in the executor."""
        self.store.skip = self.clock.move
        assert (await client.call(CREATE, wire.create("/a"))).error == 0


def played(scenario: Callable[[Scene], Coroutine[Any, Any, None]], **settings: int) -> None:
    async def play() -> None:
        scene = Scene(**settings)
        await scene.server.start("127.0.0.1", PORT)
        try:
            await scenario(scene)
        finally:
            await scene.tasks.close()

    run_seeded(1, play())


async def quiet() -> None:
    """Let everything happen that can happen without the executor."""
    await asyncio.sleep(0.1)


def test_reply_to_a_write_waits_for_the_flush_of_its_transaction():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        client.request(codes.SET_DATA, wire.set_data("/a", b"x"))
        await quiet()
        assert client.received == b""
        assert scene.server.state.tree.nodes["/a"].data == b"x"
        await scene.executor.step()
        reply = await client.reply()
        assert scene.store.durable == reply.zxid == scene.server.state.zxid

    played(scenario)


def test_read_of_another_client_waits_for_the_flush_of_what_it_has_read():
    async def scenario(scene: Scene) -> None:
        writer, reader = await scene.client(), await scene.client()
        await scene.make_disk_slow(writer)
        writer.request(codes.SET_DATA, wire.set_data("/a", b"x"))
        await quiet()
        reader.request(codes.GET_DATA, wire.read("/a"))
        await quiet()
        assert reader.received == b""
        await scene.executor.step()
        assert (await reader.reply()).reader().buffer() == b"x"

    played(scenario)


def test_event_waits_for_the_flush_of_the_change_that_it_reports():
    async def scenario(scene: Scene) -> None:
        writer, watcher = await scene.client(), await scene.client()
        await scene.make_disk_slow(writer)
        await watcher.call(codes.GET_DATA, wire.read("/a", watch=True))
        writer.request(codes.SET_DATA, wire.set_data("/a", b"x"))
        await quiet()
        assert watcher.received == b""
        await scene.executor.step()
        event = await watcher.reply()
        assert (event.xid, *event.event()) == (wire.EVENT_XID, DATA_CHANGED, "/a")
        assert scene.store.durable == event.zxid

    played(scenario)


def test_event_of_a_write_precedes_its_reply_on_the_connection_that_wrote():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/a"))
        await client.call(codes.EXISTS, wire.read("/a", watch=True))
        xid = client.request(codes.SET_DATA, wire.set_data("/a", b"x"))
        assert [(await client.reply()).xid for _ in range(2)] == [wire.EVENT_XID, xid]

    played(scenario)


def test_requests_that_arrive_during_a_flush_share_the_next_one():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        before = scene.store.flushes
        for _ in range(10):
            client.request(codes.SET_DATA, wire.set_data("/a"))
            await quiet()
        await scene.executor.step()
        await client.reply()
        await quiet()
        assert client.received == b""
        await scene.executor.step()
        for _ in range(9):
            await client.reply()
        assert scene.store.flushes - before == 2

    played(scenario)


def test_server_applies_at_most_a_thousand_requests_of_a_client_during_a_flush():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        client.request(codes.SET_DATA, wire.set_data("/a"))
        await quiet()
        before = scene.server.state.zxid
        xids = [client.request(codes.SET_DATA, wire.set_data("/a")) for _ in range(2_500)]
        await quiet()
        assert scene.server.state.zxid - before == UNANSWERED_MAX - 1
        stepping = asyncio.ensure_future(scene.executor.keep_stepping())
        await client.reply()
        assert [(await client.reply()).xid for _ in xids] == xids
        stepping.cancel()

    played(scenario)


def test_reply_to_the_end_of_a_session_waits_for_the_flush_too():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        client.request(codes.SET_DATA, wire.set_data("/a"))
        await quiet()
        client.request(codes.CLOSE_SESSION)
        await scene.executor.step()
        await client.reply()
        await quiet()
        assert not client.is_ended
        await scene.executor.step()
        assert (await client.reply()).zxid == scene.store.durable
        assert await client.end() == b""

    played(scenario)


def test_flushes_run_in_the_event_loop_again_after_many_fast_ones():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        scene.store.skip = lambda: None
        for _ in range(FAST_FLUSHES):
            client.request(codes.SET_DATA, wire.set_data("/a"))
            await scene.executor.step()
            await client.reply()
        assert (await client.call(codes.SET_DATA, wire.set_data("/a"))).error == 0
        assert scene.executor.waiting.empty()

    played(scenario)


def fail() -> None:
    raise StorageFailed("/data/version-2/log.1", OSError(5, "Input/output error"))


def test_failed_flush_ends_the_server_and_is_not_acknowledged():
    async def scenario(scene: Scene) -> None:
        client, other = await scene.client(), await scene.client()
        scene.store.skip = fail
        client.request(CREATE, wire.create("/a"))
        await quiet()
        scene.store.skip = lambda: None
        other.request(codes.GET_DATA, wire.read("/"))
        client.request(CREATE, wire.create("/b"))
        await quiet()
        assert client.received == other.received == b""
        assert len(scene.failures) == 1
        assert "log.1" in scene.failures[0]

    played(scenario)


def test_failed_flush_in_the_executor_ends_the_server_and_is_not_acknowledged():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        scene.store.skip = fail
        client.request(codes.SET_DATA, wire.set_data("/a"))
        await scene.executor.step()
        await quiet()
        assert client.received == b""
        assert len(scene.failures) == 1

    played(scenario)


def test_unexpected_error_in_a_write_ends_the_server_before_it_is_logged(monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        written = len(scene.store.written)
        monkeypatch.setattr(scene.server.state, "write", broken)
        client.request(CREATE, wire.create("/a"))
        await quiet()
        assert client.received == b""
        assert len(scene.store.written) == written
        assert "a bug" in scene.failures[0]

    played(scenario)


def test_close_makes_pending_writes_durable_and_answers_them():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        for number in range(2):
            client.request(codes.SET_DATA, wire.set_data("/a", bytes([number])))
            await quiet()
        closing = asyncio.ensure_future(scene.server.close())
        for _ in range(2):
            await scene.executor.step()
        await closing
        assert [(await client.reply()).error for _ in range(2)] == [0, 0]
        assert scene.store.durable == scene.server.state.zxid
        assert await client.end() == b""

    played(scenario)


def test_snapshot_has_what_is_in_the_log_and_nothing_else():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await scene.make_disk_slow(client)
        for _ in range(10):
            client.request(codes.SET_DATA, wire.set_data("/a"))
            await quiet()
        await scene.executor.step()
        await quiet()
        assert scene.store.snapshots == [scene.store.durable] == [scene.server.state.zxid]
        for _ in range(10):
            await client.reply()

    played(scenario, snapshot_after=3)


def test_flushes_run_in_the_executor_while_a_snapshot_is_written():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        scene.may_end.clear()
        for path in ("/a", "/b"):
            client.request(CREATE, wire.create(path))
            await client.reply()
        assert scene.store.snapshots
        client.request(codes.SET_DATA, wire.set_data("/a"))
        await quiet()
        assert client.received == b""
        await scene.executor.step()
        await client.reply()
        scene.may_end.set()
        await scene.executor.step()  # deletes old files
        await quiet()
        assert (await client.call(codes.SET_DATA, wire.set_data("/a"))).error == 0
        assert scene.executor.waiting.empty()

    played(scenario, snapshot_after=3)
