"""The life of a connection: start and end of sessions, limits, and what happens to a client that reads slowly."""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.zookeeper import wire as wire
from support.zookeeper.wire import WireClient

from minikafka.simulation.loop import run_seeded
from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.messages import codes, jute
from minikafka.zookeeper.messages.codes import CREATE, NODE_DELETED
from minikafka.zookeeper.messages.jute import INT
from minikafka.zookeeper.server.settings import (
    FRAME_MAX,
    IDLE_MS,
    UNANSWERED_MAX,
    UNSENT_MAX,
    ServerSettings,
)

PORT = 2181
TICK_MS = 1_000


class Scene:
    def __init__(self, **settings: int) -> None:
        self.transport = MemoryTransport()
        self.failures: list[str] = []
        self.server = wire.server(
            self.transport,
            self.failures,
            settings=ServerSettings(**{"tick_ms": TICK_MS, **settings}),
        )

    async def connection(self) -> WireClient:
        return await wire.wire(self.transport, PORT)

    async def client(self) -> WireClient:
        return await wire.client(self.transport, PORT)

    async def word(self, word: str) -> str:
        connection = await self.connection()
        connection.link.send([word.encode()])
        return (await connection.end()).decode()


def played(scenario: Callable[[Scene], Coroutine[Any, Any, None]], **settings: int) -> None:
    async def play() -> None:
        scene = Scene(**settings)
        await scene.server.start("127.0.0.1", PORT)
        await scenario(scene)
        await scene.server.close()
        assert scene.failures == []

    run_seeded(1, play())


# ---- sessions


@pytest.mark.parametrize(
    ("wanted", "granted"), [(0, 2_000), (2_500, 2_500), (10**6, 20_000), (-1, 2_000)]
)
def test_timeout_of_a_session_is_between_2_and_20_ticks(wanted, granted):
    async def scenario(scene: Scene) -> None:
        connection = await scene.connection()
        greeting = await connection.greet(wanted)
        assert greeting.timeout_ms == granted
        again = await scene.connection()
        found = await again.greet(10**6, greeting.session_id, greeting.password)
        assert (found.session_id, found.timeout_ms) == (greeting.session_id, 20_000)

    played(scenario)


def test_setting_replaces_the_longest_timeout():
    async def scenario(scene: Scene) -> None:
        assert (await (await scene.connection()).greet(10**6)).timeout_ms == 60_000

    played(scenario, session_timeout_max_ms=60_000)


@pytest.mark.parametrize(("read_only", "size"), [(b"", 36), (b"\0", 37), (b"\1", 37)])
def test_reply_has_the_read_only_byte_only_if_the_request_has_it(read_only, size):
    async def scenario(scene: Scene) -> None:
        assert (await (await scene.connection()).greet(read_only=read_only)).size == size

    played(scenario)


def test_session_moves_to_a_new_connection_without_its_watches():
    async def scenario(scene: Scene) -> None:
        old, other = await scene.connection(), await scene.client()
        greeting = await old.greet()
        await old.call(CREATE, wire.create("/a", b"", 1))
        await old.call(codes.GET_DATA, wire.read("/a", watch=True))
        new = await scene.connection()
        assert await new.greet(6_000, greeting.session_id, greeting.password) == greeting
        assert await old.end() == b""
        await other.call(codes.DELETE, wire.versioned("/a"))
        reply = await new.call(codes.PING, xid=wire.PING_XID)
        assert reply.xid == wire.PING_XID
        assert scene.server.state.data_watches.by_path == {}

    played(scenario)


def test_wrong_password_gets_no_session_and_leaves_its_owner_alone():
    async def scenario(scene: Scene) -> None:
        owner, thief = await scene.connection(), await scene.connection()
        greeting = await owner.greet()
        stolen = await thief.greet(6_000, greeting.session_id, bytes(16))
        assert stolen == (0, 0, bytes(16), 36)
        assert await thief.end() == b""
        assert (await owner.call(codes.PING, xid=-2)).error == 0

    played(scenario)


def test_passwords_of_two_sessions_differ_and_do_not_open_each_other():
    async def scenario(scene: Scene) -> None:
        first, second = [await (await scene.connection()).greet() for _ in range(2)]
        assert first.password != second.password
        crossed = await (await scene.connection()).greet(6_000, first.session_id, second.password)
        assert crossed.session_id == 0

    played(scenario)


def test_client_that_has_seen_a_later_zxid_is_closed_without_a_reply():
    async def scenario(scene: Scene) -> None:
        connection = await scene.connection()
        with pytest.raises(ConnectionError):
            await connection.greet(seen_zxid=scene.server.state.zxid + 1)
        assert connection.received == b""
        assert scene.server.state.sessions.open == {}

    played(scenario)


def test_session_without_a_sign_of_life_expires_and_its_connection_ends():
    async def scenario(scene: Scene) -> None:
        silent, watcher = await scene.connection(), await scene.client()
        greeting = await silent.greet(2_000)
        await silent.call(CREATE, wire.create("/a", b"", 1))
        began = asyncio.get_running_loop().time()
        await watcher.call(codes.EXISTS, wire.read("/a", watch=True))
        assert (await watcher.reply()).event() == (NODE_DELETED, "/a")
        assert 2 <= asyncio.get_running_loop().time() - began <= 3.6
        assert await silent.end() == b""
        again = await (await scene.connection()).greet(
            2_000, greeting.session_id, greeting.password
        )
        assert again.session_id == 0

    played(scenario)


def test_pings_keep_a_session_alive():
    async def scenario(scene: Scene) -> None:
        client = await scene.connection()
        await client.greet(2_000)
        for _ in range(20):
            await asyncio.sleep(0.9)
            assert (await client.call(codes.PING, xid=-2)).error == 0

    played(scenario)


def test_end_session_ends_a_session_as_its_expiry_does():
    async def scenario(scene: Scene) -> None:
        client, watcher = await scene.connection(), await scene.client()
        greeting = await client.greet()
        await client.call(CREATE, wire.create("/a", b"", 1))
        await watcher.call(codes.EXISTS, wire.read("/a", watch=True))
        scene.server.end_session(greeting.session_id)
        assert (await watcher.reply()).event() == (NODE_DELETED, "/a")
        assert await client.end() == b""

    played(scenario)


def test_empty_containers_are_removed_after_about_a_minute():
    async def scenario(scene: Scene) -> None:
        client = await scene.connection()
        await client.greet(20_000)
        await client.call(19, wire.create("/container"))
        await client.call(CREATE, wire.create("/container/a"))
        await client.call(codes.DELETE, wire.versioned("/container/a"))
        for _ in range(7):
            assert (await client.call(codes.EXISTS, wire.read("/container"))).error == 0
            await asyncio.sleep(8)
        await asyncio.sleep(8)
        assert (await client.call(codes.EXISTS, wire.read("/container"))).error == -101

    played(scenario)


# ---- frames


@pytest.mark.parametrize("size", [-1, FRAME_MAX + 1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("greets", [True, False])
def test_frame_of_an_impossible_length_ends_the_connection(size, greets):
    async def scenario(scene: Scene) -> None:
        connection = await scene.connection()
        if greets:
            await connection.greet()
        connection.link.send([INT.pack(size) + b"x" * 100])
        assert await connection.end() == b""

    played(scenario)


def test_longest_frame_is_served():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        head = len(struct.pack("!ii", 0, 0)) + len(wire.create("/a"))
        data = b"x" * (FRAME_MAX - head)
        assert (await client.call(CREATE, wire.create("/a", data))).error == 0
        client.request(CREATE, wire.create("/b", data + b"x"))
        assert await client.end() == b""

    played(scenario)


@pytest.mark.parametrize("frame", [b"", b"\0" * 7])
def test_frame_without_a_whole_header_ends_the_connection(frame):
    async def scenario(scene: Scene) -> None:
        client, first = await scene.client(), await scene.connection()
        for connection in (client, first):
            connection.send(frame)
            assert await connection.end() == b""

    played(scenario)


def test_requests_may_arrive_in_pieces_of_any_size():
    async def scenario(scene: Scene) -> None:
        scene.transport._piece_bytes = 1
        client = await scene.client()
        xids = [client.request(CREATE, wire.create(f"/n{i}")) for i in range(3)]
        assert [(await client.reply()).xid for _ in xids] == xids

    played(scenario)


# ---- limits


def test_requests_after_the_end_of_the_session_are_not_answered():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        frames: list[bytes] = []
        client.send = frames.append  # type: ignore[method-assign]
        client.request(codes.CLOSE_SESSION)
        client.request(codes.GET_DATA, wire.read("/"))
        client.request(CREATE, wire.create("/late"))
        client.link.send([part for frame in frames for part in (INT.pack(len(frame)), frame)])
        assert (await client.reply()).error == 0
        assert await client.end() == b""
        assert "/late" not in scene.server.state.tree.nodes

    played(scenario)


def test_connection_above_the_maximum_is_closed_at_once():
    async def scenario(scene: Scene) -> None:
        clients = [await scene.client() for _ in range(2)]
        assert await (await scene.connection()).end() == b""
        await clients[0].call(codes.CLOSE_SESSION)
        await clients[0].end()
        await scene.client()

    played(scenario, connections_max=2)


def test_connections_without_a_session_keep_nobody_out():
    async def scenario(scene: Scene) -> None:
        silent = [await scene.connection() for _ in range(3)]
        first = await scene.client()
        second = await scene.client()
        assert [connection.is_ended for connection in silent] == [True, True, False]
        await silent[2].greet()  # the last silent one is still welcome
        assert await (await scene.connection()).end() == b""
        for client in (first, second, silent[2]):
            assert (await client.call(codes.GET_DATA, wire.read("/"))).error == 0

    played(scenario, connections_max=3)


def test_connection_that_opens_no_session_is_cut_off():
    async def scenario(scene: Scene) -> None:
        connection = await scene.connection()
        began = asyncio.get_running_loop().time()
        assert await connection.end() == b""
        took = asyncio.get_running_loop().time() - began
        assert IDLE_MS / 1000 <= took <= (IDLE_MS + TICK_MS) / 1000

    played(scenario)


def test_long_pipeline_of_requests_is_answered_in_order():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        xids = [client.request(codes.WHO_AM_I) for _ in range(3 * UNANSWERED_MAX)]
        assert [(await client.reply()).xid for _ in xids] == xids

    played(scenario)


def test_server_stops_reading_from_a_client_that_does_not_read():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/a", b"x" * 1_000_000))
        served = next(iter(scene.server.connections))
        client.link.pause_reading()
        xids = [client.request(codes.GET_DATA, wire.read("/a")) for _ in range(100)]
        await asyncio.sleep(1)
        assert served.is_paused
        assert UNSENT_MAX < served.link.queued_bytes() < UNSENT_MAX + 2_000_000
        client.link.resume_reading()
        assert [(await client.reply()).xid for _ in xids] == xids
        assert not served.is_paused

    played(scenario)


def test_client_that_never_reads_is_cut_off_with_its_session():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/a", b"x" * 1_000_000))
        client.link.pause_reading()
        for _ in range(100):
            client.request(codes.GET_DATA, wire.read("/a"))
        await asyncio.sleep(6 + IDLE_MS / 1000 + 3)
        assert scene.server.connections == {}
        assert scene.server.state.sessions.open == {}

    played(scenario)


def test_client_that_reads_no_events_is_cut_off():
    async def scenario(scene: Scene) -> None:
        client, other = await scene.client(), await scene.connection()
        await other.greet(20_000)
        long = "/" + "x" * 100_000
        await client.call(codes.ADD_WATCH, wire.versioned("/", 1))
        client.link.pause_reading()
        for _ in range(250):
            await other.call(CREATE, wire.create(long))
            await other.call(codes.DELETE, wire.versioned(long))
        assert len(scene.server.connections) == 1

    played(scenario)


# ---- four-letter words


def test_ruok_is_answered_and_the_connection_ends():
    async def scenario(scene: Scene) -> None:
        assert await scene.word("ruok") == "imok"
        assert await scene.word("ruok\n") == "imok"
        assert await scene.word("isro") == "rw"

    played(scenario)


def test_unknown_word_is_an_impossible_frame():
    async def scenario(scene: Scene) -> None:
        assert await scene.word("kill") == ""

    played(scenario)


def test_word_after_the_first_request_is_no_word():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        client.link.send([b"ruok"])
        assert await client.end() == b""

    played(scenario)


def test_srvr_and_mntr_show_what_was_counted():
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.call(CREATE, wire.create("/a", b"", 1))
        await client.call(codes.GET_DATA, wire.read("/a", watch=True))
        await client.call(codes.SET_DATA, wire.set_data("/a"))
        await client.reply()
        lines = (await scene.word("srvr")).splitlines()
        assert lines[0].startswith("Zookeeper version: 3.9.5-")
        assert {"Received: 5", "Sent: 5", "Connections: 2", "Outstanding: 0"} <= set(lines)
        assert {"Zxid: 0x3", "Mode: standalone", "Node count: 5"} <= set(lines)
        rows = dict(line.split("\t") for line in (await scene.word("mntr")).splitlines())
        expected = {
            "zk_server_state": "standalone",
            "zk_znode_count": "5",
            "zk_ephemerals_count": "1",
            "zk_watch_count": "0",
            "zk_cnt_updatelatency": "3",
            "zk_cnt_readlatency": "1",
            "zk_sum_node_changed_watch_count": "1",
        }
        assert expected.items() <= rows.items()

    played(scenario)


def test_words_about_watches_and_sessions_name_the_session():
    async def scenario(scene: Scene) -> None:
        client = await scene.connection()
        session = f"0x{(await client.greet()).session_id:x}"
        await client.call(CREATE, wire.create("/a", b"", 1))
        await client.call(codes.GET_DATA, wire.read("/a", watch=True))
        await client.call(codes.EXISTS, wire.read("/b", watch=True))
        assert await scene.word("wchp") == f"/a\n\t{session}\n/b\n\t{session}\n\n"
        assert await scene.word("wchs") == "1 connections watching 2 paths\nTotal watches:2\n"
        dump = await scene.word("dump")
        assert f"Sessions with Ephemerals (1):\n{session}:\n\t/a\n" in dump
        assert "1 expire at " in dump
        cons = await scene.word("cons")
        assert f",sid={session},lop=EXIS," in cons
        assert "(queued=0,recved=4,sent=4," in cons
        assert "Clients:\n /127.0.0.1:" in await scene.word("stat")

    played(scenario)


def test_envi_names_the_version_as_clients_parse_it():
    async def scenario(scene: Scene) -> None:
        assert "\nzookeeper.version=3.9.5-minikafka\n" in await scene.word("envi")

    played(scenario)


def test_session_ids_grow_over_restarts_of_the_server():
    async def scenario(scene: Scene) -> None:
        first = await (await scene.connection()).greet()
        await asyncio.sleep(0.01)
        later = Scene()
        await later.server.start("127.0.0.1", PORT)
        second = await (await later.connection()).greet()
        assert second.session_id > first.session_id > jute.LONG.unpack(b"\x01" + bytes(7))[0]

    played(scenario)
